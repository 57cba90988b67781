// Mathematical functions under a policy: mp::exp<mp::fast>(x), or exp(x) for the accurate one. The result has the
// type of the argument (of the wider one where there are two); integers are computed in double, fp8 in float.
//
//   accurate  the best there is in the type
//   fast      fp32: intrinsics, or shorter polynomials on the host; the other types as accurate
//   approx    fp16 and bf16: rough, to about the last bit or two of fp16; the other types as fast
//
// fp16 and bf16 are computed in float and rounded once, except where approx has an instruction of its own.

namespace mp {
namespace detail {

template <class T>
using math_type = choose_t<is_integer<T>, double, choose_t<kind_of<T> == kind::fp8, float, T>>;
template <class A, class B>
using math_type2 = math_type<promoted<A, B>>;

template <class F, policy P>
MPTUNE_INLINE double evaluate(double x) {
    return F::accurately(x);
}
template <class F, policy P>
MPTUNE_INLINE float evaluate(float x) {
    if constexpr (P == policy::accurate) return F::accurately(x);
    else return F::quickly(x);
}
template <class F, policy P, class T, class = enable_if_t<is_own<T>>>
MPTUNE_INLINE T evaluate(T x) {
    if constexpr (P == policy::approx) return F::roughly(x);
    else return F::rounded_once(x);
}

template <class F, policy P>
MPTUNE_INLINE literal evaluate(literal x) {
    return literal(evaluate<F, P>(x.value));
}

// Of every element of a vector. Results in 16 bits are left in float where a GPU rounds two of them at a time.
template <class F, policy P, class T, int N>
MPTUNE_INLINE vec<math_type<T>, N> evaluate_each(const vec<T, N>& x) {
    using R = math_type<T>;
#if defined(MPTUNE_CUDA)
    if constexpr (is_own<R> && (P != policy::approx || !is_rough_itself<F>)) {
        vec<float, N> wide;
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) {
            const float one = static_cast<float>(x.data[i]);
            if constexpr (P == policy::approx) wide.data[i] = F::coarsely(one);
            else wide.data[i] = F::template narrowly<R>(one);
        }
        return vec<R, N>(wide);
    } else
#endif
    {
        vec<R, N> result;
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) result.data[i] = evaluate<F, P>(static_cast<R>(x.data[i]));
        return result;
    }
}

template <class F, policy P>
MPTUNE_INLINE double evaluate(double x, double y) {
    return F::accurately(x, y);
}
template <class F, policy P>
MPTUNE_INLINE float evaluate(float x, float y) {
    if constexpr (P == policy::accurate) return F::accurately(x, y);
    else return F::quickly(x, y);
}
template <class F, policy P, class T, class = enable_if_t<is_own<T>>>
MPTUNE_INLINE T evaluate(T x, T y) {
    return T(evaluate<F, P>(static_cast<float>(x), static_cast<float>(y)));
}
template <class F, policy P>
MPTUNE_INLINE literal evaluate(literal x, literal y) {
    return literal(evaluate<F, P>(x.value, y.value));
}

}  // namespace detail

#define MPTUNE_MATH(name)                                                                              \
    template <policy P = policy::accurate, class T, class = detail::enable_if_t<detail::is_number<T>>> \
    MPTUNE_INLINE detail::math_type<T> name(T x) {                                                     \
        return detail::evaluate<detail::name##_function, P>(static_cast<detail::math_type<T>>(x));     \
    }                                                                                                  \
    template <policy P = policy::accurate, class T, int N>                                             \
    MPTUNE_INLINE vec<detail::math_type<T>, N> name(const vec<T, N>& x) {                              \
        return detail::evaluate_each<detail::name##_function, P>(x);                                   \
    }
#define MPTUNE_MATH2(name)                                                                             \
    template <policy P = policy::accurate, class A, class B, class R = detail::math_type2<A, B>>       \
    MPTUNE_INLINE R name(A a, B b) {                                                                   \
        return detail::evaluate<detail::name##_function, P>(static_cast<R>(a), static_cast<R>(b));     \
    }                                                                                                  \
    template <policy P = policy::accurate, class A, class B, int N>                                    \
    MPTUNE_INLINE vec<detail::math_type2<A, B>, N> name(const vec<A, N>& a, const vec<B, N>& b) {      \
        vec<detail::math_type2<A, B>, N> result;                                                       \
        MPTUNE_UNROLL                                                                                  \
        for (int i = 0; i < N; ++i) result.data[i] = name<P>(a.data[i], b.data[i]);                    \
        return result;                                                                                 \
    }                                                                                                  \
    template <policy P = policy::accurate, class A, class B, int N, class = detail::enable_if_t<detail::is_number<B>>> \
    MPTUNE_INLINE vec<detail::math_type2<A, B>, N> name(const vec<A, N>& a, B b) {                     \
        return name<P>(a, vec<B, N>(b));                                                               \
    }

#define MPTUNE_ALL_MATH(one, two)                                                                      \
    one(exp) one(exp2) one(exp10) one(expm1) one(log) one(log2) one(log10) one(log1p)                  \
    one(sin) one(cos) one(tan) one(asin) one(acos) one(atan) one(sinpi) one(cospi)                     \
    one(sinh) one(cosh) one(tanh) one(asinh) one(acosh) one(atanh)                                     \
    one(sqrt) one(rsqrt) one(cbrt) one(rcbrt) one(erf) one(erfc) one(normcdf) one(tgamma) one(lgamma)  \
    one(fabs) one(floor) one(ceil) one(round) one(rint) one(nearbyint) one(trunc)                      \
    two(pow) two(atan2) two(hypot) two(rhypot) two(fmod) two(remainder) two(fdim) two(copysign)
MPTUNE_ALL_MATH(MPTUNE_MATH, MPTUNE_MATH2)

// Minimum and maximum in the wider type of the two. The f-versions are of floating-point numbers, and prefer a number to
// NaN: a GPU has instructions for that, and elsewhere it is two choices, of which vectors can be made.
#define MPTUNE_EXTREMUM(name, op)                                                                      \
    namespace detail {                                                                                 \
    template <class T>                                                                                 \
    MPTUNE_INLINE T f##name(T x, T y) {                                                                \
        const T chosen = y op x ? y : x;                                                               \
        return x == x ? chosen : y;                                                                    \
    }                                                                                                  \
    MPTUNE_DEVICE_EXTREMUM(f##name)                                                                    \
    }                                                                                                  \
    template <class A, class B, class R = promoted<A, B>>                                              \
    MPTUNE_INLINE R name(A a, B b) {                                                                   \
        const R x = static_cast<R>(a), y = static_cast<R>(b);                                          \
        return y op x ? y : x;                                                                         \
    }                                                                                                  \
    template <class A, class B, class R = detail::math_type2<A, B>>                                    \
    MPTUNE_INLINE R f##name(A a, B b) {                                                                \
        return detail::f##name(static_cast<R>(a), static_cast<R>(b));                                  \
    }
#if !defined(MPTUNE_GPU)
#define MPTUNE_DEVICE_EXTREMUM(name)
#else
#define MPTUNE_DEVICE_EXTREMUM(name)                                                                   \
    MPTUNE_INLINE double name(double x, double y) { return ::name(x, y); }                             \
    MPTUNE_INLINE float name(float x, float y) { return ::name##f(x, y); }
#endif
MPTUNE_EXTREMUM(min, <)
MPTUNE_EXTREMUM(max, >)
#undef MPTUNE_EXTREMUM
#undef MPTUNE_DEVICE_EXTREMUM

template <class T, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE T abs(T x) {
    return x < T(0) ? static_cast<T>(-x) : (x == T(0) ? T(0) : static_cast<T>(x));
}
template <class T, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE bool isnan(T x) {
    return !(x == x);
}
template <class T, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE bool isfinite(T x) {
    return x - x == x - x;
}
template <class T, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE bool isinf(T x) {
    return x == x && !(x - x == x - x);
}
template <class T, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE bool signbit(T x) {
    if constexpr (detail::kind_of<T> == detail::kind::fp64) {
        return detail::bits_as<unsigned long long>(static_cast<double>(x)) >> 63;
    } else {
        return detail::bits_as<unsigned>(static_cast<float>(x)) >> 31;
    }
}

// The sine and the cosine of x, or of x times pi.
template <policy P = policy::accurate, class T, class S, class C>
MPTUNE_INLINE void sincos(T x, S* sine, C* cosine) {
    *sine = static_cast<detail::bare_t<S>>(sin<P>(x));
    *cosine = static_cast<detail::bare_t<C>>(cos<P>(x));
}
template <policy P = policy::accurate, class T, class S, class C, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE void sincospi(T x, S* sine, C* cosine) {
#if defined(MPTUNE_GPU)
    using R = detail::math_type<T>;
    if constexpr (detail::have_one_reduction<R, P>) {
        detail::wide_type<R> s, c;
        detail::sine_and_cosine_of_half_turns(static_cast<detail::wide_type<R>>(x), &s, &c);
        *sine = static_cast<S>(static_cast<R>(s));
        *cosine = static_cast<C>(static_cast<R>(c));
    } else
#endif
    {
        *sine = static_cast<detail::bare_t<S>>(sinpi<P>(x));
        *cosine = static_cast<detail::bare_t<C>>(cospi<P>(x));
    }
}
template <policy P = policy::accurate, class T, class S, class C, int N>
MPTUNE_INLINE void sincospi(const vec<T, N>& x, vec<S, N>* sine, vec<C, N>* cosine) {
#if defined(MPTUNE_GPU)
    using R = detail::math_type<T>;
    if constexpr (detail::have_one_reduction<R, P>) {
        vec<detail::wide_type<R>, N> s, c;
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i)
            detail::sine_and_cosine_of_half_turns(static_cast<detail::wide_type<R>>(x.data[i]), &s.data[i], &c.data[i]);
        *sine = vec<S, N>(vec<R, N>(s));
        *cosine = vec<C, N>(vec<R, N>(c));
    } else
#endif
    {
        *sine = vec<S, N>(sinpi<P>(x));
        *cosine = vec<C, N>(cospi<P>(x));
    }
}

// sincos of an angle of a few turns at most, to a unit in the last place of the result or of 2^-16 if that is larger (in double
// on a GPU to two, on the host as sincos): without the way that huge angles need, for which a GPU keeps an array in memory.
template <policy P = policy::accurate, class T, class S, class C>
MPTUNE_INLINE void sincos_bounded(T x, S* sine, C* cosine) {
    using R = detail::math_type<T>;
#if defined(MPTUNE_HOST)
    constexpr bool is_short_already = detail::kind_of<R> == detail::kind::fp64;
#else
    constexpr bool is_short_already = false;
#endif
    if constexpr (P != policy::accurate || is_short_already) {
        sincos<P>(x, sine, cosine);
    } else {
        // Half turns, and the angle that is lost where these are rounded.
        using W = promoted<R, float>;
        constexpr double pi = 3.141592653589793, rest_of_pi = 1.2246467991473532e-16;
        const W angle = x, high = pi, low = (pi - static_cast<double>(high)) + rest_of_pi;
        const W half_turns = angle * static_cast<W>(0.3183098861837907);
        const W lost = fma(-low, half_turns, fma(-high, half_turns, angle));
        W s, c;
        sincospi<P>(half_turns, &s, &c);
        *sine = static_cast<detail::bare_t<S>>(static_cast<R>(fma(lost, c, s)));
        *cosine = static_cast<detail::bare_t<C>>(static_cast<R>(fma(-lost, s, c)));
    }
}

// The length of a vector of three or four numbers, and one over it.
template <policy P = policy::accurate, class A, class B, class C>
MPTUNE_INLINE auto norm3d(A a, B b, C c) {
    return hypot<P>(hypot<P>(a, b), c);
}
template <policy P = policy::accurate, class A, class B, class C, class D>
MPTUNE_INLINE auto norm4d(A a, B b, C c, D d) {
    return hypot<P>(hypot<P>(a, b), hypot<P>(c, d));
}
template <policy P = policy::accurate, class A, class B, class C>
MPTUNE_INLINE auto rnorm3d(A a, B b, C c) {
    return rhypot<P>(hypot<P>(a, b), c);
}
template <policy P = policy::accurate, class A, class B, class C, class D>
MPTUNE_INLINE auto rnorm4d(A a, B b, C c, D d) {
    return rhypot<P>(hypot<P>(a, b), hypot<P>(c, d));
}

// x times a power of two.
template <policy P = policy::accurate, class T, class = detail::enable_if_t<detail::is_number<T>>>
MPTUNE_INLINE detail::math_type<T> ldexp(T x, int exponent) {
    // Exact in double for all narrower types.
    return static_cast<detail::math_type<T>>(detail::scaled(static_cast<double>(x), exponent));
}
template <policy P = policy::accurate, class T>
MPTUNE_INLINE auto scalbn(T x, int exponent) {
    return ldexp(x, exponent);
}

// What is in front of the point goes to *whole; what is behind it is returned, both with the sign of x.
template <policy P = policy::accurate, class T, class W>
MPTUNE_INLINE detail::math_type<T> modf(T x, W* whole) {
    const detail::math_type<T> number = x, cut = trunc(number);
    *whole = static_cast<W>(cut);
    return copysign(isinf(number) ? detail::math_type<T>(0) : detail::math_type<T>(number - cut), number);
}

#define MPTUNE_TO_INTEGER(name, rounding, type)                                                       \
    template <policy P = policy::accurate, class T, class = detail::enable_if_t<detail::is_number<T>>> \
    MPTUNE_INLINE type name(T x) {                                                                    \
        return static_cast<type>(rounding(x));                                                        \
    }
MPTUNE_TO_INTEGER(lround, round, long)
MPTUNE_TO_INTEGER(llround, round, long long)
MPTUNE_TO_INTEGER(lrint, rint, long)
MPTUNE_TO_INTEGER(llrint, rint, long long)
#undef MPTUNE_TO_INTEGER

}  // namespace mp

// Plain names: for the prelude's own types they are found by their arguments, for float and double a GPU has them
// built in (hiprtc as templates that would clash with these).
#define MPTUNE_GLOBAL(name) using mp::name;
#define MPTUNE_NOT_GLOBAL(name)
#if defined(MPTUNE_HIP)
MPTUNE_ALL_MATH(MPTUNE_GLOBAL, MPTUNE_NOT_GLOBAL)
#else
MPTUNE_ALL_MATH(MPTUNE_GLOBAL, MPTUNE_GLOBAL)
using mp::abs;
using mp::fmax;
using mp::fmin;
using mp::isfinite;
using mp::isinf;
using mp::isnan;
using mp::max;
using mp::min;
using mp::signbit;
#endif
#undef MPTUNE_GLOBAL
#undef MPTUNE_NOT_GLOBAL
#undef MPTUNE_MATH
#undef MPTUNE_MATH2
