// The mathematical functions on the host.

#if defined(MPTUNE_HOST)

namespace mp {
namespace detail {

#define MPTUNE_LIBRARY_FUNCTION(name)                                                           \
    struct name##_function : function_defaults<name##_function> {                               \
        static MPTUNE_INLINE double accurately(double x) { return __builtin_##name(x); }        \
        static MPTUNE_INLINE float accurately(float x) { return __builtin_##name##f(x); }       \
    };
#define MPTUNE_ALL_LIBRARY_FUNCTIONS(one) \
    one(exp) one(exp2) one(log) one(log2) one(log10) one(sin) one(cos) one(tan) one(asin) one(acos)    \
    one(atan) one(sinh) one(cosh) one(tanh) one(sqrt) one(cbrt) one(erf) one(erfc)          \
    one(fabs) one(floor) one(ceil) one(round) one(rint) one(trunc) 
MPTUNE_ALL_LIBRARY_FUNCTIONS(MPTUNE_LIBRARY_FUNCTION)
struct rsqrt_function : function_defaults<rsqrt_function> {
    static MPTUNE_INLINE double accurately(double x) { return 1.0 / __builtin_sqrt(x); }
    static MPTUNE_INLINE float accurately(float x) { return 1.0f / __builtin_sqrtf(x); }
};
#define MPTUNE_LIBRARY_FUNCTION2(name)                                                                     \
    struct name##_function {                                                                               \
        static MPTUNE_INLINE double accurately(double x, double y) { return __builtin_##name(x, y); }      \
        static MPTUNE_INLINE float accurately(float x, float y) { return __builtin_##name##f(x, y); }      \
        static MPTUNE_INLINE float quickly(float x, float y) { return __builtin_##name##f(x, y); }         \
    };
MPTUNE_LIBRARY_FUNCTION2(pow)
MPTUNE_LIBRARY_FUNCTION2(atan2)
MPTUNE_LIBRARY_FUNCTION2(hypot)
MPTUNE_LIBRARY_FUNCTION2(fmod)

}  // namespace detail
}  // namespace mp

#endif
