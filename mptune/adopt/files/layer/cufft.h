// cuFFT on the host: transforms of any length by the factors of the length, and by Bluestein's way for large primes. They are
// computed in fp64 and rounded once.
#pragma once

#include <math.h>
#include <stdint.h>

#include <complex>
#include <map>
#include <vector>

#include "cuComplex.h"
#include "mptune_layer/blas.hpp"

#include "mptune_layer/letters_begin.hpp"

#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1
typedef enum {
    CUFFT_SUCCESS, CUFFT_INVALID_PLAN, CUFFT_ALLOC_FAILED, CUFFT_INVALID_TYPE, CUFFT_INVALID_VALUE, CUFFT_INTERNAL_ERROR,
    CUFFT_EXEC_FAILED, CUFFT_SETUP_FAILED, CUFFT_INVALID_SIZE, CUFFT_UNALIGNED_DATA, CUFFT_NOT_SUPPORTED = 16
} cufftResult_t;
typedef cufftResult_t cufftResult;
typedef enum { CUFFT_R2C = 0x2a, CUFFT_C2R = 0x2c, CUFFT_C2C = 0x29, CUFFT_D2Z = 0x6a, CUFFT_Z2D = 0x6c, CUFFT_Z2Z = 0x69 } cufftType_t;
typedef cufftType_t cufftType;
typedef int cufftHandle;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef float2 cufftComplex;
typedef double2 cufftDoubleComplex;

namespace mptune_layer {
namespace fft {

typedef std::complex<double> number;
using blas::times;

inline number root(int64_t part, int64_t whole, int sign) {
    const double angle = sign * 2 * M_PI * static_cast<double>(part) / static_cast<double>(whole);
    return number(cos(angle), sin(angle));
}
std::vector<number> transformed(const std::vector<number>& in, int sign);

// As a convolution with exp(i pi k^2 / n), whose length is a power of two.
inline std::vector<number> by_convolution(const std::vector<number>& in, int sign) {
    const int64_t n = in.size();
    int64_t length = 1;
    while (length < 2 * n - 1) length *= 2;
    std::vector<number> a(length), b(length), chirp(n);
    for (int64_t k = 0; k < n; ++k) {
        chirp[k] = root(k * k % (2 * n), 2 * n, sign);
        a[k] = times(in[k], chirp[k]);
        b[k] = b[(length - k) % length] = std::conj(chirp[k]);
    }
    a = transformed(a, -1);
    b = transformed(b, -1);
    for (int64_t k = 0; k < length; ++k) a[k] = times(a[k], b[k]);
    a = transformed(a, 1);
    std::vector<number> out(n);
    for (int64_t k = 0; k < n; ++k) out[k] = times(a[k], chirp[k]) / static_cast<double>(length);
    return out;
}

// The transform of every so many numbers; the roots are those of the whole length.
inline void transform(const number* in, number* out, int64_t n, int64_t step, const std::vector<number>& roots, int sign) {
    if (n == 1) {
        *out = *in;
        return;
    }
    int64_t p = 2;
    while (n % p != 0) p = p * p > n ? n : p + 1;
    if (p > 50) {
        std::vector<number> own(n);
        for (int64_t i = 0; i < n; ++i) own[i] = in[i * step];
        const auto found = by_convolution(own, sign);
        std::copy(found.begin(), found.end(), out);
        return;
    }
    const int64_t m = n / p, whole = roots.size();
    for (int64_t r = 0; r < p; ++r) transform(in + r * step, out + r * m, m, step * p, roots, sign);
    number parts[64];
    for (int64_t k = 0; k < m; ++k) {
        for (int64_t r = 0; r < p; ++r) parts[r] = times(out[k + r * m], roots[whole / n * (k * r)]);
        for (int64_t q = 0; q < p; ++q) {
            number sum = parts[0];
            for (int64_t r = 1; r < p; ++r) sum += times(parts[r], roots[whole / p * (q * r % p)]);
            out[k + q * m] = sum;
        }
    }
}
inline std::vector<number> transformed(const std::vector<number>& in, int sign) {
    const int64_t n = in.size();
    std::vector<number> out(n), roots(n);
    for (int64_t k = 0; k < n; ++k) roots[k] = root(k, n, sign);
    transform(in.data(), out.data(), n, 1, roots, sign);
    return out;
}

// How an array lies in memory: by lengths of its axes, between elements and between arrays.
struct layout {
    std::vector<int64_t> axes;
    int64_t step, distance;
    int64_t at(int64_t array, const std::vector<int64_t>& index) const {
        int64_t place = 0;
        for (size_t axis = 0; axis < index.size(); ++axis) place = place * axes[axis] + index[axis];
        return array * distance + place * step;
    }
};
struct plan {
    std::vector<int64_t> n;
    layout in, out;
    bool is_plain;  // no layouts were given
    cufftType type;
    int batch;
    cudaStream_t stream;
};
inline std::map<int, plan>& plans() {
    static auto* const all = new std::map<int, plan>;
    return *all;
}

inline bool next(std::vector<int64_t>& index, const std::vector<int64_t>& ends) {
    for (size_t axis = index.size(); axis-- > 0; index[axis] = 0)
        if (++index[axis] < ends[axis]) return true;
    return false;
}
inline number read(const float2& z) { return number(z.x, z.y); }
inline number read(const double2& z) { return number(z.x, z.y); }
inline number read(double x) { return number(x, 0); }
template <class T>
void write(T& to, number value) {
    if constexpr (std::is_floating_point_v<T>) to = static_cast<T>(value.real());
    else blas::store(to, value);
}

// Transforms along every axis. Of real numbers half of the last axis is kept, and the other half follows from that.
template <class In, class Out>
cufftResult execute(const char* name, cufftHandle handle, const In* in, Out* out, int sign) {
    const auto found = plans().find(handle);
    if (found == plans().end()) return CUFFT_INVALID_PLAN;
    const plan& p = found->second;
    const library_call here(name, changes, in, out);
    constexpr bool is_from_real = std::is_floating_point_v<In>, is_to_real = std::is_floating_point_v<Out>;
    std::vector<int64_t> half = p.n;
    half.back() = p.n.back() / 2 + 1;
    layout from = p.in, to = p.out;
    int64_t count = 1, halves = 1;
    for (const int64_t n : p.n) count *= n;
    for (const int64_t n : half) halves *= n;
    if (p.is_plain) {  // in place, rows of real numbers have room for the complex ones
        const bool is_in_place = static_cast<const void*>(in) == static_cast<const void*>(out);
        std::vector<int64_t> padded = p.n;
        padded.back() = 2 * half.back();
        const bool is_padded = is_in_place && (is_from_real || is_to_real);
        const layout real{is_padded ? padded : p.n, 1, is_padded ? 2 * halves : count}, complex{half, 1, halves};
        from = is_from_real ? real : is_to_real ? complex : layout{p.n, 1, count};
        to = is_to_real ? real : is_from_real ? complex : layout{p.n, 1, count};
    }
    std::vector<std::vector<number>> results;
    for (int array = 0; array < p.batch; ++array) {
        std::vector<number> all(count);
        std::vector<int64_t> index(p.n.size(), 0);
        int64_t place = 0;
        do {
            std::vector<int64_t> stored = index;
            const bool is_other_half = is_to_real && index.back() >= half.back();
            for (size_t axis = 0; is_other_half && axis < index.size(); ++axis) stored[axis] = (p.n[axis] - index[axis]) % p.n[axis];
            const number value = read(in[from.at(array, stored)]);
            all[place++] = is_other_half ? std::conj(value) : value;
        } while (next(index, p.n));
        int64_t step = count;
        for (const int64_t n : p.n) {
            step /= n;
            std::vector<number> line(n);
            for (int64_t first = 0; first < count; ++first) {
                if (first / step % n != 0) continue;
                for (int64_t i = 0; i < n; ++i) line[i] = all[first + i * step];
                line = transformed(line, sign);
                for (int64_t i = 0; i < n; ++i) all[first + i * step] = line[i];
            }
        }
        results.push_back(std::move(all));
    }
    for (int array = 0; array < p.batch; ++array) {
        std::vector<int64_t> index(p.n.size(), 0);
        int64_t place = 0;
        do {
            const number value = results[array][place++];
            if (!is_from_real || index.back() < half.back()) write(out[to.at(array, index)], value);
        } while (next(index, p.n));
    }
    return CUFFT_SUCCESS;
}

}  // namespace fft
}  // namespace mptune_layer

inline cufftResult cufftCreate(cufftHandle* handle) {
    static int number = 0;
    *handle = ++number;
    return CUFFT_SUCCESS;
}
inline cufftResult cufftDestroy(cufftHandle handle) {
    mptune_layer::fft::plans().erase(handle);
    return CUFFT_SUCCESS;
}
inline cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int* n, int* in_axes, int in_step, int in_distance, int* out_axes,
                                     int out_step, int out_distance, cufftType type, int batch, size_t* bytes) {
    using namespace mptune_layer::fft;
    if (rank < 1 || rank > 3) return CUFFT_INVALID_VALUE;
    const bool is_plain = in_axes == nullptr || out_axes == nullptr;
    const std::vector<int64_t> axes(n, n + rank);
    for (const int64_t each : axes)
        if (each < 1) return CUFFT_INVALID_SIZE;
    plans()[handle] = plan{axes,
                           layout{std::vector<int64_t>(is_plain ? n : in_axes, (is_plain ? n : in_axes) + rank), in_step, in_distance},
                           layout{std::vector<int64_t>(is_plain ? n : out_axes, (is_plain ? n : out_axes) + rank), out_step, out_distance},
                           is_plain, type, batch, nullptr};
    if (bytes != nullptr) *bytes = 0;
    return CUFFT_SUCCESS;
}
inline cufftResult cufftPlanMany(cufftHandle* handle, int rank, int* n, int* in_axes, int in_step, int in_distance, int* out_axes,
                                 int out_step, int out_distance, cufftType type, int batch) {
    cufftCreate(handle);
    return cufftMakePlanMany(*handle, rank, n, in_axes, in_step, in_distance, out_axes, out_step, out_distance, type, batch, nullptr);
}
inline cufftResult cufftMakePlan1d(cufftHandle handle, int x, cufftType type, int batch, size_t* bytes) {
    return cufftMakePlanMany(handle, 1, &x, nullptr, 1, 0, nullptr, 1, 0, type, batch, bytes);
}
inline cufftResult cufftMakePlan2d(cufftHandle handle, int x, int y, cufftType type, size_t* bytes) {
    int n[] = {x, y};
    return cufftMakePlanMany(handle, 2, n, nullptr, 1, 0, nullptr, 1, 0, type, 1, bytes);
}
inline cufftResult cufftMakePlan3d(cufftHandle handle, int x, int y, int z, cufftType type, size_t* bytes) {
    int n[] = {x, y, z};
    return cufftMakePlanMany(handle, 3, n, nullptr, 1, 0, nullptr, 1, 0, type, 1, bytes);
}
inline cufftResult cufftPlan1d(cufftHandle* handle, int x, cufftType type, int batch) {
    cufftCreate(handle);
    return cufftMakePlan1d(*handle, x, type, batch, nullptr);
}
inline cufftResult cufftPlan2d(cufftHandle* handle, int x, int y, cufftType type) {
    cufftCreate(handle);
    return cufftMakePlan2d(*handle, x, y, type, nullptr);
}
inline cufftResult cufftPlan3d(cufftHandle* handle, int x, int y, int z, cufftType type) {
    cufftCreate(handle);
    return cufftMakePlan3d(*handle, x, y, z, type, nullptr);
}
inline cufftResult cufftSetStream(cufftHandle, cudaStream_t) { return CUFFT_SUCCESS; }
inline cufftResult cufftSetAutoAllocation(cufftHandle, int) { return CUFFT_SUCCESS; }
inline cufftResult cufftSetWorkArea(cufftHandle, void*) { return CUFFT_SUCCESS; }
inline cufftResult cufftGetSize(cufftHandle, size_t* bytes) {
    *bytes = 0;
    return CUFFT_SUCCESS;
}
inline cufftResult cufftGetVersion(int* version) {
    *version = 11000;
    return CUFFT_SUCCESS;
}
#define MPTUNE_EXECUTE(name, In, Out, given, sign)                                      \
    inline cufftResult name(cufftHandle plan, In* in, Out* out given) {                 \
        return mptune_layer::fft::execute<In, Out>(#name, plan, in, out, sign);         \
    }
#define MPTUNE_DIRECTION , int direction
MPTUNE_EXECUTE(cufftExecC2C, float2, float2, MPTUNE_DIRECTION, direction)
MPTUNE_EXECUTE(cufftExecZ2Z, double2, double2, MPTUNE_DIRECTION, direction)
MPTUNE_EXECUTE(cufftExecR2C, float, float2, , CUFFT_FORWARD)
MPTUNE_EXECUTE(cufftExecD2Z, double, double2, , CUFFT_FORWARD)
MPTUNE_EXECUTE(cufftExecC2R, float2, float, , CUFFT_INVERSE)
MPTUNE_EXECUTE(cufftExecZ2D, double2, double, , CUFFT_INVERSE)
#undef MPTUNE_DIRECTION
#undef MPTUNE_EXECUTE

#include "mptune_layer/letters_end.hpp"
