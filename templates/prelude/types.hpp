// half, bfloat16, fp8_e4m3, fp8_e5m2: storage, conversions and mixed arithmetic.
//
// Every type converts to every other without a cast, rounding to nearest even. Arithmetic rounds each operation to
// the type of its result, which for mixed operands is the wider one:
//   double with anything          -> double
//   float with anything narrower  -> float
//   half with bfloat16            -> float      (neither contains the other)
//   fp8 with anything             -> float or wider (fp8 is for storage)
//   an integer with half/bfloat16 -> that type  (so that literals do not widen)
// Comparisons happen in float or wider.

// g++ copies a structure as a whole, from memory to memory, and vectorises no loop where it does.
#if defined(MPTUNE_HOST) && !defined(__clang__)
#define MPTUNE_COPIED_BY_MEMBER(name, member)                               \
    MPTUNE_INLINE name(const name& other) : member(other.member) {}         \
    MPTUNE_INLINE name& operator=(const name& other) {                      \
        member = other.member;                                              \
        return *this;                                                       \
    }
#define MPTUNE_COPIED_BY_MEMBERS(name, first, second)                                       \
    MPTUNE_INLINE name(const name& other) : first(other.first), second(other.second) {}     \
    MPTUNE_INLINE name& operator=(const name& other) {                                      \
        first = other.first;                                                                \
        second = other.second;                                                              \
        return *this;                                                                       \
    }
#else
#define MPTUNE_COPIED_BY_MEMBER(name, member)
#define MPTUNE_COPIED_BY_MEMBERS(name, first, second)
#endif

namespace mp {

struct half {
#if defined(MPTUNE_NATIVE_HALF)
    _Float16 value;
    MPTUNE_COPIED_BY_MEMBER(half, value)
#else
    unsigned short bits;
    MPTUNE_COPIED_BY_MEMBER(half, bits)
#endif
    half() = default;
    template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::same<T, half>>>
    MPTUNE_INLINE half(T x);
    MPTUNE_INLINE operator float() const;
    MPTUNE_INLINE static half from_bits(unsigned short b);
    MPTUNE_INLINE unsigned short to_bits() const;
#if defined(MPTUNE_HALF_ARITHMETIC)
    MPTUNE_INLINE _Float16 native() const;
    MPTUNE_INLINE static half from_native(_Float16 x);
#endif
};

struct bfloat16 {
    unsigned short bits;
    bfloat16() = default;
    MPTUNE_COPIED_BY_MEMBER(bfloat16, bits)
    template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::same<T, bfloat16>>>
    MPTUNE_INLINE bfloat16(T x);
    MPTUNE_INLINE operator float() const;
    MPTUNE_INLINE static bfloat16 from_bits(unsigned short b);
    MPTUNE_INLINE unsigned short to_bits() const { return bits; }
};

#define MPTUNE_FP8(name)                                                                                      \
    struct name {                                                                                             \
        unsigned char bits;                                                                                   \
        name() = default;                                                                                     \
        template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::same<T, name>>> \
        MPTUNE_INLINE name(T x);                                                                              \
        MPTUNE_INLINE operator float() const;                                                                 \
        MPTUNE_INLINE static name from_bits(unsigned char b);                                                 \
        MPTUNE_INLINE unsigned char to_bits() const { return bits; }                                          \
    };
MPTUNE_FP8(fp8_e4m3)
MPTUNE_FP8(fp8_e5m2)
#undef MPTUNE_FP8

namespace detail {

// What a value is rounded from: float holds every type but double and the integers exactly.
MPTUNE_INLINE double source(double x) {
    return x;
}
MPTUNE_INLINE float source(float x) {
    return x;
}
template <class T, enable_if_t<is_own<T>, int> = 0>
MPTUNE_INLINE float source(T x) {
    return static_cast<float>(x);
}
template <class T, enable_if_t<is_integer<T> && (sizeof(T) <= 2), int> = 0>
MPTUNE_INLINE float source(T x) {
    return static_cast<float>(x);
}
template <class T, enable_if_t<is_integer<T> && (sizeof(T) > 2), int> = 0>
MPTUNE_INLINE auto source(T x) {
    return rounding_source(x);
}

MPTUNE_INLINE unsigned short bfloat16_bits_of(double x) {
    return bfloat16_bits_of(round_to_odd(x));
}
MPTUNE_INLINE unsigned char e4m3_bits_of(double x) {
    return e4m3_bits_of(round_to_odd(x));
}
MPTUNE_INLINE unsigned char e5m2_bits_of(double x) {
    return e5m2_bits_of(round_to_odd(x));
}
#if !defined(MPTUNE_CUDA)
MPTUNE_INLINE unsigned short half_bits_of(double x) {
    return half_bits_of(round_to_odd(x));
}
#endif

#if defined(MPTUNE_HIP) || (defined(MPTUNE_OPENCL) && defined(MPTUNE_NATIVE_HALF))
MPTUNE_INLINE _Float16 native_half(double x) {
    return static_cast<_Float16>(x);
}
MPTUNE_INLINE _Float16 native_half(float x) {
    return static_cast<_Float16>(x);
}
#elif defined(MPTUNE_NATIVE_HALF)
MPTUNE_INLINE _Float16 native_half(float x) {
    return static_cast<_Float16>(x);
}
MPTUNE_INLINE _Float16 native_half(double x) {
    return static_cast<_Float16>(round_to_odd(x));
}
#endif

}  // namespace detail

#if defined(MPTUNE_NATIVE_HALF)
template <class T, class>
MPTUNE_INLINE half::half(T x) : value(detail::native_half(detail::source(x))) {}
MPTUNE_INLINE half::operator float() const {
    return static_cast<float>(value);
}
MPTUNE_INLINE half half::from_bits(unsigned short b) {
    return from_native(detail::bits_as<_Float16>(b));
}
MPTUNE_INLINE unsigned short half::to_bits() const {
    return detail::bits_as<unsigned short>(value);
}
MPTUNE_INLINE _Float16 half::native() const {
    return value;
}
MPTUNE_INLINE half half::from_native(_Float16 x) {
    half result;
    result.value = x;
    return result;
}
#else
template <class T, class>
MPTUNE_INLINE half::half(T x) : bits(detail::half_bits_of(detail::source(x))) {}
MPTUNE_INLINE half::operator float() const {
    return detail::float_of_half_bits(bits);
}
MPTUNE_INLINE half half::from_bits(unsigned short b) {
    half result;
    result.bits = b;
    return result;
}
MPTUNE_INLINE unsigned short half::to_bits() const {
    return bits;
}
#if defined(MPTUNE_HALF_ARITHMETIC)
MPTUNE_INLINE _Float16 half::native() const {
    return detail::bits_as<_Float16>(bits);
}
MPTUNE_INLINE half half::from_native(_Float16 x) {
    return from_bits(detail::bits_as<unsigned short>(x));
}
#endif
#endif

#define MPTUNE_BITS_TYPE(name, bits_type, encode, decode)                          \
    template <class T, class>                                                      \
    MPTUNE_INLINE name::name(T x) : bits(detail::encode(detail::source(x))) {}     \
    MPTUNE_INLINE name::operator float() const { return detail::decode(bits); }    \
    MPTUNE_INLINE name name::from_bits(bits_type b) {                              \
        name result;                                                               \
        result.bits = b;                                                           \
        return result;                                                             \
    }
MPTUNE_BITS_TYPE(bfloat16, unsigned short, bfloat16_bits_of, float_of_bfloat16_bits)
MPTUNE_BITS_TYPE(fp8_e4m3, unsigned char, e4m3_bits_of, float_of_e4m3_bits)
MPTUNE_BITS_TYPE(fp8_e5m2, unsigned char, e5m2_bits_of, float_of_e5m2_bits)
#undef MPTUNE_BITS_TYPE

}  // namespace mp

using mp::bfloat16;
using mp::fp8_e4m3;
using mp::fp8_e5m2;
using mp::half;
