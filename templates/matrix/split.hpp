// fp32 as units of bfloat16 multiply it: three bfloat16 that add up to it, and of nine products of these the six largest,
// from the smallest on (Henry et al. 2019; bf16x3 in prelude/compound.hpp).
//
// The products of a step are added up from zero, and their sum to the sums in fp32: units of NVIDIA round to zero, which would
// add up over all steps (Ootomo & Yokota 2022). An infinity makes no number of what it is multiplied with, as its further
// parts are none.

namespace mp {
namespace units {

template <>
constexpr int depth<split> = depth<bfloat16>;
template <>
struct part<split> {
    part<bfloat16> of[3];  // the largest first
};

// The largest part of a float near the largest is no infinity; what is no number is seen to by the other parts.
MPTUNE_INLINE float within_bfloat16(float x) {
    constexpr float largest = 3.3895313892515355e38f;
    return MPTUNE_BUILTIN(fmaxf)(MPTUNE_BUILTIN(fminf)(x, largest), -largest);
}

#if defined(MPTUNE_UNITS_MMA)

MPTUNE_INLINE unsigned two_bfloat16(float first, float second) {
#if defined(MPTUNE_CUDA)
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    return detail::bfloat16_bits_of(first) | static_cast<unsigned>(detail::bfloat16_bits_of(second)) << 16;
#endif
}
MPTUNE_INLINE void take_apart(part<split>& to, int word, unsigned first_bits, unsigned second_bits) {
    float first = detail::bits_as<float>(first_bits), second = detail::bits_as<float>(second_bits);
    MPTUNE_UNROLL
    for (int i = 0; i < 3; ++i) {
        const unsigned both =
            i == 0 ? two_bfloat16(within_bfloat16(first), within_bfloat16(second)) : two_bfloat16(first, second);
        to.of[i].word[word] = both;
        first = detail::minus(first, detail::bits_as<float>(both << 16));
        second = detail::minus(second, detail::bits_as<float>(both & 0xffff0000));
    }
}
// Of eight k a lane has number l % 4 and the fourth after it. Here they are neighbours of sixteen, of A as of B: in which
// order products are added does not matter.
template <class Tile>
MPTUNE_INLINE void load_a(part<split>& a, const Tile& tile, int row, int k, int lane) {
    MPTUNE_UNROLL
    for (int i = 0; i < 2; ++i) {
        part<float> eight;
        load_a(eight, tile, row, k + 8 * i, lane);
        take_apart(a, 2 * i, eight.word[0], eight.word[2]);
        take_apart(a, 2 * i + 1, eight.word[1], eight.word[3]);
    }
}
template <class Tile>
MPTUNE_INLINE void load_b(part<split>& b, const Tile& tile, int k, int column, int lane) {
    MPTUNE_UNROLL
    for (int i = 0; i < 2; ++i) {
        part<float> eight;
        load_b(eight, tile, k + 8 * i, column, lane);
        take_apart(b, i, eight.word[0], eight.word[1]);
        take_apart(b, i + 2, eight.word[2], eight.word[3]);
    }
}

#else

MPTUNE_INLINE void take_apart(part<split>& to, const float* element) {
    MPTUNE_UNROLL
    for (int k = 0; k < held<bfloat16>; ++k) {
        float rest = element[k];
        MPTUNE_UNROLL
        for (int i = 0; i < 3; ++i) {
            to.of[i].element[k] = bfloat16(i == 0 ? within_bfloat16(rest) : rest);
            rest = detail::minus(rest, static_cast<float>(to.of[i].element[k]));
        }
    }
}
template <class Tile>
MPTUNE_INLINE void load_a(part<split>& a, const Tile& tile, int row, int k, int lane) {
    alignas(16) float element[held<bfloat16>];
    fetch_a<bfloat16>(element, tile, row, k, lane);
    take_apart(a, element);
}
template <class Tile>
MPTUNE_INLINE void load_b(part<split>& b, const Tile& tile, int k, int column, int lane) {
    float element[held<bfloat16>];
    fetch_b<bfloat16>(element, tile, k, column, lane);
    take_apart(b, element);
}

#endif

template <class S>
MPTUNE_INLINE void multiply_add(sums<S>& sum, const part<split>& a, const part<split>& b) {
    sums<S> of_step = {};
    MPTUNE_UNROLL
    for (int small = 2; small >= 0; --small) {
        MPTUNE_UNROLL
        for (int i = small; i >= 0; --i) multiply_add(of_step, a.of[i], b.of[small - i]);
    }
    MPTUNE_UNROLL
    for (int v = 0; v < sums<S>::count; ++v) sum.value[v] = sum.value[v] + of_step.value[v];
}

}  // namespace units
}  // namespace mp
