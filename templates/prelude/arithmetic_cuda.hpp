// Arithmetic of half and bfloat16 in PTX, one element and two at a time: a GPU does two in the time of one.

#if defined(MPTUNE_CUDA)

namespace mp {
namespace detail {

// Two elements in a register, the first in its lower half.
template <class T>
struct two {
    unsigned bits;
};

#define MPTUNE_PTX_BINARY(type, name, of_two, instruction)                                           \
    MPTUNE_INLINE type name(type a, type b) {                                                        \
        type result;                                                                                 \
        asm(instruction " %0, %1, %2;" : "=h"(result.bits) : "h"(a.bits), "h"(b.bits));              \
        return result;                                                                               \
    }                                                                                                \
    MPTUNE_INLINE two<type> of_two(two<type> a, two<type> b) {                                       \
        two<type> result;                                                                            \
        asm(instruction "x2 %0, %1, %2;" : "=r"(result.bits) : "r"(a.bits), "r"(b.bits));            \
        return result;                                                                               \
    }
#define MPTUNE_PTX_FUSED(type, instruction)                                                          \
    MPTUNE_INLINE type fused(type a, type b, type c) {                                               \
        type result;                                                                                 \
        asm(instruction " %0, %1, %2, %3;" : "=h"(result.bits) : "h"(a.bits), "h"(b.bits), "h"(c.bits)); \
        return result;                                                                               \
    }                                                                                                \
    MPTUNE_INLINE two<type> fused(two<type> a, two<type> b, two<type> c) {                           \
        two<type> result;                                                                            \
        asm(instruction "x2 %0, %1, %2, %3;" : "=r"(result.bits) : "r"(a.bits), "r"(b.bits), "r"(c.bits)); \
        return result;                                                                               \
    }
// b where the comparison with a holds, as a mask, otherwise a: that is what min and max are for one element, and unlike
// PTX's own for NaN and for zeros of either sign.
#define MPTUNE_PTX_EXTREMUM(type, name, comparison)                                                  \
    MPTUNE_INLINE two<type> name(two<type> a, two<type> b) {                                         \
        unsigned mask;                                                                               \
        asm(comparison " %0, %1, %2;" : "=r"(mask) : "r"(b.bits), "r"(a.bits));                      \
        return {(b.bits & mask) | (a.bits & ~mask)};                                                 \
    }

// Without ".rn", so that ptxas may fuse a product and a sum, as it does for float.
MPTUNE_PTX_BINARY(half, add, operator +, "add.f16")
MPTUNE_PTX_BINARY(half, subtract, operator -, "sub.f16")
MPTUNE_PTX_BINARY(half, multiply, operator *, "mul.f16")
MPTUNE_PTX_FUSED(half, "fma.rn.f16")
MPTUNE_PTX_EXTREMUM(half, min, "set.lt.u32.f16x2")
MPTUNE_PTX_EXTREMUM(half, max, "set.gt.u32.f16x2")

#if __CUDA_ARCH__ >= 800
MPTUNE_PTX_FUSED(bfloat16, "fma.rn.bf16")
MPTUNE_PTX_BINARY(half, fmin, fmin, "min.f16")
MPTUNE_PTX_BINARY(half, fmax, fmax, "max.f16")
MPTUNE_PTX_BINARY(bfloat16, fmin, fmin, "min.bf16")
MPTUNE_PTX_BINARY(bfloat16, fmax, fmax, "max.bf16")
#endif
#if __CUDA_ARCH__ >= 900
MPTUNE_PTX_BINARY(bfloat16, add, operator +, "add.bf16")
MPTUNE_PTX_BINARY(bfloat16, subtract, operator -, "sub.bf16")
MPTUNE_PTX_BINARY(bfloat16, multiply, operator *, "mul.bf16")
MPTUNE_PTX_EXTREMUM(bfloat16, min, "set.lt.u32.bf16x2")
MPTUNE_PTX_EXTREMUM(bfloat16, max, "set.gt.u32.bf16x2")
#elif __CUDA_ARCH__ >= 800
// Before sm_90 there is only the fused operation: a + b = a * 1 + b, a - b = b * -1 + a, a * b = a * b + -0.
#define MPTUNE_BY_FUSED(op, name, x, y, z)                                                           \
    MPTUNE_INLINE bfloat16 name(bfloat16 a, bfloat16 b) {                                            \
        [[maybe_unused]] const bfloat16 one = bfloat16::from_bits(0x3f80);                           \
        [[maybe_unused]] const bfloat16 minus_one = bfloat16::from_bits(0xbf80);                     \
        [[maybe_unused]] const bfloat16 minus_zero = bfloat16::from_bits(0x8000);                    \
        return fused(x, y, z);                                                                       \
    }                                                                                                \
    MPTUNE_INLINE two<bfloat16> operator op(two<bfloat16> a, two<bfloat16> b) {                      \
        [[maybe_unused]] const two<bfloat16> one{0x3f803f80u}, minus_one{0xbf80bf80u};               \
        [[maybe_unused]] const two<bfloat16> minus_zero{0x80008000u};                                \
        return fused(x, y, z);                                                                       \
    }
MPTUNE_BY_FUSED(+, add, a, one, b)
MPTUNE_BY_FUSED(-, subtract, b, minus_one, a)
MPTUNE_BY_FUSED(*, multiply, a, b, minus_zero)
#undef MPTUNE_BY_FUSED
#endif

#if __CUDA_ARCH__ >= 800
MPTUNE_INLINE bfloat16 divide(bfloat16 a, bfloat16 b) {
    return bfloat16(static_cast<float>(a) / static_cast<float>(b));
}
#endif

#undef MPTUNE_PTX_BINARY
#undef MPTUNE_PTX_FUSED
#undef MPTUNE_PTX_EXTREMUM

}  // namespace detail

// The other comparisons, in float, are templates: these come before them.
#define MPTUNE_PTX_COMPARISON(type, op, instruction)                                                 \
    MPTUNE_INLINE bool operator op(type a, type b) {                                                 \
        unsigned result;                                                                             \
        asm("{ .reg .pred p; setp." instruction " p, %1, %2; selp.u32 %0, 1, 0, p; }"                \
            : "=r"(result)                                                                           \
            : "h"(a.bits), "h"(b.bits));                                                             \
        return result != 0;                                                                          \
    }
#define MPTUNE_PTX_COMPARISONS(type, suffix)                                                         \
    MPTUNE_PTX_COMPARISON(type, ==, "eq." suffix)                                                    \
    MPTUNE_PTX_COMPARISON(type, !=, "neu." suffix)                                                   \
    MPTUNE_PTX_COMPARISON(type, <, "lt." suffix)                                                     \
    MPTUNE_PTX_COMPARISON(type, <=, "le." suffix)                                                    \
    MPTUNE_PTX_COMPARISON(type, >, "gt." suffix)                                                     \
    MPTUNE_PTX_COMPARISON(type, >=, "ge." suffix)
MPTUNE_PTX_COMPARISONS(half, "f16")
#if __CUDA_ARCH__ >= 900
MPTUNE_PTX_COMPARISONS(bfloat16, "bf16")
#endif
#undef MPTUNE_PTX_COMPARISON
#undef MPTUNE_PTX_COMPARISONS

}  // namespace mp

#endif
