// The types of 16 bits, each operation rounded as on a GPU. What CUDA leaves ambiguous is so here, too.
#pragma once

#include "cuda_runtime.h"

#if defined(__cplusplus)
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
    inline bool operator>=(name x, name y) { return float(x) >= float(y); }                            \
    inline name __hadd(name x, name y) { return x + y; }                                               \
    inline name __hsub(name x, name y) { return x - y; }                                               \
    inline name __hmul(name x, name y) { return x * y; }                                               \
    inline name __hdiv(name x, name y) { return x / y; }                                               \
    inline name __hneg(name x) { return -x; }                                                          \
    inline name __hfma(name x, name y, name z) { return name(double(float(x)) * float(y) + float(z)); } \
    inline name __hmax(name x, name y) { return name(fmaxf(x, y)); }                                   \
    inline name __hmin(name x, name y) { return name(fminf(x, y)); }                                   \
    inline name __habs(name x) { return name(fabsf(x)); }                                              \
    inline bool __heq(name x, name y) { return x == y; }                                               \
    inline bool __hlt(name x, name y) { return x < y; }                                                \
    inline bool __hgt(name x, name y) { return x > y; }                                                \
    inline name hsqrt(name x) { return name(sqrtf(x)); }                                               \
    inline name hexp(name x) { return name(expf(x)); }                                                 \
    inline name hlog(name x) { return name(logf(x)); }                                                 \
    inline name hsin(name x) { return name(sinf(x)); }                                                 \
    inline name hcos(name x) { return name(cosf(x)); }

#include <math.h>

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

}  // namespace mptune_layer

MPTUNE_SHORT_TYPE(__half, mptune_layer::to_half, mptune_layer::from_half)
typedef __half half;
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline float __half2float(__half x) { return x; }
inline __half __int2half_rn(int x) { return __half(x); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) {
    __half x;
    x.bits = bits;
    return x;
}
#endif
