// Mathematical functions under a policy: mp::exp<mp::fast>(x). The result has the type of the argument; integers
// are computed in double, fp8 in float.

namespace mp {
namespace detail {

template <class T>
using math_type = choose_t<is_integer<T>, double, choose_t<kind_of<T>::value == kind::fp8, float, T>>;

#define MPTUNE_BUILTIN_FUNCTION(name)                                                                  \
    struct name##_function {                                                                           \
        static MPTUNE_INLINE double accurately(double x) { return MPTUNE_BUILTIN(name)(x); }               \
        static MPTUNE_INLINE float accurately(float x) { return MPTUNE_BUILTIN(name##f)(x); }              \
    };
#define MPTUNE_MATH(name)                                                                              \
    template <policy P = policy::accurate, class T, class = detail::enable_if_t<detail::is_number<T>>> \
    MPTUNE_INLINE detail::math_type<T> name(T x) {                                                     \
        using R = detail::math_type<T>;                                                                \
        return detail::evaluate<detail::name##_function, P>(static_cast<R>(x));                        \
    }                                                                                                  \
    template <policy P = policy::accurate, class T, int N>                                             \
    MPTUNE_INLINE vec<detail::math_type<T>, N> name(const vec<T, N>& x) {                              \
        vec<detail::math_type<T>, N> result;                                                           \
        MPTUNE_UNROLL                                                                                  \
        for (int i = 0; i < N; ++i) result.data[i] = name<P>(x.data[i]);                               \
        return result;                                                                                 \
    }

template <class F, policy P>
MPTUNE_INLINE double evaluate(double x) {
    return F::accurately(x);
}
template <class F, policy P>
MPTUNE_INLINE float evaluate(float x) {
    return F::accurately(x);
}
template <class F, policy P>
MPTUNE_INLINE half evaluate(half x) {
    return F::accurately(static_cast<float>(x));
}
template <class F, policy P>
MPTUNE_INLINE bfloat16 evaluate(bfloat16 x) {
    return F::accurately(static_cast<float>(x));
}

#define MPTUNE_FUNCTIONS(define) \
    define(exp) define(exp2) define(log) define(log2) define(log10) define(sin) define(cos) define(tan) define(asin) \
    define(acos) define(atan) define(sinh) define(cosh) define(tanh) define(sqrt) define(cbrt) define(erf) define(erfc) \
    define(fabs) define(floor) define(ceil) define(round) define(trunc)
MPTUNE_FUNCTIONS(MPTUNE_BUILTIN_FUNCTION)

}  // namespace detail

MPTUNE_FUNCTIONS(MPTUNE_MATH)

}  // namespace mp
