// The mathematical functions on a GPU: what CUDA and HIP have built in, and their intrinsics for the fast policy.

#if defined(MPTUNE_GPU)

namespace mp {
namespace detail {

// A function missing in the float or double library of a runtime compiler does not exist here either.
#define MPTUNE_DEVICE_FUNCTION(name)                                                            \
    struct name##_function : function_defaults<name##_function> {                               \
        static MPTUNE_INLINE double accurately(double x) { return ::name(x); }                  \
        static MPTUNE_INLINE float accurately(float x) { return ::name##f(x); }                 \
    };
#define MPTUNE_DEVICE_FAST_FUNCTION(name, intrinsic)                                            \
    struct name##_function : function_defaults<name##_function> {                               \
        static MPTUNE_INLINE double accurately(double x) { return ::name(x); }                  \
        static MPTUNE_INLINE float accurately(float x) { return ::name##f(x); }                 \
        static MPTUNE_INLINE float quickly(float x) { return intrinsic; }                       \
    };

#if defined(MPTUNE_CUDA)
#define MPTUNE_PTX_FUNCTION(name, instruction)      \
    MPTUNE_INLINE float name(float x) {             \
        float y;                                    \
        asm(instruction " %0, %1;" : "=f"(y) : "f"(x)); \
        return y;                                   \
    }
MPTUNE_PTX_FUNCTION(quick_exp2, "ex2.approx.ftz.f32")
MPTUNE_PTX_FUNCTION(quick_sqrt, "sqrt.approx.ftz.f32")
MPTUNE_PTX_FUNCTION(quick_rsqrt, "rsqrt.approx.ftz.f32")
MPTUNE_PTX_FUNCTION(rough_tanh, "tanh.approx.f32")
#undef MPTUNE_PTX_FUNCTION
MPTUNE_INLINE float quick_divide(float a, float b) {
    return __fdividef(a, b);
}
#else
MPTUNE_INLINE float quick_exp2(float x) {
    return ::exp2f(x);
}
MPTUNE_INLINE float quick_sqrt(float x) {
    return __builtin_amdgcn_sqrtf(x);
}
MPTUNE_INLINE float quick_rsqrt(float x) {
    return __builtin_amdgcn_rsqf(x);
}
MPTUNE_INLINE float quick_divide(float a, float b) {
    return a * __builtin_amdgcn_rcpf(b);
}
#endif
MPTUNE_INLINE float quick_tanh(float x) {
    const float e = __expf(-2.0f * absolute(x));
    return ::copysignf(quick_divide(1.0f - e, 1.0f + e), x);
}

MPTUNE_DEVICE_FAST_FUNCTION(log, __logf(x))
MPTUNE_DEVICE_FAST_FUNCTION(log2, __log2f(x))
MPTUNE_DEVICE_FAST_FUNCTION(log10, __log10f(x))
MPTUNE_DEVICE_FAST_FUNCTION(sin, __sinf(x))
MPTUNE_DEVICE_FAST_FUNCTION(cos, __cosf(x))
MPTUNE_DEVICE_FAST_FUNCTION(tan, quick_divide(__sinf(x), __cosf(x)))
MPTUNE_DEVICE_FAST_FUNCTION(sinpi, __sinf(0x1.921fb6p1f * x))
MPTUNE_DEVICE_FAST_FUNCTION(cospi, __cosf(0x1.921fb6p1f * x))
MPTUNE_DEVICE_FAST_FUNCTION(sinh, 0.5f * (__expf(x) - __expf(-x)))
MPTUNE_DEVICE_FAST_FUNCTION(cosh, 0.5f * (__expf(x) + __expf(-x)))
MPTUNE_DEVICE_FAST_FUNCTION(exp10, __exp10f(x))
MPTUNE_DEVICE_FUNCTION(expm1)
MPTUNE_DEVICE_FUNCTION(log1p)
MPTUNE_DEVICE_FUNCTION(asinh)
MPTUNE_DEVICE_FUNCTION(acosh)
MPTUNE_DEVICE_FUNCTION(atanh)
MPTUNE_DEVICE_FUNCTION(rcbrt)
MPTUNE_DEVICE_FUNCTION(normcdf)
MPTUNE_DEVICE_FUNCTION(tgamma)
MPTUNE_DEVICE_FUNCTION(lgamma)
MPTUNE_DEVICE_FUNCTION(nearbyint)
MPTUNE_DEVICE_FUNCTION(asin)
MPTUNE_DEVICE_FUNCTION(acos)
MPTUNE_DEVICE_FUNCTION(atan)
MPTUNE_DEVICE_FUNCTION(cbrt)
MPTUNE_DEVICE_FUNCTION(erf)
MPTUNE_DEVICE_FUNCTION(erfc)
MPTUNE_DEVICE_FUNCTION(fabs)
MPTUNE_DEVICE_FUNCTION(floor)
MPTUNE_DEVICE_FUNCTION(ceil)
MPTUNE_DEVICE_FUNCTION(round)
MPTUNE_DEVICE_FUNCTION(rint)
MPTUNE_DEVICE_FUNCTION(trunc)

// The instructions take a subnormal number for zero, which no half is in float; for these they are good enough.
#define MPTUNE_DEVICE_ROOT(name)                                                                \
    struct name##_function : function_defaults<name##_function> {                               \
        static MPTUNE_INLINE double accurately(double x) { return ::name(x); }                  \
        static MPTUNE_INLINE float accurately(float x) { return ::name##f(x); }                 \
        static MPTUNE_INLINE float quickly(float x) { return quick_##name(x); }                 \
        template <class T>                                                                      \
        static MPTUNE_INLINE float narrowly(float x) {                                          \
            if constexpr (kind_of<T> == kind::fp16) return quickly(x);                          \
            else return accurately(x);                                                          \
        }                                                                                       \
    };
MPTUNE_DEVICE_ROOT(sqrt)
MPTUNE_DEVICE_ROOT(rsqrt)
#undef MPTUNE_DEVICE_ROOT

// Sine and cosine of half turns, which reduce the angle once for both: for results of a type under a policy, unless there
// are instructions for each; and the type that these are computed in.
template <class T, policy P>
constexpr bool have_one_reduction = P == policy::accurate || kind_of<T> == kind::fp64 ||
                                    (P == policy::fast && kind_of<T> != kind::fp32);
template <class T>
using wide_type = choose_t<kind_of<T> == kind::fp64, double, float>;
MPTUNE_INLINE void sine_and_cosine_of_half_turns(double x, double* sine, double* cosine) {
    ::sincospi(x, sine, cosine);
}
MPTUNE_INLINE void sine_and_cosine_of_half_turns(float x, float* sine, float* cosine) {
    ::sincospif(x, sine, cosine);
}

// The intrinsic's error, a few units in the last place of float, is far below half a unit of fp16 or bf16.
struct exp_function : function_defaults<exp_function> {
    static MPTUNE_INLINE double accurately(double x) { return ::exp(x); }
    static MPTUNE_INLINE float accurately(float x) { return ::expf(x); }
    static MPTUNE_INLINE float quickly(float x) { return __expf(x); }
    template <class T>
    static MPTUNE_INLINE float narrowly(float x) {
        return __expf(x);
    }
#if defined(MPTUNE_CUDA)
    static MPTUNE_INLINE half roughly(half x);
    static MPTUNE_INLINE bfloat16 roughly(bfloat16 x);
#endif
};
struct exp2_function : function_defaults<exp2_function> {
    static MPTUNE_INLINE double accurately(double x) { return ::exp2(x); }
    static MPTUNE_INLINE float accurately(float x) { return ::exp2f(x); }
    static MPTUNE_INLINE float quickly(float x) { return quick_exp2(x); }
    template <class T>
    static MPTUNE_INLINE float narrowly(float x) {
        return quick_exp2(x);
    }
#if defined(MPTUNE_CUDA)
    static MPTUNE_INLINE half roughly(half x) {
        half y;
        asm("ex2.approx.f16 %0, %1;" : "=h"(y.bits) : "h"(x.bits));
        return y;
    }
    static MPTUNE_INLINE bfloat16 roughly(bfloat16 x) {
#if __CUDA_ARCH__ >= 900
        bfloat16 y;
        asm("ex2.approx.ftz.bf16 %0, %1;" : "=h"(y.bits) : "h"(x.bits));
        return y;
#else
        return bfloat16(quick_exp2(static_cast<float>(x)));
#endif
    }
#endif
};
struct tanh_function : function_defaults<tanh_function> {
    static MPTUNE_INLINE double accurately(double x) { return ::tanh(x); }
    static MPTUNE_INLINE float accurately(float x) { return ::tanhf(x); }
    static MPTUNE_INLINE float quickly(float x) { return quick_tanh(x); }
#if defined(MPTUNE_CUDA)
    static MPTUNE_INLINE half roughly(half x) {
        half y;
        asm("tanh.approx.f16 %0, %1;" : "=h"(y.bits) : "h"(x.bits));
        return y;
    }
    static MPTUNE_INLINE bfloat16 roughly(bfloat16 x) { return bfloat16(rough_tanh(static_cast<float>(x))); }
#endif
};

#if defined(MPTUNE_CUDA)
template <>
constexpr bool is_rough_itself<exp_function> = true;
template <>
constexpr bool is_rough_itself<exp2_function> = true;
template <>
constexpr bool is_rough_itself<tanh_function> = true;
// The product with log2(e) is rounded to the type, which is what makes this rough.
MPTUNE_INLINE half exp_function::roughly(half x) {
    return exp2_function::roughly(multiply(x, half(1.44269504f)));
}
MPTUNE_INLINE bfloat16 exp_function::roughly(bfloat16 x) {
    return bfloat16(__expf(static_cast<float>(x)));
}
#endif

#undef MPTUNE_DEVICE_FAST_FUNCTION
#undef MPTUNE_DEVICE_FUNCTION

#define MPTUNE_DEVICE_FUNCTION2(name, quick)                                                           \
    struct name##_function {                                                                           \
        static MPTUNE_INLINE double accurately(double x, double y) { return ::name(x, y); }            \
        static MPTUNE_INLINE float accurately(float x, float y) { return ::name##f(x, y); }            \
        static MPTUNE_INLINE float quickly(float x, float y) { return quick; }                         \
    };
MPTUNE_DEVICE_FUNCTION2(pow, __powf(x, y))
MPTUNE_DEVICE_FUNCTION2(atan2, ::atan2f(x, y))
MPTUNE_DEVICE_FUNCTION2(hypot, quick_sqrt(x * x + y * y))
MPTUNE_DEVICE_FUNCTION2(rhypot, quick_rsqrt(x * x + y * y))
MPTUNE_DEVICE_FUNCTION2(fmod, ::fmodf(x, y))
MPTUNE_DEVICE_FUNCTION2(remainder, ::remainderf(x, y))
MPTUNE_DEVICE_FUNCTION2(fdim, ::fdimf(x, y))
MPTUNE_DEVICE_FUNCTION2(copysign, ::copysignf(x, y))
#undef MPTUNE_DEVICE_FUNCTION2

MPTUNE_INLINE double scaled(double x, int exponent) {
    return ::ldexp(x, exponent);
}

}  // namespace detail
}  // namespace mp

#endif
