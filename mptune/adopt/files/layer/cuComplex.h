// Complex numbers as vectors of two.
#pragma once

#include <math.h>

#include "mptune_layer/types.hpp"

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device begin
#endif
typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;
#define MPTUNE_COMPLEX(type, part, make, real, imaginary, conj, add, sub, mul, div, abs, fma, root)              \
    static inline type make(part x, part y) { return make_##type(x, y); }                                        \
    static inline part real(type z) { return z.x; }                                                              \
    static inline part imaginary(type z) { return z.y; }                                                         \
    static inline type conj(type z) { return make_##type(z.x, -z.y); }                                           \
    static inline type add(type a, type b) { return make_##type(a.x + b.x, a.y + b.y); }                         \
    static inline type sub(type a, type b) { return make_##type(a.x - b.x, a.y - b.y); }                         \
    static inline type mul(type a, type b) { return make_##type(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); } \
    static inline part abs(type z) { return root(z.x, z.y); }                                                    \
    static inline type div(type a, type b) {                                                                     \
        const part size = (b.x < 0 ? -b.x : b.x) + (b.y < 0 ? -b.y : b.y), scale = 1 / size;                     \
        const part ax = a.x * scale, ay = a.y * scale, bx = b.x * scale, by = b.y * scale;                       \
        const part inverse = 1 / (bx * bx + by * by);                                                            \
        return make_##type((ax * bx + ay * by) * inverse, (ay * bx - ax * by) * inverse);                        \
    }                                                                                                            \
    static inline type fma(type a, type b, type c) { return add(mul(a, b), c); }
MPTUNE_COMPLEX(float2, float, make_cuFloatComplex, cuCrealf, cuCimagf, cuConjf, cuCaddf, cuCsubf, cuCmulf, cuCdivf,
               cuCabsf, cuCfmaf, hypotf)
MPTUNE_COMPLEX(double2, double, make_cuDoubleComplex, cuCreal, cuCimag, cuConj, cuCadd, cuCsub, cuCmul, cuCdiv, cuCabs,
               cuCfma, hypot)
#undef MPTUNE_COMPLEX
#define make_cuComplex make_cuFloatComplex
#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif
