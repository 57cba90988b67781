// Rounding between the floating-point types: to nearest, ties to even, with subnormals, infinities and NaN.
//
// Selects instead of branches, so that a host compiler vectorises loops over them. Overflow gives an infinity; E4M3
// has none and gives NaN (the conversion of ml_dtypes float8_e4m3fn), as does an infinity converted to it.

namespace mp {
namespace detail {

// a or b, chosen by arithmetic: g++ makes branches of most conditional expressions, and where many follow each other
// spends seconds on them.
MPTUNE_INLINE int select(bool condition, int a, int b) {
    return b ^ ((a ^ b) & -static_cast<int>(condition));
}

// Magnitude bits of a float (sign removed) -> magnitude bits in a format of `Exponent` and `Mantissa` bits. Values
// past the largest finite one come out at or above the bits of infinity.
template <int Exponent, int Mantissa>
MPTUNE_INLINE int narrow(int magnitude) {
    constexpr int bias = (1 << (Exponent - 1)) - 1;
    constexpr int shift = 23 - Mantissa;
    constexpr int smallest_normal = (128 - bias) << 23;
    // Adding a float whose last bit weighs as much as the smallest subnormal makes the adder round.
    constexpr int magic = (127 + 24 - bias - Mantissa) << 23;
    const int odd = (magnitude >> shift) & 1;
    const int normal = (magnitude - ((127 - bias) << 23) + ((1 << (shift - 1)) - 1) + odd) >> shift;
    const int subnormal = bits_as<int>(bits_as<float>(magnitude) + bits_as<float>(magic)) - magic;
    return select(magnitude < smallest_normal, subnormal, normal);
}

// Compilers know that it is the same for x and -x.
MPTUNE_INLINE float absolute(float x) {
    return MPTUNE_BUILTIN(fabsf)(x);
}
MPTUNE_INLINE double absolute(double x) {
    return MPTUNE_BUILTIN(fabs)(x);
}

// a * b + c rounded once.
MPTUNE_INLINE double fused(double a, double b, double c) {
    return MPTUNE_BUILTIN(fma)(a, b, c);
}
MPTUNE_INLINE float fused(float a, float b, float c) {
    return MPTUNE_BUILTIN(fmaf)(a, b, c);
}

// The nearest float with its last bit set where inexact: rounding that once more to a type at least two bits
// narrower gives the correctly rounded double.
MPTUNE_CALLED float round_to_odd(double x) {
    const float nearest = static_cast<float>(x);
    const double back = nearest;
    const int bits = bits_as<int>(nearest);
    const int truncated = bits - static_cast<int>(absolute(back) > absolute(x));
    return bits_as<float>(select((back < x) | (back > x), truncated | 1, bits));
}

// a + b to odd, for a float fused multiply-add of narrower types, whose product is exact in float: the error of the
// sum (Knuth's two-sum) tells on which side of the nearest float it lies.
MPTUNE_CALLED float sum_to_odd(float a, float b) {
    const float sum = a + b;
    const float without = sum - a;
    const float error = (a - (sum - without)) + (b - without);
    const int bits = bits_as<int>(sum);
    // One less where the signs differ.
    const int truncated = bits + ((bits_as<int>(error) ^ bits) >> 31);
    return bits_as<float>(select((error < 0) | (error > 0), truncated | 1, bits));
}

// What rounds to any narrower type like the integer itself. A GPU may compute in double slowly, so there it is the
// float towards zero with its last bit set where inexact.
#if defined(MPTUNE_CUDA)
template <class T>
MPTUNE_INLINE float rounding_source(T x) {
    float towards_zero;
    if constexpr (sizeof(T) == 8) {
        towards_zero = T(-1) < T(0) ? __ll2float_rz(static_cast<long long>(x))
                                    : __ull2float_rz(static_cast<unsigned long long>(x));
    } else {
        towards_zero = T(-1) < T(0) ? __int2float_rz(static_cast<int>(x)) : __uint2float_rz(static_cast<unsigned>(x));
    }
    const int inexact = static_cast<T>(towards_zero) == x ? 0 : 1;
    // A literal is a constant this way; the intrinsics are not computed by the compiler.
    const bool small = x <= T(1 << 24) && (T(-1) > T(0) || x >= T(-(1 << 24)));
    return small ? static_cast<float>(x) : bits_as<float>(bits_as<int>(towards_zero) | inexact);
}
#else
// The double with all but the leading bits folded into one that only says that something is there.
template <class T>
MPTUNE_INLINE double rounding_source(T x) {
    if constexpr (sizeof(T) < 8) {
        return static_cast<double>(x);
    } else {
        const bool negative = x < 0;
        const unsigned long long value = static_cast<unsigned long long>(x);
        const unsigned long long magnitude = negative ? 0 - value : value;
        const unsigned long long folded = (magnitude | ((magnitude & 0xffff) ? 0x10000 : 0)) & ~0xffffull;
        const double result = static_cast<double>(magnitude >> 53 ? folded : magnitude);
        return negative ? -result : result;
    }
}
#endif

#if !defined(MPTUNE_CUDA)
MPTUNE_CALLED unsigned short half_bits_of(float x) {
    const int bits = bits_as<int>(x);
    const int magnitude = bits & 0x7fffffff;
    const int rounded = narrow<5, 10>(magnitude);
    const int finite = rounded < 0x7c00 ? rounded : 0x7c00;
    const int result = select(magnitude > 0x7f800000, 0x7e00, finite);
    return static_cast<unsigned short>(result | ((bits >> 16) & 0x8000));
}

MPTUNE_INLINE float float_of_half_bits(unsigned short h) {
    const int magnitude = h & 0x7fff;
    // The exponent is re-biased by a multiplication, which also normalises subnormals.
    const int scaled = bits_as<int>(bits_as<float>(magnitude << 13) * 0x1p112f);
    const int special = select(magnitude >= 0x7c00, 0x7f800000, 0);
    return bits_as<float>(scaled | special | ((h & 0x8000) << 16));
}
#endif

#if !defined(MPTUNE_CUDA) || __CUDA_ARCH__ < 800
MPTUNE_CALLED unsigned short bfloat16_bits_of(float x) {
    const unsigned bits = bits_as<unsigned>(x);
    const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const unsigned quiet = (bits >> 16) | 0x40u;
    return static_cast<unsigned short>(select(static_cast<int>(bits & 0x7fffffffu) > 0x7f800000, quiet, rounded));
}
#endif

#if defined(MPTUNE_CUDA)
MPTUNE_INLINE unsigned short half_bits_of(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
MPTUNE_INLINE unsigned short half_bits_of(double x) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}
MPTUNE_INLINE float float_of_half_bits(unsigned short h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
#if __CUDA_ARCH__ >= 800
MPTUNE_INLINE unsigned short bfloat16_bits_of(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif
#endif

MPTUNE_INLINE float float_of_bfloat16_bits(unsigned short b) {
    return bits_as<float>(static_cast<unsigned>(b) << 16);
}

#if defined(MPTUNE_CUDA) && __CUDA_ARCH__ >= 890
// fp8 in hardware, two at a time, the first in the lower byte. The instructions saturate, and forget the sign of NaN:
// what has no finite number near it in the type is put in after.
MPTUNE_INLINE unsigned e4m3_or_special(unsigned bits, float x) {
    return bits | (::fabsf(x) <= 464.0f ? 0 : (bits_as<unsigned>(x) >> 24) | 0x7f);
}
MPTUNE_INLINE unsigned e5m2_or_special(unsigned bits, float x) {
    return ::fabsf(x) < 61440.0f ? bits : ((bits_as<unsigned>(x) >> 24) & 0x80) | (x == x ? 0x7c : 0x7e);
}
#define MPTUNE_PTX_FP8(format, instruction)                                                        \
    MPTUNE_INLINE unsigned format##_bits_of(float first, float second) {                           \
        unsigned short bits;                                                                       \
        asm(instruction " %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));                    \
        return format##_or_special(bits & 0xff, first) | format##_or_special(bits >> 8, second) << 8; \
    }                                                                                              \
    MPTUNE_INLINE unsigned char format##_bits_of(float x) {                                        \
        return static_cast<unsigned char>(format##_bits_of(x, 0.0f));                              \
    }
MPTUNE_PTX_FP8(e4m3, "cvt.rn.satfinite.e4m3x2.f32")
MPTUNE_PTX_FP8(e5m2, "cvt.rn.satfinite.e5m2x2.f32")
#undef MPTUNE_PTX_FP8

// The bits of two halves, which hold every number of E4M3.
MPTUNE_INLINE unsigned halves_of_e4m3_bits(unsigned two) {
    unsigned halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(two)));
    return halves;
}
MPTUNE_INLINE float float_of_e4m3_bits(unsigned char b) {
    return float_of_half_bits(static_cast<unsigned short>(halves_of_e4m3_bits(b)));
}
#else
MPTUNE_INLINE unsigned char e4m3_bits_of(float x) {
    const int bits = bits_as<int>(x);
    const int magnitude = bits & 0x7fffffff;
    const int rounded = narrow<4, 3>(magnitude);
    return static_cast<unsigned char>((rounded < 0x7f ? rounded : 0x7f) | ((bits >> 24) & 0x80));
}

MPTUNE_INLINE float float_of_e4m3_bits(unsigned char b) {
    const int magnitude = b & 0x7f;
    const int scaled = bits_as<int>(bits_as<float>(magnitude << 20) * 0x1p120f);
    const int special = magnitude == 0x7f ? 0x7fc00000 : 0;
    return bits_as<float>(scaled | special | ((b & 0x80) << 24));
}

MPTUNE_INLINE unsigned char e5m2_bits_of(float x) {
    const int bits = bits_as<int>(x);
    const int magnitude = bits & 0x7fffffff;
    const int rounded = narrow<5, 2>(magnitude);
    const int finite = rounded < 0x7c ? rounded : 0x7c;
    const int result = magnitude > 0x7f800000 ? 0x7e : finite;
    return static_cast<unsigned char>(result | ((bits >> 24) & 0x80));
}
#endif

MPTUNE_INLINE float float_of_e5m2_bits(unsigned char b) {
    return float_of_half_bits(static_cast<unsigned short>(b << 8));
}

}  // namespace detail
}  // namespace mp
