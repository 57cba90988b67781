// The types of 16 bits, each operation rounded as on a GPU. What CUDA leaves ambiguous is so here, too.
#pragma once

#include "cuda_runtime.h"

#if defined(__cplusplus)
#if defined(MPTUNE_READING)
// Numbers that convert: an operator between two of them is one of C++'s own.
#pragma clang force_cuda_host_device begin
#define MPTUNE_SHORT_TYPE(name, convert_to, convert_from) \
    struct name {                                         \
        unsigned short bits;                              \
        name() = default;                                 \
        name(float value);                                \
        operator float() const;                           \
        unsigned short to_bits() const;                   \
        static name from_bits(unsigned short);            \
        name& operator+=(float);                          \
        name& operator-=(float);                          \
        name& operator*=(float);                          \
        name& operator/=(float);                          \
    };
#else
#define MPTUNE_SHORT_TYPE(name, convert_to, convert_from)                                              \
    struct name {                                                                                      \
        unsigned short bits;                                                                           \
        name() = default;                                                                              \
        name(float x) : bits(convert_to(x)) {}                                                         \
        name(double x) : bits(convert_to(x)) {}                                                        \
        name(int x) : bits(convert_to(static_cast<double>(x))) {}                                      \
        name(unsigned x) : bits(convert_to(static_cast<double>(x))) {}                                 \
        name(long long x) : bits(convert_to(static_cast<double>(x))) {}                                \
        operator float() const { return convert_from(bits); }                                          \
        unsigned short to_bits() const { return bits; }                                                \
        static name from_bits(unsigned short bits) {                                                   \
            name x;                                                                                    \
            x.bits = bits;                                                                             \
            return x;                                                                                  \
        }                                                                                              \
        name& operator+=(name y) { return *this = name(float(*this) + float(y)); }                     \
        name& operator-=(name y) { return *this = name(float(*this) - float(y)); }                     \
        name& operator*=(name y) { return *this = name(float(*this) * float(y)); }                     \
        name& operator/=(name y) { return *this = name(float(*this) / float(y)); }                     \
    };                                                                                                 \
    inline name operator+(name x, name y) { return name(float(x) + float(y)); }                        \
    inline name operator-(name x, name y) { return name(float(x) - float(y)); }                        \
    inline name operator*(name x, name y) { return name(float(x) * float(y)); }                        \
    inline name operator/(name x, name y) { return name(float(x) / float(y)); }                        \
    inline name operator-(name x) { return name(-float(x)); }                                          \
    inline bool operator==(name x, name y) { return float(x) == float(y); }                            \
    inline bool operator!=(name x, name y) { return float(x) != float(y); }                            \
    inline bool operator<(name x, name y) { return float(x) < float(y); }                              \
    inline bool operator<=(name x, name y) { return float(x) <= float(y); }                            \
    inline bool operator>(name x, name y) { return float(x) > float(y); }                              \
    inline bool operator>=(name x, name y) { return float(x) >= float(y); }

namespace mptune_layer {

// To nearest even, once, from either type: a number of a double that lies on the middle between two of 16 bits as a
// float does not have to.
template <int Exponents, int Digits>
inline unsigned short to_short(double x) {
    const unsigned short sign = __builtin_signbit(x) ? 0x8000 : 0;
    constexpr int bias = (1 << (Exponents - 1)) - 1;
    constexpr unsigned short infinity = ((1 << Exponents) - 1) << Digits;
    if (x != x) return sign | infinity | 1 << (Digits - 1);
    x = __builtin_fabs(x);
    if (x == 0) return sign;
    if (x > __DBL_MAX__) return sign | infinity;  // whose exponent frexp leaves open
    int exponent;
    __builtin_frexp(x, &exponent);
    if (--exponent < 1 - bias) exponent = 1 - bias;
    const double digits = __builtin_rint(__builtin_ldexp(x, Digits - exponent));
    if (exponent > bias) return sign | infinity;
    const unsigned whole = static_cast<unsigned>(digits) + ((exponent + bias - 1) << Digits);
    return sign | (whole > infinity ? infinity : whole);
}
template <int Exponents, int Digits>
inline float from_short(unsigned short bits) {
    constexpr int bias = (1 << (Exponents - 1)) - 1, most = (1 << Exponents) - 1;
    const int exponent = bits >> Digits & most, digits = bits & ((1 << Digits) - 1);
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == most) return digits != 0 ? __builtin_nanf("") : sign * __builtin_inff();
    if (exponent == 0) return sign * __builtin_ldexpf(static_cast<float>(digits), 1 - bias - Digits);
    return sign * __builtin_ldexpf(static_cast<float>(digits | 1 << Digits), exponent - bias - Digits);
}
#if defined(__AVX512FP16__) && !defined(__clang__)
// g++ has the type itself there, and converts and rounds as above.
inline unsigned short to_half(double x) {
    const _Float16 half = static_cast<_Float16>(x);
    unsigned short bits;
    __builtin_memcpy(&bits, &half, 2);
    return bits;
}
inline float from_half(unsigned short bits) {
    _Float16 half;
    __builtin_memcpy(&half, &bits, 2);
    return static_cast<float>(half);
}
#else
inline unsigned short to_half(double x) { return to_short<5, 10>(x); }
inline float from_half(unsigned short bits) { return from_short<5, 10>(bits); }
#endif
inline unsigned short to_bfloat16(double x) { return to_short<8, 7>(x); }
inline float from_bfloat16(unsigned short bits) {
    const unsigned wide = static_cast<unsigned>(bits) << 16;
    float x;
    __builtin_memcpy(&x, &wide, 4);
    return x;
}

// a * b + c rounded once: the product is exact in double, and the last bit of the sum says whether it is.
template <class T>
inline T fused(T a, T b, T c) {
    const double product = double(float(a)) * float(b), other = float(c), sum = product + other;
    const double without = sum - product, lost = (product - (sum - without)) + (other - without);
    long long bits;
    __builtin_memcpy(&bits, &sum, 8);
    if (lost == lost && lost != 0 && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
    double odd;
    __builtin_memcpy(&odd, &bits, 8);
    return T(odd);
}

}  // namespace mptune_layer
#endif

MPTUNE_SHORT_TYPE(__half, mptune_layer::to_half, mptune_layer::from_half)
MPTUNE_SHORT_TYPE(__nv_bfloat16, mptune_layer::to_bfloat16, mptune_layer::from_bfloat16)
struct __attribute__((aligned(4))) __half2 { __half x, y; };
struct __attribute__((aligned(4))) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __half half;
typedef __half2 half2;

// Templates have the same functions.
namespace mptune_short {
using mptune_half = __half;
using mptune_half2 = __half2;
using mptune_bfloat16 = __nv_bfloat16;
using mptune_bfloat162 = __nv_bfloat162;
using mptune_float2 = float2;
}
#define MPTUNE_INLINE inline __attribute__((always_inline))
#define MPTUNE_BUILTIN(name) __builtin_##name
#if defined(MPTUNE_READING)
#define MPTUNE_FMA(a, b, c) (a * b + c)
#else
#define MPTUNE_FMA(a, b, c) mptune_layer::fused(a, b, c)
#endif
#include MPTUNE_SHORT_INTRINSICS
#undef MPTUNE_FMA
#undef MPTUNE_BUILTIN
#undef MPTUNE_INLINE
using namespace mptune_short;
#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif
#endif
