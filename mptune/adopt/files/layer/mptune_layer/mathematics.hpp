// CUDA's functions on numbers that the C and C++ libraries lack, and its overloads of those they have. What CUDA calls
// fast is computed as exactly as the rest.
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <cstdlib>

#include "mptune_layer/device.hpp"

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device begin
#endif
#define MPTUNE_PAIR(name)                                                                               \
    MPTUNE_DEVICE int name(int a, int b) { return MPTUNE_CHOSEN; }                                      \
    MPTUNE_DEVICE unsigned name(unsigned a, unsigned b) { return MPTUNE_CHOSEN; }                       \
    MPTUNE_DEVICE unsigned name(int x, unsigned b) { const unsigned a = x; return MPTUNE_CHOSEN; }      \
    MPTUNE_DEVICE unsigned name(unsigned a, int x) { const unsigned b = x; return MPTUNE_CHOSEN; }      \
    MPTUNE_DEVICE long name(long a, long b) { return MPTUNE_CHOSEN; }                                   \
    MPTUNE_DEVICE unsigned long name(unsigned long a, unsigned long b) { return MPTUNE_CHOSEN; }        \
    MPTUNE_DEVICE unsigned long name(long x, unsigned long b) { const unsigned long a = x; return MPTUNE_CHOSEN; } \
    MPTUNE_DEVICE unsigned long name(unsigned long a, long x) { const unsigned long b = x; return MPTUNE_CHOSEN; } \
    MPTUNE_DEVICE long long name(long long a, long long b) { return MPTUNE_CHOSEN; }                    \
    MPTUNE_DEVICE unsigned long long name(unsigned long long a, unsigned long long b) { return MPTUNE_CHOSEN; } \
    MPTUNE_DEVICE unsigned long long name(long long x, unsigned long long b) { const unsigned long long a = x; return MPTUNE_CHOSEN; } \
    MPTUNE_DEVICE unsigned long long name(unsigned long long a, long long x) { const unsigned long long b = x; return MPTUNE_CHOSEN; }
#define MPTUNE_CHOSEN a < b ? a : b
MPTUNE_PAIR(min)
#undef MPTUNE_CHOSEN
#define MPTUNE_CHOSEN a > b ? a : b
MPTUNE_PAIR(max)
#undef MPTUNE_CHOSEN
#undef MPTUNE_PAIR
MPTUNE_DEVICE float min(float a, float b) { return fminf(a, b); }
MPTUNE_DEVICE double min(double a, double b) { return fmin(a, b); }
MPTUNE_DEVICE double min(float a, double b) { return fmin(static_cast<double>(a), b); }
MPTUNE_DEVICE double min(double a, float b) { return fmin(a, static_cast<double>(b)); }
MPTUNE_DEVICE float max(float a, float b) { return fmaxf(a, b); }
MPTUNE_DEVICE double max(double a, double b) { return fmax(a, b); }
MPTUNE_DEVICE double max(float a, double b) { return fmax(static_cast<double>(a), b); }
MPTUNE_DEVICE double max(double a, float b) { return fmax(a, static_cast<double>(b)); }
MPTUNE_DEVICE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
MPTUNE_DEVICE unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
MPTUNE_DEVICE long long llmin(long long a, long long b) { return a < b ? a : b; }
MPTUNE_DEVICE long long llmax(long long a, long long b) { return a > b ? a : b; }

MPTUNE_DEVICE double rsqrt(double x) { return 1.0 / sqrt(x); }
MPTUNE_DEVICE float rsqrtf(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
MPTUNE_DEVICE float rsqrt(float x) { return rsqrtf(x); }
MPTUNE_DEVICE double rcbrt(double x) { return 1.0 / cbrt(x); }
MPTUNE_DEVICE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
MPTUNE_DEVICE double sinpi(double x) { return sin(M_PI * fmod(x, 2.0)); }
MPTUNE_DEVICE double cospi(double x) { return cos(M_PI * fmod(x, 2.0)); }
MPTUNE_DEVICE float sinpif(float x) { return static_cast<float>(sinpi(static_cast<double>(x))); }
MPTUNE_DEVICE float cospif(float x) { return static_cast<float>(cospi(static_cast<double>(x))); }
MPTUNE_DEVICE void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
MPTUNE_DEVICE void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
MPTUNE_DEVICE void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
MPTUNE_DEVICE double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
MPTUNE_DEVICE float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
MPTUNE_DEVICE double norm3d(double x, double y, double z) { return sqrt(x * x + y * y + z * z); }
MPTUNE_DEVICE float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
MPTUNE_DEVICE double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
MPTUNE_DEVICE float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
MPTUNE_DEVICE double norm4d(double x, double y, double z, double w) { return sqrt(x * x + y * y + z * z + w * w); }
MPTUNE_DEVICE float norm4df(float x, float y, float z, float w) { return sqrtf(x * x + y * y + z * z + w * w); }
MPTUNE_DEVICE double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
MPTUNE_DEVICE float rnorm4df(float x, float y, float z, float w) { return 1.0f / norm4df(x, y, z, w); }
MPTUNE_DEVICE double norm(int n, const double* p) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += p[i] * p[i];
    return sqrt(sum);
}
MPTUNE_DEVICE float normf(int n, const float* p) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += p[i] * p[i];
    return sqrtf(sum);
}
MPTUNE_DEVICE double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
MPTUNE_DEVICE float normcdff(float x) { return static_cast<float>(normcdf(x)); }
inline double normcdfinv(double p) {
    if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
    // Acklam's rational approximation, then two steps of Halley.
    const double q = p < 0.5 ? p : 1 - p, t = sqrt(-2 * log(q));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    x = -x;
    for (int i = 0; i < 4; ++i) {
        const double e = (normcdf(x) - q) * sqrt(2 * M_PI) * exp(x * x / 2);
        x -= e / (1 + x * e / 2);
    }
    return p < 0.5 ? x : -x;
}
inline float normcdfinvf(float p) { return static_cast<float>(normcdfinv(p)); }
inline double erfinv(double y) { return normcdfinv((y + 1) / 2) * M_SQRT1_2; }
inline float erfinvf(float y) { return static_cast<float>(erfinv(y)); }
inline double erfcinv(double y) { return -normcdfinv(y / 2) * M_SQRT1_2; }
inline float erfcinvf(float y) { return static_cast<float>(erfcinv(y)); }
MPTUNE_DEVICE float fdividef(float a, float b) { return a / b; }
MPTUNE_DEVICE double fdivide(double a, double b) { return a / b; }
MPTUNE_DEVICE float saturate(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

#if !defined(MPTUNE_READING)
// Macros: the C library declares functions of these names, for itself.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#endif

// Templates have the same of their own.
#define MPTUNE_HOST
#define MPTUNE_INLINE MPTUNE_DEVICE
#include MPTUNE_INTRINSICS
#undef MPTUNE_INLINE
#undef MPTUNE_HOST
#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif
