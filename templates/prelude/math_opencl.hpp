// The mathematical functions in OpenCL: its own, and its native ones for the fast policy.

#if defined(MPTUNE_OPENCL)

namespace mp {
namespace detail {

#define MPTUNE_OPENCL_FUNCTION(name)                                                    \
    struct name##_function : function_defaults<name##_function> {                       \
        static MPTUNE_INLINE double accurately(double x) { return ::name(x); }          \
        static MPTUNE_INLINE float accurately(float x) { return ::name(x); }            \
    };
#define MPTUNE_OPENCL_FAST_FUNCTION(name)                                               \
    struct name##_function : function_defaults<name##_function> {                       \
        static MPTUNE_INLINE double accurately(double x) { return ::name(x); }          \
        static MPTUNE_INLINE float accurately(float x) { return ::name(x); }            \
        static MPTUNE_INLINE float quickly(float x) { return ::native_##name(x); }      \
    };
MPTUNE_OPENCL_FAST_FUNCTION(exp)
MPTUNE_OPENCL_FAST_FUNCTION(exp2)
MPTUNE_OPENCL_FAST_FUNCTION(exp10)
MPTUNE_OPENCL_FAST_FUNCTION(log)
MPTUNE_OPENCL_FAST_FUNCTION(log2)
MPTUNE_OPENCL_FAST_FUNCTION(log10)
MPTUNE_OPENCL_FAST_FUNCTION(sin)
MPTUNE_OPENCL_FAST_FUNCTION(cos)
MPTUNE_OPENCL_FAST_FUNCTION(tan)
MPTUNE_OPENCL_FAST_FUNCTION(sqrt)
MPTUNE_OPENCL_FAST_FUNCTION(rsqrt)
MPTUNE_OPENCL_FUNCTION(expm1)
MPTUNE_OPENCL_FUNCTION(log1p)
MPTUNE_OPENCL_FUNCTION(sinpi)
MPTUNE_OPENCL_FUNCTION(cospi)
MPTUNE_OPENCL_FUNCTION(sinh)
MPTUNE_OPENCL_FUNCTION(cosh)
MPTUNE_OPENCL_FUNCTION(tanh)
MPTUNE_OPENCL_FUNCTION(asinh)
MPTUNE_OPENCL_FUNCTION(acosh)
MPTUNE_OPENCL_FUNCTION(atanh)
MPTUNE_OPENCL_FUNCTION(asin)
MPTUNE_OPENCL_FUNCTION(acos)
MPTUNE_OPENCL_FUNCTION(atan)
MPTUNE_OPENCL_FUNCTION(cbrt)
MPTUNE_OPENCL_FUNCTION(erf)
MPTUNE_OPENCL_FUNCTION(erfc)
MPTUNE_OPENCL_FUNCTION(tgamma)
MPTUNE_OPENCL_FUNCTION(lgamma)
MPTUNE_OPENCL_FUNCTION(fabs)
MPTUNE_OPENCL_FUNCTION(floor)
MPTUNE_OPENCL_FUNCTION(ceil)
MPTUNE_OPENCL_FUNCTION(round)
MPTUNE_OPENCL_FUNCTION(rint)
MPTUNE_OPENCL_FUNCTION(trunc)
#undef MPTUNE_OPENCL_FAST_FUNCTION
#undef MPTUNE_OPENCL_FUNCTION

// Those it does not have, by those it has.
#define MPTUNE_OPENCL_FUNCTION(name, expression)                                        \
    struct name##_function : function_defaults<name##_function> {                       \
        template <class T>                                                              \
        static MPTUNE_INLINE T accurately(T x) {                                        \
            return expression;                                                          \
        }                                                                               \
    };
MPTUNE_OPENCL_FUNCTION(nearbyint, ::rint(x))
MPTUNE_OPENCL_FUNCTION(rcbrt, T(1) / ::cbrt(x))
MPTUNE_OPENCL_FUNCTION(normcdf, T(0.5) * ::erfc(x * T(-0.70710678118654752440)))
#undef MPTUNE_OPENCL_FUNCTION

#define MPTUNE_OPENCL_FUNCTION2(name, expression)                                       \
    struct name##_function {                                                            \
        template <class T>                                                              \
        static MPTUNE_INLINE T accurately(T x, T y) {                                   \
            return expression;                                                          \
        }                                                                               \
        static MPTUNE_INLINE float quickly(float x, float y) { return accurately(x, y); } \
    };
MPTUNE_OPENCL_FUNCTION2(pow, ::pow(x, y))
MPTUNE_OPENCL_FUNCTION2(atan2, ::atan2(x, y))
MPTUNE_OPENCL_FUNCTION2(hypot, ::hypot(x, y))
MPTUNE_OPENCL_FUNCTION2(rhypot, T(1) / ::hypot(x, y))
MPTUNE_OPENCL_FUNCTION2(fmod, ::fmod(x, y))
MPTUNE_OPENCL_FUNCTION2(remainder, ::remainder(x, y))
MPTUNE_OPENCL_FUNCTION2(fdim, ::fdim(x, y))
MPTUNE_OPENCL_FUNCTION2(copysign, ::copysign(x, y))
#undef MPTUNE_OPENCL_FUNCTION2

MPTUNE_INLINE double scaled(double x, int exponent) {
    return ::ldexp(x, exponent);
}

}  // namespace detail
}  // namespace mp

#endif
