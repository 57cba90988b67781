// 0.5_num: a number that takes the type of what it meets, where 0.5 is a double and makes its whole expression double.
//
// With a floating-point number it gives that number's type, with another literal, or an integer, a literal: those are
// computed in double, as ever in C++. It becomes any type where one is asked for. Nothing of it is left in the compiled
// code but the constant.

namespace mp {

struct literal {
    double value;

    literal() = default;
    constexpr MPTUNE_INLINE literal(const literal& other) : value(other.value) {}
    constexpr MPTUNE_INLINE literal& operator=(const literal& other) {
        value = other.value;
        return *this;
    }
    template <class T, detail::enable_if_t<detail::is_integer<T>, int> = 0>
    constexpr MPTUNE_INLINE literal(T x) : value(static_cast<double>(x)) {}
    template <class T, detail::enable_if_t<detail::is_built_in<T> && !detail::is_integer<T>, int> = 0>
    constexpr MPTUNE_INLINE explicit literal(T x) : value(static_cast<double>(x)) {}

    // The prelude's own types take a literal as they take any number.
    template <class T, detail::enable_if_t<detail::is_built_in<T>, int> = 0>
    constexpr MPTUNE_INLINE operator T() const {
        return static_cast<T>(value);
    }
};

// What a macro stands for, as a literal where it is a floating-point number.
template <class T, detail::enable_if_t<detail::is_built_in<T> && !detail::is_integer<T>, int> = 0>
constexpr MPTUNE_INLINE literal number(T x) {
    return literal(x);
}
template <class T, detail::enable_if_t<!detail::is_built_in<T> || detail::is_integer<T>, int> = 0>
constexpr MPTUNE_INLINE T number(T x) {
    return x;
}

namespace detail {

template <class A, class B>
constexpr bool has_literal = (same<A, literal> || same<B, literal>) && is_number<A> && is_number<B> &&
                             !is_compound<A> && !is_compound<B>;

// The type an operation of a T and a literal is computed in.
template <class T>
using met = choose_t<is_integer<T>, literal, choose_t<kind_of<T> == kind::fp8, float, T>>;
template <class A, class B>
using meeting = met<choose_t<same<A, literal>, B, A>>;

template <class T>
MPTUNE_INLINE T value_of(const T& x);

// What narrower types are rounded from.
MPTUNE_INLINE float source(literal x) {
    return round_to_odd(static_cast<double>(x.value));
}
MPTUNE_INLINE literal fused(literal a, literal b, literal c) {
    return literal(a.value * b.value + c.value);
}

}  // namespace detail

constexpr MPTUNE_INLINE literal operator+(literal a) {
    return a;
}
constexpr MPTUNE_INLINE literal operator-(literal a) {
    return literal(-a.value);
}

// With the prelude's own types the operators are those of arithmetic.hpp.
#define MPTUNE_LITERAL_OPERATOR(op)                                                                            \
    constexpr MPTUNE_INLINE literal operator op(literal a, literal b) { return literal(a.value op b.value); }  \
    template <class A, class B,                                                                                \
              class = detail::enable_if_t<detail::has_literal<A, B> && !detail::is_own<A> && !detail::is_own<B>>> \
    constexpr MPTUNE_INLINE detail::meeting<A, B> operator op(A a, B b) {                                      \
        using R = detail::meeting<A, B>;                                                                       \
        return static_cast<R>(a) op static_cast<R>(b);                                                         \
    }                                                                                                          \
    template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::is_own<T> && !detail::is_compound<T>>> \
    constexpr MPTUNE_INLINE T& operator op##=(T& a, literal b) {                                               \
        a = static_cast<detail::bare_t<T>>(a op b);                                                            \
        return a;                                                                                              \
    }
MPTUNE_LITERAL_OPERATOR(+)
MPTUNE_LITERAL_OPERATOR(-)
MPTUNE_LITERAL_OPERATOR(*)
MPTUNE_LITERAL_OPERATOR(/)
#undef MPTUNE_LITERAL_OPERATOR

#define MPTUNE_LITERAL_COMPARISON(op)                                                                          \
    constexpr MPTUNE_INLINE bool operator op(literal a, literal b) { return a.value op b.value; }              \
    template <class A, class B, detail::enable_if_t<detail::has_literal<A, B>, int> = 0>                       \
    constexpr MPTUNE_INLINE bool operator op(A a, B b) {                                                       \
        using R = detail::meeting<A, B>;                                                                       \
        return static_cast<R>(a) op static_cast<R>(b);                                                         \
    }
MPTUNE_LITERAL_COMPARISON(==)
MPTUNE_LITERAL_COMPARISON(!=)
MPTUNE_LITERAL_COMPARISON(<)
MPTUNE_LITERAL_COMPARISON(<=)
MPTUNE_LITERAL_COMPARISON(>)
MPTUNE_LITERAL_COMPARISON(>=)
#undef MPTUNE_LITERAL_COMPARISON

}  // namespace mp

// In a template, rendering writes `mp::literal(0.5)` for `0.5_num`. These are for headers that a template includes: where a
// long double has more digits than a double, one number in two thousand is off by its last bit.
constexpr MPTUNE_INLINE mp::literal operator""_num(long double x) {
    return mp::literal(static_cast<double>(x));
}
constexpr MPTUNE_INLINE mp::literal operator""_num(long unsigned long x) {  // of 128 bits in OpenCL
    return mp::literal(static_cast<double>(x));
}

// `condition ? a : b` in the wider type of the two, whichever that is; what is not chosen is not computed.
#define CHOICE(condition, a, b)                                                                         \
    ((condition) ? static_cast<mp::promoted<MPTUNE_TYPE_OF(a), MPTUNE_TYPE_OF(b)>>(a)                   \
                 : static_cast<mp::promoted<MPTUNE_TYPE_OF(a), MPTUNE_TYPE_OF(b)>>(b))
#define MPTUNE_TYPE_OF(expression) decltype(mp::detail::value_of(expression))

