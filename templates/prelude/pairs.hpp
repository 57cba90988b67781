// Two neighbouring elements of a vector at a time, where a GPU computes or converts them so: what vector.hpp builds on.

#if defined(MPTUNE_GPU)

namespace mp {
namespace detail {

#if defined(MPTUNE_CUDA)

// Whether two<T> has arithmetic, whether it has comparisons, and whether it has fmin and fmax.
template <class T>
constexpr bool computes_in_pairs = kind_of<T> == kind::fp16 || (kind_of<T> == kind::bf16 && __CUDA_ARCH__ >= 800);
template <class T>
constexpr bool compares_in_pairs = kind_of<T> == kind::fp16 || (kind_of<T> == kind::bf16 && __CUDA_ARCH__ >= 900);
template <class T>
constexpr bool has_extrema_of_pairs = computes_in_pairs<T> && __CUDA_ARCH__ >= 800;

// What is rounded from float, as which everything else but double comes.
template <class To, class From>
constexpr bool rounds_from_float = !same<To, From> && same<decltype(source(From())), float>;
template <class To, class From>
constexpr bool rounds_in_pairs = rounds_from_float<To, From> && __CUDA_ARCH__ >= 800 &&
                                 (kind_of<To> == kind::fp16 || kind_of<To> == kind::bf16);

template <class T>
MPTUNE_INLINE two<T> packed(T first, T second) {
    return {first.bits | static_cast<unsigned>(second.bits) << 16};
}
template <class T>
MPTUNE_INLINE void unpack(T* to, two<T> from) {
    MPTUNE_COPY(to, &from.bits, sizeof(from.bits));
}

// The instructions name the upper half first.
template <class T>
MPTUNE_INLINE two<T> rounded(float first, float second) {
    two<T> result;
    if constexpr (kind_of<T> == kind::fp16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result.bits) : "f"(second), "f"(first));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result.bits) : "f"(second), "f"(first));
    }
    return result;
}

template <class To, class From>
MPTUNE_INLINE two<To> both(From first, From second) {
    if constexpr (rounds_in_pairs<To, From>) return rounded<To>(source(first), source(second));
    else return packed(static_cast<To>(first), static_cast<To>(second));
}

// Two elements, with the instructions that convert two where there are such.
template <class To, class From>
MPTUNE_INLINE void convert_two(To* to, const From* from) {
#if __CUDA_ARCH__ >= 890
    if constexpr (same<From, fp8_e4m3>) {
        half halves[2];
        unpack(halves, two<half>{halves_of_e4m3_bits(from[0].bits | from[1].bits << 8)});
        convert_two(to, halves);
    } else if constexpr (kind_of<To> == kind::fp8 && rounds_from_float<To, From>) {
        unsigned bits;
        if constexpr (same<To, fp8_e4m3>) bits = e4m3_bits_of(source(from[0]), source(from[1]));
        else bits = e5m2_bits_of(source(from[0]), source(from[1]));
        to[0] = To::from_bits(static_cast<unsigned char>(bits));
        to[1] = To::from_bits(static_cast<unsigned char>(bits >> 8));
    } else
#endif
    if constexpr (rounds_in_pairs<To, From>) {
        unpack(to, both<To>(from[0], from[1]));
    } else {
        to[0] = static_cast<To>(from[0]);
        to[1] = static_cast<To>(from[1]);
    }
}

#else

template <class T>
constexpr bool computes_in_pairs = kind_of<T> == kind::fp16;
// There are no packed comparisons.
template <class T>
constexpr bool compares_in_pairs = false;
template <class T>
constexpr bool has_extrema_of_pairs = false;

typedef _Float16 halves __attribute__((ext_vector_type(2)));
template <class T>
struct two {
    halves value;
};

#define MPTUNE_PACKED_OPERATOR(op)                                            \
    MPTUNE_INLINE two<half> operator op(two<half> a, two<half> b) {           \
        return {a.value op b.value};                                          \
    }
MPTUNE_PACKED_OPERATOR(+)
MPTUNE_PACKED_OPERATOR(-)
MPTUNE_PACKED_OPERATOR(*)
#undef MPTUNE_PACKED_OPERATOR
MPTUNE_INLINE two<half> fused(two<half> a, two<half> b, two<half> c) {
    return {::__ocml_fma_2f16(a.value, b.value, c.value)};
}

template <class To, class From>
MPTUNE_INLINE two<To> both(From first, From second) {
    return {halves{static_cast<To>(first).value, static_cast<To>(second).value}};
}
MPTUNE_INLINE void unpack(half* to, two<half> from) {
    MPTUNE_COPY(to, &from.value, sizeof(from.value));
}

#endif

}  // namespace detail
}  // namespace mp

#endif
