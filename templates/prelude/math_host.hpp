// The mathematical functions on the host: accurately by the C library, in double so that float results are rounded
// once; quickly and roughly by the polynomials.

#if defined(MPTUNE_HOST)

// Since 2.35 the GNU C library has vector versions of these functions (to 4 units in the last place). g++ calls them
// from the loops it vectorises where a declaration says so; without them a loop with a call stays scalar.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <features.h>
#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 35))
#define MPTUNE_VECTOR_LIBRARY 1
#endif
#endif

#define MPTUNE_LIBRARY_FUNCTIONS(one, two)                                                                       \
    one(expm1) one(log) one(log2) one(log10) one(log1p)                                                          \
    one(sin) one(cos) one(tan) one(asin) one(acos) one(atan)                                                     \
    one(sinh) one(cosh) one(tanh) one(asinh) one(acosh) one(atanh)                                               \
    one(cbrt) one(erf) one(erfc) two(pow) two(atan2) two(hypot)

#define MPTUNE_LIBRARY_POWERS(one) one(exp) one(exp2) one(exp10)

#if defined(MPTUNE_VECTOR_LIBRARY)
#define MPTUNE_DECLARE(name) \
    extern "C" __attribute__((simd("notinbranch"), const, nothrow)) double name(double) noexcept;
#define MPTUNE_DECLARE2(name) \
    extern "C" __attribute__((simd("notinbranch"), const, nothrow)) double name(double, double) noexcept;
MPTUNE_LIBRARY_POWERS(MPTUNE_DECLARE)
MPTUNE_LIBRARY_FUNCTIONS(MPTUNE_DECLARE, MPTUNE_DECLARE2)
#undef MPTUNE_DECLARE
#undef MPTUNE_DECLARE2
#endif

// lgamma also writes the sign, to a variable of all threads.
extern "C" double lgamma_r(double, int*) noexcept;
#if defined(__clang__)
#define __builtin_exp10(x) __builtin_pow(10.0, x)
#define __builtin_exp10l(x) __builtin_powl(10.0L, x)
#endif

namespace mp {
namespace detail {

#if defined(MPTUNE_VECTOR_LIBRARY)
#define MPTUNE_CALL(name) ::name
#else
#define MPTUNE_CALL(name) __builtin_##name
#endif

template <class... C>
MPTUNE_INLINE double polynomial(double x, double constant, C... higher) {
    if constexpr (sizeof...(C) == 0) return constant;
    else return polynomial(x, higher...) * x + constant;
}

// sin(pi r), |r| <= 1/2, as r p(r^2): 2^-61.7, with pi in two parts, and for float 2^-35.4.
MPTUNE_LAZY MPTUNE_INLINE double sinpi_reduced(double r) {
    const double u = r * r;
    const double s = polynomial(u, -0x1.4abbce625be52p+2, 0x1.466bc6775aa6ep+1, -0x1.32d2cce62753dp-1,
                                0x1.5078348518de7p-4, -0x1.e3074ddd033a2p-8, 0x1.e8f35e952498bp-12,
                                -0x1.6f7975b7ae226p-16, 0x1.9d1b5a0048a08p-21);
    return r * (u * s + 0x1.1886p-53) + r * 0x1.921fb54442d18p1;
}
MPTUNE_LAZY MPTUNE_INLINE float sinpi_reduced_to_float(double r) {
    return static_cast<float>(r * polynomial(r * r, 0x1.921fb5441e5e7p+1, -0x1.4abbce4f185d4p+2, 0x1.466bbfc1f6895p+1,
                                             -0x1.32d111fb33724p-1, 0x1.500ff81c0116fp-4, -0x1.cc3473c929ccap-8));
}

// The C library's functions, in float by way of double: within 0.51 units in the last place.
struct library {
#define MPTUNE_LIBRARY(name)                                                                                      \
    static MPTUNE_INLINE double name(double x) { return MPTUNE_CALL(name)(x); }                                   \
    static MPTUNE_INLINE float name(float x) { return static_cast<float>(MPTUNE_CALL(name)(static_cast<double>(x))); }
#define MPTUNE_LIBRARY2(name)                                                                                     \
    static MPTUNE_INLINE double name(double x, double y) { return MPTUNE_CALL(name)(x, y); }                      \
    static MPTUNE_INLINE float name(float x, float y) {                                                           \
        return static_cast<float>(MPTUNE_CALL(name)(static_cast<double>(x), static_cast<double>(y)));             \
    }
    MPTUNE_LIBRARY_FUNCTIONS(MPTUNE_LIBRARY, MPTUNE_LIBRARY2)
    // Beyond the bounds the answer is 0 or infinity. The vector versions would compute that one element at a time, 30
    // times as slowly, so they are asked for another number there.
#define MPTUNE_LIBRARY_POWER(name, lowest, highest, lowest_float, highest_float)                                  \
    static MPTUNE_INLINE double name(double x) { return bounded_##name(x, lowest, highest); }                     \
    static MPTUNE_INLINE float name(float x) {                                                                    \
        return static_cast<float>(bounded_##name(static_cast<double>(x), lowest_float, highest_float));           \
    }                                                                                                             \
    static MPTUNE_INLINE double bounded_##name(double x, double least, double most) {                             \
        const double power = MPTUNE_CALL(name)(x < least || x > most ? 0.0 : x);                                  \
        return x < least ? 0.0 : x > most ? __builtin_inf() : power;                                              \
    }
    MPTUNE_LIBRARY_POWER(exp, -745.2, 709.8, -104.0, 88.8)
    MPTUNE_LIBRARY_POWER(exp2, -1075.1, 1024.0, -150.1, 128.1)
    MPTUNE_LIBRARY_POWER(exp10, -323.7, 308.3, -45.2, 38.6)
#undef MPTUNE_LIBRARY_POWER
#undef MPTUNE_LIBRARY_POWERS
#undef MPTUNE_LIBRARY
#undef MPTUNE_LIBRARY2
    // What follows from them.
    static MPTUNE_INLINE double rcbrt(double x) { return 1.0 / cbrt(x); }
    static MPTUNE_INLINE double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
    // Far out what rounding x / sqrt(2) loses matters, times the derivative of erfc.
    static MPTUNE_INLINE double normcdf(double x) {
        const double root = 0x1.6a09e667f3bcdp-1, rest = -0x1.bdd3413b26456p-55;
        const double t = -root * x, lost = -(__builtin_fma(root, x, t) + rest * x);
        const double slope = 0x1.20dd750429b6dp-1 * exp(-t * t);
        return 0.5 * erfc(t) - (slope > 0.0 ? slope * lost : 0.0);
    }
    MPTUNE_LAZY static MPTUNE_INLINE double sinpi(double x) {
        const double h = without_turns(x);
        return __builtin_copysign(sinpi_reduced(from_zero(h)), x == __builtin_rint(x) ? x : h);
    }
    MPTUNE_LAZY static MPTUNE_INLINE float sinpi(float x) {
        const float h = without_turns(x);
        return __builtin_copysignf(sinpi_reduced_to_float(from_zero(h)), x == __builtin_rintf(x) ? x : h);
    }
    MPTUNE_LAZY static MPTUNE_INLINE double cospi(double x) { return sinpi_reduced(0.5 - __builtin_fabs(without_turns(x))); }
    MPTUNE_LAZY static MPTUNE_INLINE float cospi(float x) {
        return sinpi_reduced_to_float(0.5 - static_cast<double>(__builtin_fabsf(without_turns(x))));
    }
    static MPTUNE_INLINE double tgamma(double x) { return __builtin_tgamma(x); }
    static MPTUNE_INLINE double lgamma(double x) {
        int sign;
        return ::lgamma_r(x, &sign);
    }
};
#undef MPTUNE_CALL
#undef MPTUNE_LIBRARY_FUNCTIONS

#define MPTUNE_ACCURATELY                                                    \
    template <class T>                                                       \
    static MPTUNE_INLINE T accurately(T x)
#define MPTUNE_QUICKLY MPTUNE_LAZY static MPTUNE_INLINE float quickly(float x)
#define MPTUNE_COARSELY MPTUNE_LAZY static MPTUNE_INLINE float coarsely(float x)

// Rounded to fp16 or bf16, the quick version is as good as the accurate one.
#define MPTUNE_NARROWLY                                                      \
    template <class T>                                                       \
    static MPTUNE_INLINE float narrowly(float x) {                           \
        return quickly(x);                                                   \
    }

// Where the processor computes in fp16, what a function of half is: the bits of `operation`(x) in _Float16.
#if defined(MPTUNE_HALF_VECTORS)
#define MPTUNE_IN_HALF(policy, name, operation)                              \
    using function_defaults<name##_function>::policy;                        \
    static MPTUNE_INLINE half policy(half number) {                          \
        const _Float16 x = number.native();                                  \
        return half::from_native(operation);                                 \
    }
#else
#define MPTUNE_IN_HALF(policy, name, operation)
#endif

#define MPTUNE_HOST_FUNCTION(name)                                           \
    struct name##_function : function_defaults<name##_function> {            \
        MPTUNE_ACCURATELY { return library::name(x); }                       \
        MPTUNE_QUICKLY { return quick_##name(x); }                           \
        MPTUNE_NARROWLY                                                      \
    };
#define MPTUNE_HOST_ROUGH_FUNCTION(name, in_half)                            \
    struct name##_function : function_defaults<name##_function> {            \
        MPTUNE_ACCURATELY { return library::name(x); }                       \
        MPTUNE_QUICKLY { return quick_##name(x); }                           \
        MPTUNE_COARSELY { return coarse_##name(x); }                         \
        MPTUNE_NARROWLY                                                      \
        in_half                                                              \
    };
// The quick version holds for every fp16 argument, but not for the largest of bf16.
#define MPTUNE_HOST_CIRCULAR_FUNCTION(name, argument, in_half)               \
    struct name##_function : function_defaults<name##_function> {            \
        MPTUNE_ACCURATELY { return library::name(argument); }                \
        MPTUNE_QUICKLY { return quick_##name(x); }                           \
        MPTUNE_COARSELY { return coarse_##name(x); }                         \
        template <class T>                                                   \
        static MPTUNE_INLINE float narrowly(float x) {                       \
            if constexpr (kind_of<T> == kind::fp16) return quickly(x); \
            else return accurately(x);                                       \
        }                                                                    \
        in_half                                                              \
    };
#define MPTUNE_HOST_LIBRARY_FUNCTION(name)                                   \
    struct name##_function : function_defaults<name##_function> {            \
        MPTUNE_ACCURATELY { return static_cast<T>(library::name(x)); }       \
    };
// Exact, or rounded once, in hardware.
#define MPTUNE_HOST_EXACT_FUNCTION(name, in_half)                                             \
    struct name##_function : function_defaults<name##_function> {                             \
        static MPTUNE_INLINE double accurately(double x) { return __builtin_##name(x); }      \
        static MPTUNE_INLINE float accurately(float x) { return __builtin_##name##f(x); }     \
        in_half                                                                               \
    };

#define MPTUNE_ROUGHLY_IN_HALF(name, operation) MPTUNE_IN_HALF(roughly, name, operation)
#define MPTUNE_EXACTLY_IN_HALF(name)                                         \
    MPTUNE_IN_HALF(roughly, name, __builtin_##name##f16(x))                  \
    MPTUNE_IN_HALF(rounded_once, name, __builtin_##name##f16(x))

MPTUNE_HOST_ROUGH_FUNCTION(exp, MPTUNE_ROUGHLY_IN_HALF(exp, coarse_exp(x)))
MPTUNE_HOST_ROUGH_FUNCTION(exp2, MPTUNE_ROUGHLY_IN_HALF(exp2, coarse_exp2(x)))
MPTUNE_HOST_ROUGH_FUNCTION(log, )
MPTUNE_HOST_ROUGH_FUNCTION(log2, )
MPTUNE_HOST_FUNCTION(log10)
// g++ would join a sine and a cosine of one argument to sincos, which has no vector version. Without its sign, which
// changes nothing, the argument is another one, as long as g++ does not see that it is nothing but that. (Names g++ does
// not know would do too, but not under a condition.)
template <class T, class Bits>
MPTUNE_INLINE T without_sign(T x, Bits all) {
    return bits_as<T>(bits_as<Bits>(x) & all >> 1);
}
MPTUNE_LAZY MPTUNE_INLINE float without_sign(float x) {
    return without_sign(x, ~0u);
}
MPTUNE_LAZY MPTUNE_INLINE double without_sign(double x) {
    return without_sign(x, ~0ull);
}
MPTUNE_HOST_CIRCULAR_FUNCTION(sin, x, MPTUNE_ROUGHLY_IN_HALF(sin, coarse_sin(x, 0)))
MPTUNE_HOST_CIRCULAR_FUNCTION(cos, without_sign(x), MPTUNE_ROUGHLY_IN_HALF(cos, -coarse_sin(x, static_cast<_Float16>(0.5))))
MPTUNE_HOST_CIRCULAR_FUNCTION(tan, x, )
MPTUNE_HOST_ROUGH_FUNCTION(sinpi, MPTUNE_ROUGHLY_IN_HALF(sinpi, coarse_sinpi(x)))
MPTUNE_HOST_ROUGH_FUNCTION(cospi, MPTUNE_ROUGHLY_IN_HALF(cospi, coarse_cospi(x)))
MPTUNE_HOST_FUNCTION(asin)
MPTUNE_HOST_FUNCTION(acos)
MPTUNE_HOST_FUNCTION(atan)
MPTUNE_HOST_FUNCTION(sinh)
MPTUNE_HOST_FUNCTION(cosh)
MPTUNE_HOST_ROUGH_FUNCTION(tanh, )
MPTUNE_HOST_FUNCTION(erf)
MPTUNE_HOST_FUNCTION(erfc)
MPTUNE_HOST_LIBRARY_FUNCTION(exp10)
MPTUNE_HOST_LIBRARY_FUNCTION(expm1)
MPTUNE_HOST_LIBRARY_FUNCTION(log1p)
MPTUNE_HOST_LIBRARY_FUNCTION(asinh)
MPTUNE_HOST_LIBRARY_FUNCTION(acosh)
MPTUNE_HOST_LIBRARY_FUNCTION(atanh)
MPTUNE_HOST_LIBRARY_FUNCTION(rcbrt)
MPTUNE_HOST_LIBRARY_FUNCTION(normcdf)
MPTUNE_HOST_LIBRARY_FUNCTION(tgamma)
MPTUNE_HOST_LIBRARY_FUNCTION(lgamma)
MPTUNE_HOST_LIBRARY_FUNCTION(cbrt)
MPTUNE_HOST_EXACT_FUNCTION(sqrt, MPTUNE_EXACTLY_IN_HALF(sqrt))
MPTUNE_HOST_EXACT_FUNCTION(fabs, MPTUNE_EXACTLY_IN_HALF(fabs))
MPTUNE_HOST_EXACT_FUNCTION(floor, MPTUNE_EXACTLY_IN_HALF(floor))
MPTUNE_HOST_EXACT_FUNCTION(ceil, MPTUNE_EXACTLY_IN_HALF(ceil))
MPTUNE_HOST_EXACT_FUNCTION(round, )
MPTUNE_HOST_EXACT_FUNCTION(rint, MPTUNE_EXACTLY_IN_HALF(rint))
MPTUNE_HOST_EXACT_FUNCTION(nearbyint, )
MPTUNE_HOST_EXACT_FUNCTION(trunc, MPTUNE_EXACTLY_IN_HALF(trunc))
struct rsqrt_function : function_defaults<rsqrt_function> {
    static MPTUNE_INLINE double accurately(double x) { return 1.0 / __builtin_sqrt(x); }
    static MPTUNE_INLINE float accurately(float x) {
        return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x)));
    }
    MPTUNE_QUICKLY { return 1.0f / __builtin_sqrtf(x); }
    MPTUNE_COARSELY { return coarse_rsqrt(x); }
    MPTUNE_NARROWLY
    MPTUNE_ROUGHLY_IN_HALF(rsqrt, coarse_rsqrt(x))
};

#undef MPTUNE_HOST_FUNCTION
#undef MPTUNE_HOST_ROUGH_FUNCTION
#undef MPTUNE_HOST_CIRCULAR_FUNCTION
#undef MPTUNE_HOST_LIBRARY_FUNCTION
#undef MPTUNE_HOST_EXACT_FUNCTION
#undef MPTUNE_ACCURATELY
#undef MPTUNE_QUICKLY
#undef MPTUNE_COARSELY
#undef MPTUNE_NARROWLY
#undef MPTUNE_IN_HALF
#undef MPTUNE_ROUGHLY_IN_HALF
#undef MPTUNE_EXACTLY_IN_HALF

#define MPTUNE_HOST_FUNCTION2(name, quick)                                                                  \
    struct name##_function {                                                                                \
        template <class T>                                                                                  \
        static MPTUNE_INLINE T accurately(T x, T y) { return static_cast<T>(library::name(x, y)); }         \
        MPTUNE_LAZY static MPTUNE_INLINE float quickly(float x, float y) { return quick; }                              \
    };
MPTUNE_HOST_FUNCTION2(pow, quick_pow(x, y))
MPTUNE_HOST_FUNCTION2(atan2, quick_atan2(x, y))
MPTUNE_HOST_FUNCTION2(hypot, __builtin_sqrtf(x * x + y * y))
MPTUNE_HOST_FUNCTION2(rhypot, 1.0f / __builtin_sqrtf(x * x + y * y))
#undef MPTUNE_HOST_FUNCTION2
#define MPTUNE_HOST_EXACT_FUNCTION2(name)                                                                   \
    struct name##_function {                                                                                \
        static MPTUNE_INLINE double accurately(double x, double y) { return __builtin_##name(x, y); }       \
        static MPTUNE_INLINE float accurately(float x, float y) { return __builtin_##name##f(x, y); }       \
        static MPTUNE_INLINE float quickly(float x, float y) { return __builtin_##name##f(x, y); }          \
    };
MPTUNE_HOST_EXACT_FUNCTION2(fmod)
MPTUNE_HOST_EXACT_FUNCTION2(remainder)
MPTUNE_HOST_EXACT_FUNCTION2(copysign)
#undef MPTUNE_HOST_EXACT_FUNCTION2
struct fdim_function {
    template <class T>
    static MPTUNE_INLINE T accurately(T x, T y) {
        // NaN where one of them is.
        return x <= y ? T(0) : x - y;
    }
    MPTUNE_LAZY static MPTUNE_INLINE float quickly(float x, float y) { return accurately(x, y); }
};

MPTUNE_INLINE double scaled(double x, int exponent) {
    return __builtin_ldexp(x, exponent);
}

}  // namespace detail
}  // namespace mp

#endif
