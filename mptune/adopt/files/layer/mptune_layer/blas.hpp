// What stands behind cuBLAS: matrices in the order of Fortran, computed on the host.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <complex>
#include <type_traits>
#include <vector>

#include "cuComplex.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "mptune_layer/library_calls.hpp"

#include "mptune_layer/letters_begin.hpp"

typedef enum cudaDataType_t {
    CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_8I = 3, CUDA_C_32F = 4, CUDA_C_64F = 5, CUDA_C_16F = 6,
    CUDA_R_8U = 8, CUDA_R_32I = 10, CUDA_R_16BF = 14
} cudaDataType_t;
typedef cudaDataType_t cudaDataType;
typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C } cublasOperation_t;
typedef enum { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_FULL } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT } cublasSideMode_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED } cublasAtomicsMode_t;
typedef enum {
    CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_PEDANTIC_MATH, CUBLAS_TF32_TENSOR_OP_MATH,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC,
    CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I_PEDANTIC,
    CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32
} cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 } cublasGemmAlgo_t;

struct cublasContext {
    cublasPointerMode_t pointer_mode;
    cublasMath_t math_mode;
    cublasAtomicsMode_t atomics_mode;
    cudaStream_t stream;
};
typedef cublasContext* cublasHandle_t;

namespace mptune_layer {
namespace blas {

// What a number is computed as, and the real type of its parts.
template <class T> struct traits { typedef T value; typedef T real; };
template <> struct traits<float2> { typedef std::complex<float> value; typedef float real; };
template <> struct traits<double2> { typedef std::complex<double> value; typedef double real; };
template <> struct traits<__half> { typedef float value; typedef float real; };
template <> struct traits<__nv_bfloat16> { typedef float value; typedef float real; };
template <class T> using value_t = typename traits<T>::value;
template <class T> using real_t = typename traits<T>::real;

template <class V, class T>
V loaded(const T& x) { return static_cast<V>(x); }
template <class V>
V loaded(const float2& z) { return V(z.x, z.y); }
template <class V>
V loaded(const double2& z) { return V(z.x, z.y); }
template <class T, class V>
void store(T& x, const V& value) {
    if constexpr (std::is_integral_v<T>) x = static_cast<T>(llround(value));
    else x = static_cast<T>(value);
}
template <class V>
void store(float2& z, const std::complex<V>& value) { z = float2{float(value.real()), float(value.imag())}; }
template <class V>
void store(double2& z, const std::complex<V>& value) { z = double2{double(value.real()), double(value.imag())}; }

template <class V>
V times(V a, V b) { return a * b; }
template <class V>
std::complex<V> times(std::complex<V> a, std::complex<V> b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
template <class V>
V conjugate(V x) { return x; }
template <class V>
std::complex<V> conjugate(std::complex<V> z) { return std::conj(z); }
template <class V>
V size_of(V x) { return x < 0 ? -x : x; }
template <class V>
V size_of(std::complex<V> z) { return fabs(z.real()) + fabs(z.imag()); }

// The first of a vector's elements: with a negative step it is the last one in memory.
template <class T>
T* first_of(T* x, int64_t n, int64_t step) { return step < 0 ? x + (1 - n) * step : x; }

// A matrix of its own: numbers as they are computed with, one column after the other.
template <class V>
struct matrix {
    int64_t rows, columns;
    std::vector<V> values;
    matrix(int64_t rows, int64_t columns) : rows(rows), columns(columns), values(rows * columns) {}
    V& operator()(int64_t i, int64_t j) { return values[i + j * rows]; }
    const V& operator()(int64_t i, int64_t j) const { return values[i + j * rows]; }
};

// op(A), of so many rows and columns.
template <class V, class T>
matrix<V> packed(const T* a, int64_t lda, int64_t rows, int64_t columns, int op) {
    matrix<V> made(rows, columns);
    for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < rows; ++i) {
            const V value = loaded<V>(op == CUBLAS_OP_N ? a[i + j * lda] : a[j + i * lda]);
            made(i, j) = op == CUBLAS_OP_C ? conjugate(value) : value;
        }
    }
    return made;
}
template <class V, class T>
matrix<V> vector(const T* x, int64_t n, int64_t step) {
    const T* const first = first_of(x, n, step);
    matrix<V> made(n, 1);
    for (int64_t i = 0; i < n; ++i) made.values[i] = loaded<V>(first[i * step]);
    return made;
}
// What half of a matrix stands for: zeros, its transpose or the conjugate of that in the other half.
enum half { zeros, symmetric, hermitian };
template <class V, class T>
matrix<V> packed_half(const T* a, int64_t lda, int64_t n, int op, int fill, half other, bool has_ones) {
    matrix<V> made(n, n);
    for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
            const bool is_there = fill == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j;
            V value = is_there ? loaded<V>(a[i + j * lda]) : other == zeros ? V() : loaded<V>(a[j + i * lda]);
            if (!is_there && other == hermitian) value = conjugate(value);
            if (i == j && has_ones) value = V(1);
            made(op == CUBLAS_OP_N ? i : j, op == CUBLAS_OP_N ? j : i) = op == CUBLAS_OP_C ? conjugate(value) : value;
        }
    }
    return made;
}

// A B, in parts that stay in the nearest cache: four columns of B at once, four columns of A to each.
template <class V>
matrix<V> product(const matrix<V>& a, const matrix<V>& b) {
    const int64_t m = a.rows, k = a.columns, n = b.columns, part = 512;
    matrix<V> c(m, n);
    for (int64_t start = 0; start < m; start += part) {
        const int64_t length = m - start < part ? m - start : part;
        for (int64_t j = 0; j < n; ++j) {
            V* __restrict const to = &c.values[start + j * m];
            int64_t p = 0;
            for (; p + 4 <= k; p += 4) {
                const V *const a0 = &a.values[start + p * m], *const a1 = a0 + m, *const a2 = a1 + m, *const a3 = a2 + m;
                const V b0 = b(p, j), b1 = b(p + 1, j), b2 = b(p + 2, j), b3 = b(p + 3, j);
                for (int64_t i = 0; i < length; ++i)
                    to[i] = to[i] + times(a0[i], b0) + times(a1[i], b1) + times(a2[i], b2) + times(a3[i], b3);
            }
            for (; p < k; ++p) {
                const V *const from = &a.values[start + p * m], factor = b(p, j);
                for (int64_t i = 0; i < length; ++i) to[i] = to[i] + times(from[i], factor);
            }
        }
    }
    return c;
}

// C = alpha P + beta C, in all of C or half of it; with beta 0 nothing is read.
template <class V, class T>
void put(const matrix<V>& p, V alpha, V beta, T* c, int64_t ldc, int fill = CUBLAS_FILL_MODE_FULL) {
    for (int64_t j = 0; j < p.columns; ++j) {
        for (int64_t i = 0; i < p.rows; ++i) {
            if ((fill == CUBLAS_FILL_MODE_LOWER && i < j) || (fill == CUBLAS_FILL_MODE_UPPER && i > j)) continue;
            T& to = c[i + j * ldc];
            store(to, beta == V() ? times(alpha, p(i, j)) : times(alpha, p(i, j)) + times(beta, loaded<V>(to)));
        }
    }
}
template <class V, class T>
void put_vector(const matrix<V>& p, V alpha, V beta, T* y, int64_t step) {
    T* const first = first_of(y, p.rows, step);
    for (int64_t i = 0; i < p.rows; ++i) {
        T& to = first[i * step];
        store(to, beta == V() ? times(alpha, p.values[i]) : times(alpha, p.values[i]) + times(beta, loaded<V>(to)));
    }
}

// Solves A X = B for a triangular matrix.
template <class V>
void solve(const matrix<V>& a, bool is_lower, matrix<V>& b) {
    const int64_t n = a.rows;
    for (int64_t j = 0; j < b.columns; ++j) {
        V* const x = &b.values[j * n];
        for (int64_t step = 0; step < n; ++step) {
            const int64_t p = is_lower ? step : n - 1 - step;
            x[p] = x[p] / a(p, p);
            for (int64_t i = is_lower ? p + 1 : 0; i < (is_lower ? n : p); ++i) x[i] = x[i] - times(a(i, p), x[p]);
        }
    }
}
template <class V>
matrix<V> transposed(const matrix<V>& a) { return packed<V>(a.values.data(), a.rows, a.columns, a.rows, CUBLAS_OP_T); }

// A sum in halves, whose rounding does not add up.
template <class V, class F>
V total(int64_t first, int64_t last, F value_of) {
    if (last - first > 256) {
        const int64_t middle = first + (last - first) / 2;
        return total<V>(first, middle, value_of) + total<V>(middle, last, value_of);
    }
    V sum = V();
    for (int64_t i = first; i < last; ++i) sum = sum + value_of(i);
    return sum;
}
template <class V, class T, class U>
V dot(int64_t n, const T* x, int64_t step_x, const U* y, int64_t step_y, bool conjugates) {
    const T* const a = first_of(x, n, step_x);
    const U* const b = first_of(y, n, step_y);
    return total<V>(0, n, [&](int64_t i) {
        const V left = loaded<V>(a[i * step_x]);
        return times(conjugates ? conjugate(left) : left, loaded<V>(b[i * step_y]));
    });
}
// Scaled, so that no square is too large.
template <class T>
real_t<T> norm(int64_t n, const T* x, int64_t step) {
    typedef real_t<T> real;
    real largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = fmax(largest, std::abs(loaded<value_t<T>>(x[i * step])));
    if (largest == 0 || !isfinite(largest)) return largest;
    return largest * sqrt(total<real>(0, n, [&](int64_t i) {
        const real part = std::abs(loaded<value_t<T>>(x[i * step])) / largest;
        return part * part;
    }));
}

template <class T>
void lu(T* a, int64_t lda, int64_t n, int* pivots, int* info) {
    typedef value_t<T> V;
    matrix<V> own = packed<V>(a, lda, n, n, CUBLAS_OP_N);
    *info = 0;
    for (int64_t p = 0; p < n; ++p) {
        int64_t largest = p;
        for (int64_t i = p + 1; i < n && pivots != nullptr; ++i)
            if (size_of(own(i, p)) > size_of(own(largest, p))) largest = i;
        if (pivots != nullptr) pivots[p] = static_cast<int>(largest) + 1;
        for (int64_t j = 0; j < n && largest != p; ++j) std::swap(own(p, j), own(largest, j));
        if (own(p, p) == V() && *info == 0) *info = static_cast<int>(p) + 1;
        for (int64_t i = p + 1; i < n; ++i) own(i, p) = own(i, p) / own(p, p);
        for (int64_t j = p + 1; j < n; ++j)
            for (int64_t i = p + 1; i < n; ++i) own(i, j) = own(i, j) - times(own(i, p), own(p, j));
    }
    put(own, V(1), V(), a, lda);
}

// -- types that are known when a program runs ----------------------------------------------------

template <class F>
auto with_type(int type, const void* p, F f) {
    switch (type) {
    case CUDA_R_64F: return f(static_cast<const double*>(p));
    case CUDA_R_16F: return f(static_cast<const __half*>(p));
    case CUDA_R_16BF: return f(static_cast<const __nv_bfloat16*>(p));
    case CUDA_R_8I: return f(static_cast<const signed char*>(p));
    case CUDA_R_8U: return f(static_cast<const unsigned char*>(p));
    case CUDA_R_32I: return f(static_cast<const int*>(p));
    default: return f(static_cast<const float*>(p));
    }
}
inline bool is_real(int type) { return type != CUDA_C_32F && type != CUDA_C_64F && type != CUDA_C_16F; }
inline int64_t bytes_of(int type) {
    return with_type(type, nullptr, [](const auto* p) { return static_cast<int64_t>(sizeof *p); });
}
inline double number(int type, const void* p) {
    return with_type(type, p, [](const auto* x) { return loaded<double>(*x); });
}
inline const void* moved(const void* p, int type, int64_t count) { return static_cast<const char*>(p) + count * bytes_of(type); }
template <class V>
matrix<V> packed_as(int type, const void* a, int64_t lda, int64_t rows, int64_t columns, int op) {
    return with_type(type, a, [&](const auto* p) { return packed<V>(p, lda, rows, columns, op); });
}
// fp64 where all is that, or whole numbers; fp32 for all others.
template <class F>
auto with_compute_type(int compute, F f) {
    const bool is_double = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC ||
                           compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC || compute == CUDA_R_64F ||
                           compute == CUDA_R_32I;
    return is_double ? f(double()) : f(float());
}
// The type in which alpha and beta are given.
inline int scale_type(int compute) {
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC: return CUDA_R_32I;
    case CUDA_R_64F:
    case CUDA_R_16F:
    case CUDA_R_32I: return compute;
    default: return CUDA_R_32F;
    }
}

// Arrays of places in memory of the device, and what these lead to: the places come to the host first.
template <class T>
struct places {
    std::vector<T*> all;
    places(T* const* array, int count) : all(count) {
        if (count > 0) cudaMemcpy(all.data(), (const void*)array, count * sizeof(T*), cudaMemcpyDefault);
    }
};

}  // namespace blas
}  // namespace mptune_layer

#include "mptune_layer/letters_end.hpp"
