// Short versions of the mathematical functions in float, for the host: without tables, branches or calls, so that a
// loop over them vectorises.
//
// "quick" is a few units in the last place of float, "coarse" about 2^-13, half a unit of fp16. The coefficients are
// minimax ones (Remez exchange in forty digits) of the relative error on the interval named; the bounds that the tests
// hold the functions to stand with each.

#if defined(MPTUNE_HOST)

namespace mp {
namespace detail {

template <class... C>
MPTUNE_INLINE float polynomial(float x, float constant, C... higher) {
    if constexpr (sizeof...(C) == 0) return constant;
    else return polynomial(x, higher...) * x + constant;
}

// x + 1.5 * 2^23 has the integer nearest to x in its last bits.
struct nearest_integer {
    float value;
    int bits;
    MPTUNE_INLINE explicit nearest_integer(float x) {
        constexpr float magic = 0x1.8p23f;
        const float shifted = x + magic;
        value = shifted - magic;
        bits = bits_as<int>(shifted) - bits_as<int>(magic);
    }
};

// x * 2^n in two steps, so that the result may be subnormal or overflow: n within [-252, 254].
MPTUNE_INLINE float scale_by_power(float x, int n) {
    const int half_way = n >> 1;
    return x * bits_as<float>((half_way + 127) << 23) * bits_as<float>((n - half_way + 127) << 23);
}

// Keeps NaN, unlike a minimum.
MPTUNE_INLINE float clamp(float x, float low, float high) {
    const float above = x < low ? low : x;
    return above > high ? high : above;
}

MPTUNE_INLINE float copy_sign(float magnitude, float sign) {
    return bits_as<float>(bits_as<int>(magnitude) | (bits_as<int>(sign) & static_cast<int>(0x80000000u)));
}

// ---- exponentials

// 1 unit in the last place. e^r = 1 + r + r^2 q(r), |r| <= log(2) / 2: 2^-28.
MPTUNE_LAZY MPTUNE_INLINE float quick_exp(float x) {
    const float bounded = clamp(x, -104.0f, 89.0f);
    const nearest_integer n(bounded * 0x1.715476p0f);
    const float r = (bounded - n.value * 0x1.62e4p-1f) - n.value * 0x1.7f7d1cp-20f;
    const float q = polynomial(r, 0x1.fffffcp-2f, 0x1.55549p-3f, 0x1.5558f8p-5f, 0x1.123b02p-7f, 0x1.6a225p-10f);
    return scale_by_power(r * r * q + r + 1.0f, n.bits);
}

// 1 unit in the last place. 2^r = 1 + r q(r), |r| <= 1/2: 2^-27.9.
MPTUNE_LAZY MPTUNE_INLINE float quick_exp2(float x) {
    const float bounded = clamp(x, -151.0f, 129.0f);
    const nearest_integer n(bounded);
    const float r = bounded - n.value;
    const float q = polynomial(r, 0x1.62e432p-1f, 0x1.ebfbep-3f, 0x1.c6ae2ap-5f, 0x1.3b29e2p-7f, 0x1.5f8a06p-10f,
                               0x1.446d34p-13f);
    return scale_by_power(q * r + 1.0f, n.bits);
}

// 2^-13 relative; results below 2^-125 become zero. |r| <= 1/2: 2^-13.7.
MPTUNE_LAZY MPTUNE_INLINE float coarse_exp2(float x) {
    const float bounded = clamp(x, -126.0f, 129.0f);
    const nearest_integer n(bounded);
    const float p = polynomial(bounded - n.value, 0x1.fff68ap-1f, 0x1.62f32ap-1f, 0x1.f0e094p-3f, 0x1.c3f6p-5f);
    return p * bits_as<float>((n.bits + 126) << 23) * 2.0f;
}

MPTUNE_LAZY MPTUNE_INLINE float coarse_exp(float x) {
    return coarse_exp2(x * 0x1.715476p0f);
}

// ---- logarithms

// x = 2^exponent * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)], for positive finite x; subnormals too where wanted.
template <bool Subnormals>
struct split_logarithm {
    float f, exponent;
    MPTUNE_INLINE explicit split_logarithm(float x) {
        const bool small = Subnormals && x < 0x1p-126f;
        const int bits = bits_as<int>(small ? x * 0x1p23f : x);
        const int above = bits - 0x3f3504f3;
        f = bits_as<float>(bits - (above & static_cast<int>(0xff800000u))) - 1.0f;
        exponent = static_cast<float>((above >> 23) - (small ? 23 : 0));
    }
};

// What a logarithm is where the polynomial does not hold: at zero, infinity, NaN and below zero.
MPTUNE_INLINE float finish_logarithm(float result, float x) {
    const float infinity = bits_as<float>(0x7f800000);
    const float special = x == 0.0f ? -infinity : (x > 0.0f ? infinity : bits_as<float>(0x7fc00000));
    return x > 0.0f && x < infinity ? result : special;
}

// log(1 + f), 2 units in the last place. f - f^2 / 2 + f^3 q(f): 2^-27.3.
MPTUNE_LAZY MPTUNE_INLINE float quick_log1p_reduced(float f) {
    const float q = polynomial(f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f, 0x1.22da12p-3f,
                               -0x1.0d8538p-3f, 0x1.055bbap-3f, -0x1.38b666p-4f);
    const float square = f * f;
    return (square * f * q - 0.5f * square) + f;
}

// 2 units in the last place, as its siblings to base 2 and 10.
MPTUNE_LAZY MPTUNE_INLINE float quick_log(float x) {
    const split_logarithm<true> s(x);
    const float low = quick_log1p_reduced(s.f) + s.exponent * 0x1.7f7d1cp-20f;
    return finish_logarithm(s.exponent * 0x1.62e4p-1f + low, x);
}
MPTUNE_LAZY MPTUNE_INLINE float quick_log2(float x) {
    const split_logarithm<true> s(x);
    return finish_logarithm(quick_log1p_reduced(s.f) * 0x1.715476p0f + s.exponent, x);
}
MPTUNE_LAZY MPTUNE_INLINE float quick_log10(float x) {
    const split_logarithm<true> s(x);
    const float low = quick_log1p_reduced(s.f) * 0x1.bcb7b2p-2f + s.exponent * -0x1.95ec1p-19f;
    return finish_logarithm(s.exponent * 0x1.3442p-2f + low, x);
}

// log(1 + f), 2^-13 relative. f p(f): 2^-14.3.
MPTUNE_LAZY MPTUNE_INLINE float coarse_log1p_reduced(float f) {
    return f * polynomial(f, 0x1.fffb8cp-1f, -0x1.ff6fb2p-2f, 0x1.587782p-2f, -0x1.1576bap-2f, 0x1.699f08p-3f);
}
MPTUNE_LAZY MPTUNE_INLINE float coarse_log(float x) {
    const split_logarithm<true> s(x);
    return finish_logarithm(s.exponent * 0x1.62e43p-1f + coarse_log1p_reduced(s.f), x);
}
MPTUNE_LAZY MPTUNE_INLINE float coarse_log2(float x) {
    const split_logarithm<true> s(x);
    return finish_logarithm(s.exponent + coarse_log1p_reduced(s.f) * 0x1.715476p0f, x);
}

// Relative error (2 + |y log2(x)|) 2^-22. A negative base has a result where the exponent is an integer.
MPTUNE_LAZY MPTUNE_INLINE float quick_pow(float x, float y) {
    const float magnitude = quick_exp2(y * quick_log2(absolute(x)));
    const nearest_integer n(clamp(y, -0x1p22f, 0x1p22f));
    const bool integer = n.value == y || absolute(y) > 0x1p22f;
    const bool odd = n.value == y && (n.bits & 1);
    const float negative = integer ? (odd ? -magnitude : magnitude) : bits_as<float>(0x7fc00000);
    const bool signed_zero = x == 0.0f && bits_as<int>(x) < 0;
    const float result = x < 0.0f || (signed_zero && odd) ? negative : magnitude;
    return y == 0.0f || x == 1.0f ? 1.0f : result;
}

// ---- circular functions

// sin(r), |r| <= 1.66: r + r^3 s(r^2), 2^-30.7.
MPTUNE_LAZY MPTUNE_INLINE float quick_sin_reduced(float r) {
    const float u = r * r;
    const float s = polynomial(u, -0x1.555556p-3f, 0x1.111132p-7f, -0x1.a0218ep-13f, 0x1.726ea6p-19f, -0x1.ac6dd8p-26f);
    return u * s * r + r;
}
// The same, 2^-12.8.
MPTUNE_LAZY MPTUNE_INLINE float coarse_sin_reduced(float r) {
    const float u = r * r;
    return u * polynomial(u, -0x1.543b6cp-3f, 0x1.f5c52ap-8f) * r + r;
}

// x - (n + offset) pi within [-pi/2, pi/2] or hardly outside, and whether n is odd (in the sign bit), for |x| up to 2^20.
// Beyond, the result stays bounded but means nothing.
struct reduced_angle {
    float r;
    int flip;
#if defined(__FMA__) || defined(__aarch64__)
    // In float, with pi in three parts. The first difference is exact, so r is off by its own last bit at most, however
    // close to zero it comes.
    MPTUNE_INLINE reduced_angle(float x, float offset) {
        const nearest_integer nearest(__builtin_fmaf(x, 0x1.45f306p-2f, -offset));
        const float n = nearest.value + offset;
        const float high = __builtin_fmaf(n, -0x1.921fb6p1f, x);
        const float angle = __builtin_fmaf(n, 0x1.ee59dap-49f, __builtin_fmaf(n, 0x1.777a5cp-24f, high));
        r = clamp(angle, -0x1.bp0f, 0x1.bp0f);
        flip = static_cast<int>(static_cast<unsigned>(nearest.bits) << 31);
    }
#else
    // In double, with pi in a part whose product with n is exact and the rest: float has too few digits for that.
    MPTUNE_INLINE reduced_angle(float x, double offset) {
        constexpr double magic = 0x1.8p52;
        const double wide = x;
        const double shifted = (wide * 0x1.45f306dc9c883p-2 - offset) + magic;
        const double n = (shifted - magic) + offset;
        const double angle = (wide - n * 0x1.921fb544p1) - n * 0x1.0b4611a626331p-33;
        r = clamp(static_cast<float>(angle), -0x1.921fb6p0f, 0x1.921fb6p0f);
        flip = static_cast<int>(bits_as<unsigned long long>(shifted) << 31) & static_cast<int>(0x80000000u);
    }
#endif
};
// The same in float, to 2^-13 for |x| up to 2^10.
struct coarsely_reduced_angle {
    float r;
    int flip;
    MPTUNE_INLINE coarsely_reduced_angle(float x, float offset) {
        const nearest_integer nearest(x * 0x1.45f306p-2f - offset);
        const float n = nearest.value + offset;
        r = clamp(((x - n * 0x1.92p1f) - n * 0x1.fbp-11f) - n * 0x1.5110b4p-21f, -0x1.921fb6p0f, 0x1.921fb6p0f);
        flip = static_cast<int>(static_cast<unsigned>(nearest.bits) << 31);
    }
};
MPTUNE_INLINE float flipped(float x, int flip) {
    return bits_as<float>(bits_as<int>(x) ^ flip);
}

// 2.5 units in the last place for |x| <= 2^20, as is its sibling.
MPTUNE_LAZY MPTUNE_INLINE float quick_sin(float x) {
    const reduced_angle a(x, 0.0f);
    return flipped(quick_sin_reduced(a.r), a.flip);
}
// cos(x) = -sin(x - pi / 2).
MPTUNE_LAZY MPTUNE_INLINE float quick_cos(float x) {
    const reduced_angle a(x, 0.5f);
    return -flipped(quick_sin_reduced(a.r), a.flip);
}
// 2^-12 absolute for |x| <= 2^10, and relative where the result is not near a zero other than x = 0.
MPTUNE_LAZY MPTUNE_INLINE float coarse_sin(float x) {
    const coarsely_reduced_angle a(x, 0.0f);
    return flipped(coarse_sin_reduced(a.r), a.flip);
}
MPTUNE_LAZY MPTUNE_INLINE float coarse_cos(float x) {
    const coarsely_reduced_angle a(x, 0.5f);
    return -flipped(coarse_sin_reduced(a.r), a.flip);
}

// An angle in half turns without whole ones, from -1 to 1, and as far from the nearest zero of its sine: both are exact.
MPTUNE_INLINE float without_turns(float x) {
    return x - 2.0f * __builtin_rintf(0.5f * x);
}
MPTUNE_INLINE double without_turns(double x) {
    return x - 2.0 * __builtin_rint(0.5 * x);
}
template <class T>
MPTUNE_INLINE T from_zero(T half_turns) {
    const T size = half_turns < T(0) ? -half_turns : half_turns;
    return size > T(0.5) ? T(1) - size : size;
}

// sin(pi r), |r| <= 1/2: r p(r^2), 2^-27.5; the first coefficient is in two parts.
MPTUNE_LAZY MPTUNE_INLINE float quick_sinpi_reduced(float r) {
    const float u = r * r;
    const float s = polynomial(u, -0x1.4abbc2p2f, 0x1.4668bp1f, -0x1.324cccp-1f, 0x1.3db00ep-4f);
    return r * (u * s - 0x1.bf232cp-24f) + r * 0x1.921fb6p1f;
}
// The same, 2^-13.2.
MPTUNE_LAZY MPTUNE_INLINE float coarse_sinpi_reduced(float r) {
    return r * polynomial(r * r, 0x1.921492p1f, -0x1.4954e2p2f, 0x1.29cf4ep1f);
}
// 3 units in the last place for all numbers, as is its sibling. cos(pi x) = sin(pi (1/2 - |x|)).
MPTUNE_LAZY MPTUNE_INLINE float quick_sinpi(float x) {
    const float h = without_turns(x);
    return copy_sign(quick_sinpi_reduced(from_zero(h)), h);
}
MPTUNE_LAZY MPTUNE_INLINE float quick_cospi(float x) {
    return quick_sinpi_reduced(0.5f - absolute(without_turns(x)));
}
// 2^-12 of the result.
MPTUNE_LAZY MPTUNE_INLINE float coarse_sinpi(float x) {
    const float h = without_turns(x);
    return copy_sign(coarse_sinpi_reduced(from_zero(h)), h);
}
MPTUNE_LAZY MPTUNE_INLINE float coarse_cospi(float x) {
    return coarse_sinpi_reduced(0.5f - absolute(without_turns(x)));
}

// 4 units in the last place for |x| <= 2^20.
MPTUNE_LAZY MPTUNE_INLINE float quick_tan(float x) {
    return quick_sin(x) / quick_cos(x);
}
MPTUNE_LAZY MPTUNE_INLINE float coarse_tan(float x) {
    return coarse_sin(x) / coarse_cos(x);
}

// atan(t), 0 <= t <= 1: t + t^3 a(t^2), 2^-28.5.
MPTUNE_LAZY MPTUNE_INLINE float quick_atan_reduced(float t) {
    const float u = t * t;
    const float a = polynomial(u, -0x1.55553ep-2f, 0x1.9991fep-3f, -0x1.2421b4p-3f, 0x1.c099f6p-4f, -0x1.58347ep-4f,
                               0x1.dac9a8p-5f, -0x1.fed0f2p-6f, 0x1.65a5ecp-7f, -0x1.d62f3p-10f);
    return u * a * t + t;
}
// 2 units in the last place.
MPTUNE_LAZY MPTUNE_INLINE float quick_atan(float x) {
    const float magnitude = absolute(x);
    const bool large = magnitude > 1.0f;
    const float angle = quick_atan_reduced(large ? 1.0f / magnitude : magnitude);
    return copy_sign(large ? 0x1.921fb6p0f - angle : angle, x);
}
// 4 units in the last place.
MPTUNE_LAZY MPTUNE_INLINE float quick_atan2(float y, float x) {
    const float rise = absolute(y), run = absolute(x);
    const bool steep = rise > run;
    const float larger = steep ? rise : run, smaller = steep ? run : rise;
    const float ratio = smaller == larger ? (larger == 0.0f ? 0.0f : 1.0f) : smaller / larger;
    const float acute = quick_atan_reduced(ratio);
    const float first = steep ? 0x1.921fb6p0f - acute : acute;
    const float upper = bits_as<int>(x) < 0 ? 0x1.921fb6p1f - first : first;
    return x == x && y == y ? copy_sign(upper, y) : x + y;
}

// asin(t) - t = t^3 s(t^2), 0 <= t <= 1/2: 2^-27.6.
MPTUNE_LAZY MPTUNE_INLINE float quick_asin_excess(float t, float u) {
    return u * t * polynomial(u, 0x1.5555c8p-3f, 0x1.3301ecp-4f, 0x1.747daep-5f, 0x1.8c2cdcp-6f, 0x1.596a46p-5f);
}
// 3 units in the last place, as is its sibling. asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)) above 1/2.
MPTUNE_LAZY MPTUNE_INLINE float quick_asin(float x) {
    const float magnitude = absolute(x);
    const bool large = magnitude > 0.5f;
    const float u = large ? 0.5f * (1.0f - magnitude) : magnitude * magnitude;
    const float t = large ? __builtin_sqrtf(u) : magnitude;
    const float angle = quick_asin_excess(t, u) + t;
    return copy_sign(large ? 0x1.921fb6p0f - 2.0f * angle : angle, x);
}
MPTUNE_LAZY MPTUNE_INLINE float quick_acos(float x) {
    const float magnitude = absolute(x);
    const bool large = magnitude > 0.5f;
    const float u = large ? 0.5f * (1.0f - magnitude) : magnitude * magnitude;
    const float t = large ? __builtin_sqrtf(u) : magnitude;
    const float angle = quick_asin_excess(t, u) + t;
    const float outer = x < 0.0f ? 0x1.921fb6p1f - 2.0f * angle : 2.0f * angle;
    return large ? outer : 0x1.921fb6p0f - copy_sign(angle, x);
}

// ---- hyperbolic functions and the error function

// 2 units in the last place. |x| < 3/4: x + x^3 t(x^2), 2^-24.9.
MPTUNE_LAZY MPTUNE_INLINE float quick_tanh(float x) {
    const float magnitude = absolute(x);
    const float u = x * x;
    const float t = polynomial(u, -0x1.5554a4p-2f, 0x1.10ed62p-3f, -0x1.b55ff4p-5f, 0x1.42323p-6f, -0x1.3895cep-8f);
    const float small = u * t * x + x;
    const float large = 1.0f - 2.0f / (quick_exp(2.0f * magnitude) + 1.0f);
    return magnitude < 0.75f ? small : copy_sign(large, x);
}
// 2^-12 relative. |x| < 0.65: 2^-13.
MPTUNE_LAZY MPTUNE_INLINE float coarse_tanh(float x) {
    const float magnitude = absolute(x);
    const float u = x * x;
    const float small = u * polynomial(u, -0x1.51f476p-2f, 0x1.b4e498p-4f) * x + x;
    const float large = 1.0f - 2.0f / (coarse_exp2(magnitude * 0x1.715476p1f) + 1.0f);
    return magnitude < 0.65f ? small : copy_sign(large, x);
}

// 4 units in the last place, as is its sibling. |x| < 1: x + x^3 s(x^2), 2^-25.3. The square of e^(x / 2), halved
// first, overflows no earlier than the result.
MPTUNE_LAZY MPTUNE_INLINE float quick_sinh(float x) {
    const float magnitude = absolute(x);
    const float u = x * x;
    const float small = u * polynomial(u, 0x1.555598p-3f, 0x1.10f77cp-7f, 0x1.ab3c78p-13f) * x + x;
    const float half_way = quick_exp(0.5f * magnitude);
    const float large = 0.5f * half_way * half_way - 0.5f / (half_way * half_way);
    return magnitude < 1.0f ? small : copy_sign(large, x);
}
MPTUNE_LAZY MPTUNE_INLINE float quick_cosh(float x) {
    const float half_way = quick_exp(0.5f * absolute(x));
    return 0.5f * half_way * half_way + 0.5f / (half_way * half_way);
}

// 3 units in the last place. |x| < 1: x p(x^2), 2^-29.6; above: 1 - 2^p(x), 2^-29.8 of the result.
MPTUNE_LAZY MPTUNE_INLINE float quick_erf(float x) {
    const float magnitude = absolute(x);
    const float u = x * x;
    const float small = x * polynomial(u, 0x1.20dd74p0f, -0x1.81273ep-2f, 0x1.ce2cf8p-4f, -0x1.b7f91p-6f, 0x1.5405bep-8f,
                                       -0x1.a3f71ep-11f, 0x1.496a12p-14f);
    const float bounded = magnitude > 3.95f ? 3.95f : magnitude;
    const float exponent = polynomial(bounded, -0x1.00b65p-11f, -0x1.a04558p0f, -0x1.d75cbp-1f, -0x1.30ad3p-3f,
                                      0x1.0227ep-5f, -0x1.16d096p-8f, 0x1.1a22b6p-12f);
    return magnitude < 1.0f ? small : copy_sign(1.0f - quick_exp2(exponent), x);
}

// 5 units in the last place. e^(a^2) erfc(a) (1 + 2a) = p((a - 4) / (a + 4)), 2^-24.6, |x| = a < 10.2, from where on the
// result is 0 (Shepherd and Laframboise 1981). What rounding the square loses is made good to first order.
MPTUNE_LAZY MPTUNE_INLINE float quick_erfc(float x) {
    const float magnitude = absolute(x);
    const float a = magnitude > 10.2f ? 10.2f : magnitude;
    const float q = (a - 4.0f) / (a + 4.0f);
    const float p = polynomial(q, 0x1.3ba592p0f, -0x1.1df1a6p-3f, 0x1.f7e2a2p-7f, 0x1.16e8d6p-4f, -0x1.9da8eap-4f,
                               0x1.804cdap-4f, -0x1.10e7c2p-4f, 0x1.2a4c6ep-5f, -0x1.050f6ap-6f, 0x1.c9a75ap-8f,
                               0x1.c9132ap-11f);
    const float square = a * a, lost = __builtin_fmaf(a, a, -square);
    const float tail = p / (1.0f + 2.0f * a) * quick_exp(-square);
    const float result = tail - tail * lost;
    return x < 0.0f ? 2.0f - result : result;
}

// ---- roots

// 2^-17 relative, subnormal arguments included: a first guess from the exponent and two Newton steps.
MPTUNE_INLINE float coarse_rsqrt(float x) {
    const bool small = x < 0x1p-126f;
    const float scaled = small ? x * 0x1p24f : x;
    const float guess = bits_as<float>(0x5f375a86 - (bits_as<int>(scaled) >> 1));
    const float once = guess * (1.5f - 0.5f * scaled * guess * guess);
    const float twice = once * (1.5f - 0.5f * scaled * once * once);
    const float root = small ? twice * 0x1p12f : twice;
    const float infinity = bits_as<float>(0x7f800000);
    const float special = x == 0.0f ? copy_sign(infinity, x) : (x > 0.0f ? 0.0f : bits_as<float>(0x7fc00000));
    return x > 0.0f && x < infinity ? root : special;
}

#if defined(MPTUNE_HALF_VECTORS)
// ---- in fp16 itself, twice as many numbers in a vector: units in the last place of fp16

MPTUNE_INLINE _Float16 fused(_Float16 a, _Float16 b, _Float16 c) {
    return __builtin_fmaf16(a, b, c);
}
#define F16(number) static_cast<_Float16>(number)

MPTUNE_INLINE _Float16 half_of(int bits) {
    return bits_as<_Float16>(static_cast<short>(bits));
}

// As in float: x + 1.5 * 2^10 has the integer nearest to x in its last bits, for |x| <= 2^9.
struct nearest_short {
    _Float16 value;
    short bits;
    MPTUNE_INLINE explicit nearest_short(_Float16 x) {
        const _Float16 shifted = x + F16(1536);
        value = shifted - F16(1536);
        bits = static_cast<short>(bits_as<short>(shifted) - 0x6600);
    }
};
// In two steps: n within [-28, 31].
MPTUNE_INLINE _Float16 scale_by_power(_Float16 x, short n) {
    const short half_way = n >> 1, rest = static_cast<short>(n - half_way);
    return x * half_of((half_way + 15) << 10) *
           half_of((rest + 15) << 10);
}
// Integer arithmetic where float has conditional expressions, of which g++ makes a loop body twice as long.
MPTUNE_INLINE _Float16 select(bool condition, _Float16 a, _Float16 b) {
    const short x = bits_as<short>(a), y = bits_as<short>(b);
    return half_of(y ^ ((x ^ y) & -static_cast<short>(condition)));
}
// x, or `bound` with its sign where that is nearer to zero.
MPTUNE_INLINE _Float16 bounded(_Float16 x, _Float16 bound) {
    const short bits = bits_as<short>(x), largest = bits_as<short>(bound);
    const short magnitude = bits & 0x7fff;
    return half_of((magnitude < largest ? magnitude : largest) | (bits & -0x8000));
}
// y, or NaN where x is NaN.
MPTUNE_INLINE _Float16 unless_nan(_Float16 x, _Float16 y) {
    return x == x ? y : half_of(0x7e00);
}

// e^r = 1 + r + r^2 q(r): 2^-17.
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_exp(_Float16 x) {
    const _Float16 near = bounded(x, F16(18));
    const nearest_short n(near * F16(0x1.714p0));
    const _Float16 r = fused(n.value, F16(0x1.bdp-13), fused(n.value, F16(-0x1.63p-1), near));
    const _Float16 q = fused(fused(r, F16(0x1.52p-5), F16(0x1.574p-3)), r, F16(0.5));
    return unless_nan(x, scale_by_power(fused(r * r, q, r) + F16(1), n.bits));
}

// 1 unit. 2^r = 1 + r log(2) + r q(r), with log(2) rounded.
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_exp2(_Float16 x) {
    const _Float16 near = bounded(x, F16(26));
    const nearest_short n(near);
    const _Float16 r = near - n.value;
    const _Float16 q = fused(fused(r, F16(0x1.c2cp-5), F16(0x1.fp-3)), r, F16(-0x1.40cp-14));
    return unless_nan(x, scale_by_power(fused(r, F16(0x1.63p-1), r * q) + F16(1), n.bits));
}

// r + r^3 s(r^2), |r| <= 1.97: 2^-17.0.
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_sin_reduced(_Float16 r) {
    const _Float16 u = r * r;
    const _Float16 s = fused(fused(u, F16(-0x1.7540p-13), F16(0x1.0f80p-7)), u, F16(-0x1.5540p-3));
    return fused(u * s, r, r);
}
// sin(x - offset pi), to 2^-10 for |x| <= 2^10; beyond, between -1 and 1. Rounded so often, the number of half turns is
// off by an eighth.
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_sin(_Float16 x, _Float16 offset) {
    const nearest_short nearest(fused(x, F16(0x1.46p-2), fused(x, F16(-0x1.9fp-15), -offset)));
    const _Float16 n = nearest.value + offset;
    const _Float16 angle = fused(n, F16(-0x1.fb4p-11), fused(n, F16(-0x1.92p1), x));
    const _Float16 sine = unless_nan(angle, coarse_sin_reduced(bounded(angle, F16(0x1.f8p0))));
    return half_of(bits_as<short>(sine) ^ (nearest.bits << 15));
}

// To 2^-10 for all numbers, as is its sibling.
MPTUNE_INLINE _Float16 without_turns(_Float16 x) {
    return fused(F16(-2), static_cast<_Float16>(__builtin_rintf16(x * F16(0.5))), x);
}
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_sinpi_reduced(_Float16 r) {
    return coarse_sin_reduced(fused(r, F16(0x1.92p1), r * F16(0x1.fb4p-11)));
}
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_sinpi(_Float16 x) {
    const _Float16 h = without_turns(x), size = half_of(bits_as<short>(h) & 0x7fff);
    const _Float16 sine = coarse_sinpi_reduced(select(size > F16(0.5), F16(1) - size, size));
    return half_of(bits_as<short>(sine) | (bits_as<short>(h) & -0x8000));
}
MPTUNE_LAZY MPTUNE_INLINE _Float16 coarse_cospi(_Float16 x) {
    const _Float16 h = without_turns(x), size = half_of(bits_as<short>(h) & 0x7fff);
    return coarse_sinpi_reduced(F16(0.5) - size);
}

// A first guess from the exponent and two Newton steps.
MPTUNE_INLINE _Float16 coarse_rsqrt(_Float16 x) {
    const bool small = x < F16(0x1p-14);
    const _Float16 scaled = small ? x * F16(0x1p12) : x;
    _Float16 y = half_of(0x59b9 - (bits_as<short>(scaled) >> 1));
    y = fused(y * F16(0.5), fused(scaled * y, -y, F16(1)), y);
    y = fused(y * F16(0.5), fused(scaled * y, -y, F16(1)), y);
    const _Float16 root = small ? y * F16(0x1p6) : y;
    // Of zero; of infinity; of NaN and what is less than zero.
    const _Float16 special = x == F16(0) ? half_of(bits_as<short>(x) | 0x7c00) : x > F16(0) ? F16(0) : half_of(0x7e00);
    return x > F16(0) && x < half_of(0x7c00) ? root : special;
}
#undef F16
#endif

}  // namespace detail
}  // namespace mp

#endif
