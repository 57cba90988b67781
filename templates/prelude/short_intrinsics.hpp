// CUDA's functions of numbers of 16 bits and of pairs of them: of templates, and of programs that run as they are. They
// are in a namespace since hiprtc has them for types of its own. Each rounds once; what CUDA approximates is rounded from
// fp32.

#if !defined(MPTUNE_FMA)
#if defined(MPTUNE_HIP) || defined(MPTUNE_OPENCL)
#define half2 mptune_half2
#endif
using half2 = mp::vec2<mp::half>;
namespace mptune_short {
using mptune_half = mp::half;
using mptune_half2 = ::half2;
using mptune_bfloat16 = mp::bfloat16;
using mptune_bfloat162 = mp::vec2<mp::bfloat16>;
using mptune_float2 = mp::vec2<float>;
}  // namespace mptune_short
namespace mp {
using namespace mptune_short;
}
#define MPTUNE_FMA(a, b, c) mp::fma(a, b, c)
#endif

// No source that is given to an OpenCL driver has them unless it names one: they take long to read.
#if !defined(MPTUNE_NO_SHORT_INTRINSICS)

#if !defined(MPTUNE_LAZY)
#define MPTUNE_LAZY
#endif

namespace mptune_short {

// A number to the nearest of 16 bits towards zero (0), down (-1) or up (1).
template <class T>
MPTUNE_INLINE T directed(double x, int direction) {
    const T near = T(x);
    const double back = static_cast<float>(near);
    const bool lower = back > x && (direction < 0 || (direction == 0 && x > 0));
    const bool raise = back < x && (direction > 0 || (direction == 0 && x < 0));
    return lower || raise ? T::from_bits(static_cast<unsigned short>(near.to_bits() + (raise == (x > 0) ? 1 : -1))) : near;
}

// In [0, 1], 0 for what is no number; at least 0, which leaves that what it is.
template <class T>
MPTUNE_INLINE T mptune_saturated(T x) {
    return x > T(0.0f) ? x < T(1.0f) ? T(x) : T(1.0f) : T(0.0f);
}
template <class T>
MPTUNE_INLINE T mptune_rectified(T x) {
    return x < T(0.0f) ? T(0.0f) : T(x);
}

#define MPTUNE_BINARY(T, T2, R, one, both, expression)          \
    MPTUNE_LAZY MPTUNE_INLINE R one(T a, T b) { return expression; }        \
    MPTUNE_LAZY MPTUNE_INLINE T2 both(T2 a, T2 b) { return {T(one(a.x, b.x)), T(one(a.y, b.y))}; }
#define MPTUNE_UNARY(T, T2, one, both, expression)              \
    MPTUNE_LAZY MPTUNE_INLINE T one(T a) { return expression; }             \
    MPTUNE_LAZY MPTUNE_INLINE T2 both(T2 a) { return {one(a.x), one(a.y)}; }
#define MPTUNE_MATH(T, T2, one, both, name) MPTUNE_UNARY(T, T2, one, both, T(MPTUNE_BUILTIN(name)(static_cast<float>(a))))
#define MPTUNE_SHORT(T, T2)                                                                              \
    MPTUNE_BINARY(T, T2, T, __hadd, __hadd2, a + b)                                                      \
    MPTUNE_BINARY(T, T2, T, __hsub, __hsub2, a - b)                                                      \
    MPTUNE_BINARY(T, T2, T, __hmul, __hmul2, a * b)                                                      \
    MPTUNE_BINARY(T, T2, T, __hadd_rn, __hadd2_rn, a + b)                                                \
    MPTUNE_BINARY(T, T2, T, __hsub_rn, __hsub2_rn, a - b)                                                \
    MPTUNE_BINARY(T, T2, T, __hmul_rn, __hmul2_rn, a * b)                                                \
    MPTUNE_BINARY(T, T2, T, __hadd_sat, __hadd2_sat, mptune_saturated(T(a + b)))                         \
    MPTUNE_BINARY(T, T2, T, __hsub_sat, __hsub2_sat, mptune_saturated(T(a - b)))                         \
    MPTUNE_BINARY(T, T2, T, __hmul_sat, __hmul2_sat, mptune_saturated(T(a * b)))                         \
    MPTUNE_BINARY(T, T2, T, __hdiv, __h2div, a / b)                                                      \
    MPTUNE_BINARY(T, T2, T, __hmax, __hmax2, a > b || b != b ? a : b)                                    \
    MPTUNE_BINARY(T, T2, T, __hmin, __hmin2, a < b || b != b ? a : b)                                    \
    MPTUNE_BINARY(T, T2, T, __hmax_nan, __hmax2_nan, a > b || a != a ? a : b)                            \
    MPTUNE_BINARY(T, T2, T, __hmin_nan, __hmin2_nan, a < b || a != a ? a : b)                            \
    MPTUNE_BINARY(T, T2, bool, __heq, __heq2, a == b)                                                    \
    MPTUNE_BINARY(T, T2, bool, __hne, __hne2, a < b || a > b)                                            \
    MPTUNE_BINARY(T, T2, bool, __hlt, __hlt2, a < b)                                                     \
    MPTUNE_BINARY(T, T2, bool, __hle, __hle2, a <= b)                                                    \
    MPTUNE_BINARY(T, T2, bool, __hgt, __hgt2, a > b)                                                     \
    MPTUNE_BINARY(T, T2, bool, __hge, __hge2, a >= b)                                                    \
    MPTUNE_UNARY(T, T2, __hneg, __hneg2, T::from_bits(a.to_bits() ^ 0x8000))                             \
    MPTUNE_UNARY(T, T2, __habs, __habs2, T::from_bits(a.to_bits() & 0x7fff))                             \
    MPTUNE_UNARY(T, T2, hrcp, h2rcp, T(1.0f / static_cast<float>(a)))                                    \
    MPTUNE_UNARY(T, T2, hrsqrt, h2rsqrt, T(1.0f / MPTUNE_BUILTIN(sqrtf)(static_cast<float>(a))))         \
    MPTUNE_MATH(T, T2, hsqrt, h2sqrt, sqrtf)                                                             \
    MPTUNE_MATH(T, T2, hexp, h2exp, expf)                                                                \
    MPTUNE_MATH(T, T2, hexp2, h2exp2, exp2f)                                                             \
    MPTUNE_UNARY(T, T2, hexp10, h2exp10, T(MPTUNE_BUILTIN(powf)(10.0f, static_cast<float>(a))))           \
    MPTUNE_MATH(T, T2, hlog, h2log, logf)                                                                \
    MPTUNE_MATH(T, T2, hlog2, h2log2, log2f)                                                             \
    MPTUNE_MATH(T, T2, hlog10, h2log10, log10f)                                                          \
    MPTUNE_MATH(T, T2, hsin, h2sin, sinf)                                                                \
    MPTUNE_MATH(T, T2, hcos, h2cos, cosf)                                                                \
    MPTUNE_MATH(T, T2, htanh, h2tanh, tanhf)                                                             \
    MPTUNE_MATH(T, T2, hfloor, h2floor, floorf)                                                          \
    MPTUNE_MATH(T, T2, hceil, h2ceil, ceilf)                                                             \
    MPTUNE_MATH(T, T2, htrunc, h2trunc, truncf)                                                          \
    MPTUNE_MATH(T, T2, hrint, h2rint, rintf)                                                             \
    MPTUNE_LAZY MPTUNE_INLINE T __hfma(T a, T b, T c) { return MPTUNE_FMA(a, b, c); }                                \
    MPTUNE_LAZY MPTUNE_INLINE T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
    MPTUNE_LAZY MPTUNE_INLINE T __hfma_sat(T a, T b, T c) { return mptune_saturated(T(MPTUNE_FMA(a, b, c))); }       \
    MPTUNE_LAZY MPTUNE_INLINE T2 __hfma2_sat(T2 a, T2 b, T2 c) {                                                     \
        return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};                                   \
    }                                                                                                    \
    MPTUNE_LAZY MPTUNE_INLINE T __hfma_relu(T a, T b, T c) { return mptune_rectified(T(MPTUNE_FMA(a, b, c))); }      \
    MPTUNE_LAZY MPTUNE_INLINE T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                    \
        return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};                                 \
    }                                                                                                    \
    MPTUNE_LAZY MPTUNE_INLINE bool __hisnan(T a) { return a != a; }                                                  \
    MPTUNE_LAZY MPTUNE_INLINE int __hisinf(T a) { return a - a == a - a || a != a ? 0 : a > T(0.0f) ? 1 : -1; }      \
    MPTUNE_LAZY MPTUNE_INLINE float __low2float(T2 a) { return static_cast<float>(a.x); }                            \
    MPTUNE_LAZY MPTUNE_INLINE float __high2float(T2 a) { return static_cast<float>(a.y); }                           \
    MPTUNE_LAZY MPTUNE_INLINE T2 __lowhigh2highlow(T2 a) { return {a.y, a.x}; }
MPTUNE_SHORT(mptune_half, mptune_half2)
MPTUNE_SHORT(mptune_bfloat16, mptune_bfloat162)
#undef MPTUNE_BINARY
#undef MPTUNE_UNARY
#undef MPTUNE_MATH
#undef MPTUNE_SHORT

#define MPTUNE_FROM(T, From, nearest, down, up, towards_zero)                  \
    MPTUNE_LAZY MPTUNE_INLINE T nearest(From x) { return T(x); }                           \
    MPTUNE_LAZY MPTUNE_INLINE T down(From x) { return directed<T>(x, -1); }                \
    MPTUNE_LAZY MPTUNE_INLINE T up(From x) { return directed<T>(x, 1); }                   \
    MPTUNE_LAZY MPTUNE_INLINE T towards_zero(From x) { return directed<T>(x, 0); }
MPTUNE_FROM(mptune_half, float, __float2half_rn, __float2half_rd, __float2half_ru, __float2half_rz)
MPTUNE_FROM(mptune_half, int, __int2half_rn, __int2half_rd, __int2half_ru, __int2half_rz)
MPTUNE_FROM(mptune_half, unsigned, __uint2half_rn, __uint2half_rd, __uint2half_ru, __uint2half_rz)
MPTUNE_FROM(mptune_bfloat16, float, __float2bfloat16_rn, __float2bfloat16_rd, __float2bfloat16_ru, __float2bfloat16_rz)
MPTUNE_FROM(mptune_bfloat16, int, __int2bfloat16_rn, __int2bfloat16_rd, __int2bfloat16_ru, __int2bfloat16_rz)
MPTUNE_FROM(mptune_bfloat16, unsigned, __uint2bfloat16_rn, __uint2bfloat16_rd, __uint2bfloat16_ru, __uint2bfloat16_rz)
#undef MPTUNE_FROM
MPTUNE_LAZY MPTUNE_INLINE mptune_half __float2half(float x) { return mptune_half(x); }
MPTUNE_LAZY MPTUNE_INLINE mptune_half __double2half(double x) { return mptune_half(x); }
MPTUNE_LAZY MPTUNE_INLINE float __half2float(mptune_half x) { return static_cast<float>(x); }
MPTUNE_LAZY MPTUNE_INLINE mptune_bfloat16 __float2bfloat16(float x) { return mptune_bfloat16(x); }
MPTUNE_LAZY MPTUNE_INLINE mptune_bfloat16 __double2bfloat16(double x) { return mptune_bfloat16(x); }
MPTUNE_LAZY MPTUNE_INLINE float __bfloat162float(mptune_bfloat16 x) { return static_cast<float>(x); }

// What is out of range becomes the nearest that is in it, what is no number 0.
template <class R>
MPTUNE_INLINE R whole(float x) {
    constexpr bool is_signed = static_cast<R>(-1) < static_cast<R>(0);
    constexpr R most = static_cast<R>(~0u >> (is_signed ? 1 : 0));
    constexpr float beyond = is_signed ? 0x1p31f : 0x1p32f, lowest = is_signed ? -0x1p31f : 0.0f;
    const R inside = static_cast<R>(x > lowest && x < beyond ? x : 0.0f);
    return x >= beyond ? most : x <= lowest ? static_cast<R>(~most) : inside;
}

#define MPTUNE_TO(From, R, nearest, down, up, towards_zero)                                                          \
    MPTUNE_LAZY MPTUNE_INLINE R nearest(From x) { return whole<R>(MPTUNE_BUILTIN(rintf)(static_cast<float>(x))); }            \
    MPTUNE_LAZY MPTUNE_INLINE R down(From x) { return whole<R>(MPTUNE_BUILTIN(floorf)(static_cast<float>(x))); }              \
    MPTUNE_LAZY MPTUNE_INLINE R up(From x) { return whole<R>(MPTUNE_BUILTIN(ceilf)(static_cast<float>(x))); }                 \
    MPTUNE_LAZY MPTUNE_INLINE R towards_zero(From x) { return whole<R>(static_cast<float>(x)); }
MPTUNE_TO(mptune_half, int, __half2int_rn, __half2int_rd, __half2int_ru, __half2int_rz)
MPTUNE_TO(mptune_half, unsigned, __half2uint_rn, __half2uint_rd, __half2uint_ru, __half2uint_rz)
MPTUNE_TO(mptune_bfloat16, int, __bfloat162int_rn, __bfloat162int_rd, __bfloat162int_ru, __bfloat162int_rz)
MPTUNE_TO(mptune_bfloat16, unsigned, __bfloat162uint_rn, __bfloat162uint_rd, __bfloat162uint_ru, __bfloat162uint_rz)
#undef MPTUNE_TO

#define MPTUNE_BITS(T, to_signed, to_unsigned, of_signed, of_unsigned)                                      \
    MPTUNE_LAZY MPTUNE_INLINE short to_signed(T x) { return static_cast<short>(x.to_bits()); }                          \
    MPTUNE_LAZY MPTUNE_INLINE unsigned short to_unsigned(T x) { return x.to_bits(); }                                   \
    MPTUNE_LAZY MPTUNE_INLINE T of_signed(short bits) { return T::from_bits(static_cast<unsigned short>(bits)); }       \
    MPTUNE_LAZY MPTUNE_INLINE T of_unsigned(unsigned short bits) { return T::from_bits(bits); }
MPTUNE_BITS(mptune_half, __half_as_short, __half_as_ushort, __short_as_half, __ushort_as_half)
MPTUNE_BITS(mptune_bfloat16, __bfloat16_as_short, __bfloat16_as_ushort, __short_as_bfloat16, __ushort_as_bfloat16)
#undef MPTUNE_BITS

#define MPTUNE_PAIRS(T, T2, of_float, of_floats, of_float2, to_float2, of_one, of_two, low, upper, lows, uppers) \
    MPTUNE_LAZY MPTUNE_INLINE T2 of_float(float x) { return {T(x), T(x)}; }                                                \
    MPTUNE_LAZY MPTUNE_INLINE T2 of_floats(float x, float y) { return {T(x), T(y)}; }                                      \
    template <class V>                                                                                         \
    MPTUNE_INLINE T2 of_float2(V v) {                                                                          \
        return {T(static_cast<float>(v.x)), T(static_cast<float>(v.y))};                                       \
    }                                                                                                          \
    MPTUNE_LAZY MPTUNE_INLINE mptune_float2 to_float2(T2 v) { return {static_cast<float>(v.x), static_cast<float>(v.y)}; }        \
    MPTUNE_LAZY MPTUNE_INLINE T2 of_one(T x) { return {x, x}; }                                                            \
    MPTUNE_LAZY MPTUNE_INLINE T2 of_two(T x, T y) { return {x, y}; }                                                       \
    MPTUNE_LAZY MPTUNE_INLINE T low(T2 v) { return v.x; }                                                                  \
    MPTUNE_LAZY MPTUNE_INLINE T upper(T2 v) { return v.y; }                                                                 \
    MPTUNE_LAZY MPTUNE_INLINE T2 lows(T2 v) { return {v.x, v.x}; }                                                         \
    MPTUNE_LAZY MPTUNE_INLINE T2 uppers(T2 v) { return {v.y, v.y}; }
MPTUNE_PAIRS(mptune_half, mptune_half2, __float2half2_rn, __floats2half2_rn, __float22half2_rn, __half22float2, __half2half2,
             __halves2half2, __low2half, __high2half, __low2half2, __high2half2)
MPTUNE_PAIRS(mptune_bfloat16, mptune_bfloat162, __float2bfloat162_rn, __floats2bfloat162_rn, __float22bfloat162_rn,
             __bfloat1622float2, __bfloat162bfloat162, __halves2bfloat162, __low2bfloat16, __high2bfloat16,
             __low2bfloat162, __high2bfloat162)
#undef MPTUNE_PAIRS

}  // namespace mptune_short

#endif
