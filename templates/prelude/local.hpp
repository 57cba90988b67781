// local<T>: the type of a variable that holds values of T. On a GPU, and where the processor computes in T, it is T.
//
// Elsewhere on the host it is a float that only takes values of T, because every operation rounds its result to T. It
// gives the same results as T does. But nothing is packed into 16 bits and unpacked again between two operations,
// which is two thirds of the instructions and so of the compile time; and values of one size are what g++ needs to
// vectorise a loop around another loop.

namespace mp {
namespace detail {

template <class T>
constexpr bool is_rounded = false;
template <class T>
struct local_type {
    using type = T;
};

}  // namespace detail

template <class T>
using local = typename detail::local_type<T>::type;

#if !defined(MPTUNE_GPU)
namespace detail {

MPTUNE_INLINE float round_to(half, float x) {
    // Added to a number 13 binary places larger, x loses what half does not hold. That number is half-way between two
    // powers of two, so that the sum has its exponent whatever the sign of x, and large enough for subnormals.
    const int exponent = bits_as<int>(x) & 0x7f800000;
    const int from_smallest = exponent > (127 - 14) << 23 ? exponent : (127 - 14) << 23;
    const int bounded = from_smallest < (127 + 16) << 23 ? from_smallest : (127 + 16) << 23;
    const float magic = bits_as<float>(bounded + (13 << 23) + 0x400000);
    const float nearest = (x + magic) - magic;
    // From 2^16 on this overflows.
    const float finite = nearest * 0x1p112f * 0x1p-112f;
    return bits_as<float>(bits_as<int>(finite) | (bits_as<int>(x) & static_cast<int>(0x80000000u)));
}
MPTUNE_INLINE float round_to(bfloat16, float x) {
    return float_of_bfloat16_bits(bfloat16_bits_of(x));
}
template <class T>
MPTUNE_INLINE float round_to(T type, double x) {
    return round_to(type, round_to_odd(x));
}

}  // namespace detail

// A value of T in a float.
template <class T>
struct rounded {
    float value;
    rounded() = default;
    MPTUNE_COPIED_BY_MEMBER(rounded, value)
    template <class U, class = detail::enable_if_t<detail::is_number<U> && !detail::same<U, rounded>>>
    MPTUNE_INLINE rounded(U x) {
        if constexpr (detail::same<U, T>) value = static_cast<float>(x);
        else value = detail::round_to(T(), detail::source(x));
    }
    MPTUNE_INLINE operator float() const { return value; }
    MPTUNE_INLINE auto to_bits() const { return static_cast<T>(value).to_bits(); }
};

namespace detail {

template <class T>
constexpr kind kind_of<rounded<T>> = kind_of<T>;
template <class T>
constexpr bool is_rounded<rounded<T>> = true;
template <>
struct local_type<bfloat16> {
    using type = rounded<bfloat16>;
};
#if !defined(MPTUNE_HALF_ARITHMETIC)
template <>
struct local_type<half> {
    using type = rounded<half>;
};
#endif

}  // namespace detail

// Rounding the float result is exact, as for T itself.
#define MPTUNE_ROUNDED_OPERATOR(op)                                            \
    template <class T>                                                         \
    MPTUNE_INLINE rounded<T> operator op(rounded<T> a, rounded<T> b) {         \
        return a.value op b.value;                                             \
    }
MPTUNE_ROUNDED_OPERATOR(+)
MPTUNE_ROUNDED_OPERATOR(-)
MPTUNE_ROUNDED_OPERATOR(*)
MPTUNE_ROUNDED_OPERATOR(/)
#undef MPTUNE_ROUNDED_OPERATOR

template <class T>
MPTUNE_INLINE rounded<T> operator-(rounded<T> a) {
    a.value = -a.value;
    return a;
}

namespace detail {

template <class T>
MPTUNE_INLINE rounded<T> fused(rounded<T> a, rounded<T> b, rounded<T> c) {
    return sum_to_odd(a.value * b.value, c.value);
}

}  // namespace detail
#endif

// How many neighbouring elements a thread takes: usually `Elements`. `OfBlock` is how many its whole block takes, and T is
// the widest type it computes in. A processor that computes in fp16 has 32 of them in a vector: there the first threads of a
// block take the elements of the others too, whose turn is then over at once.
namespace detail {
template <class T>
#if defined(MPTUNE_HALF_VECTORS)
constexpr int lanes = same<T, half> ? 32 : 1;
#else
constexpr int lanes = 1;
#endif
}  // namespace detail
template <class T, int Elements, int OfBlock>
constexpr int joined = Elements >= detail::lanes<T> ? Elements : OfBlock < detail::lanes<T> ? OfBlock : detail::lanes<T>;

}  // namespace mp

using mp::joined;
using mp::local;
