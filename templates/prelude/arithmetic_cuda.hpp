// Arithmetic of half and bfloat16 in PTX, one element and, for vectors, two at a time: a GPU does two in the time of one.

#if defined(MPTUNE_CUDA)

namespace mp {
namespace detail {

#define MPTUNE_PTX_BINARY(type, name, instruction)                                                   \
    MPTUNE_INLINE type name(type a, type b) {                                                        \
        type result;                                                                                 \
        asm(instruction " %0, %1, %2;" : "=h"(result.bits) : "h"(a.bits), "h"(b.bits));              \
        return result;                                                                               \
    }                                                                                                \
    MPTUNE_INLINE unsigned name##_two(type, unsigned a, unsigned b) {                                \
        unsigned result;                                                                             \
        asm(instruction "x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));                           \
        return result;                                                                               \
    }
#define MPTUNE_PTX_FUSED(type, instruction)                                                          \
    MPTUNE_INLINE type fused(type a, type b, type c) {                                               \
        type result;                                                                                 \
        asm(instruction " %0, %1, %2, %3;" : "=h"(result.bits) : "h"(a.bits), "h"(b.bits), "h"(c.bits)); \
        return result;                                                                               \
    }                                                                                                \
    MPTUNE_INLINE unsigned fused_two(type, unsigned a, unsigned b, unsigned c) {                     \
        unsigned result;                                                                             \
        asm(instruction "x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));               \
        return result;                                                                               \
    }
#define MPTUNE_DIVIDE(type)                                                                          \
    MPTUNE_INLINE type divide(type a, type b) {                                                      \
        return type(static_cast<float>(a) / static_cast<float>(b));                                  \
    }

// Without ".rn", so that ptxas may fuse a product and a sum, as it does for float.
MPTUNE_PTX_BINARY(half, add, "add.f16")
MPTUNE_PTX_BINARY(half, subtract, "sub.f16")
MPTUNE_PTX_BINARY(half, multiply, "mul.f16")
MPTUNE_PTX_FUSED(half, "fma.rn.f16")
MPTUNE_DIVIDE(half)

#if __CUDA_ARCH__ >= 800
MPTUNE_PTX_FUSED(bfloat16, "fma.rn.bf16")
MPTUNE_DIVIDE(bfloat16)
#endif
#if __CUDA_ARCH__ >= 900
MPTUNE_PTX_BINARY(bfloat16, add, "add.bf16")
MPTUNE_PTX_BINARY(bfloat16, subtract, "sub.bf16")
MPTUNE_PTX_BINARY(bfloat16, multiply, "mul.bf16")
#elif __CUDA_ARCH__ >= 800
// Before sm_90 there is only the fused operation: a + b = a * 1 + b, a - b = b * -1 + a, a * b = a * b + -0.
#define MPTUNE_BY_FUSED(name, x, y, z)                                                               \
    MPTUNE_INLINE bfloat16 name(bfloat16 a, bfloat16 b) {                                            \
        [[maybe_unused]] const bfloat16 one = bfloat16::from_bits(0x3f80);                           \
        [[maybe_unused]] const bfloat16 minus_one = bfloat16::from_bits(0xbf80);                     \
        [[maybe_unused]] const bfloat16 minus_zero = bfloat16::from_bits(0x8000);                    \
        return fused(x, y, z);                                                                       \
    }                                                                                                \
    MPTUNE_INLINE unsigned name##_two(bfloat16 type, unsigned a, unsigned b) {                       \
        [[maybe_unused]] constexpr unsigned one = 0x3f803f80u, minus_one = 0xbf80bf80u;              \
        [[maybe_unused]] constexpr unsigned minus_zero = 0x80008000u;                                \
        return fused_two(type, x, y, z);                                                             \
    }
MPTUNE_BY_FUSED(add, a, one, b)
MPTUNE_BY_FUSED(subtract, b, minus_one, a)
MPTUNE_BY_FUSED(multiply, a, b, minus_zero)
#undef MPTUNE_BY_FUSED
#endif

#undef MPTUNE_PTX_BINARY
#undef MPTUNE_PTX_FUSED
#undef MPTUNE_DIVIDE

template <class T>
constexpr bool computes_in_pairs = kind_of<T> == kind::fp16 || (kind_of<T> == kind::bf16 && __CUDA_ARCH__ >= 800);

template <class T>
MPTUNE_INLINE unsigned pair(T low, T high) {
    return low.bits | static_cast<unsigned>(high.bits) << 16;
}
template <class T>
MPTUNE_INLINE void unpair(T* to, unsigned two) {
    to[0] = T::from_bits(static_cast<unsigned short>(two));
    to[1] = T::from_bits(static_cast<unsigned short>(two >> 16));
}

}  // namespace detail
}  // namespace mp

#endif
