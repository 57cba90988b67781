// What a plain CUDA program needs to be built as C++ for PROMISE: memory of a device whose element type is that of the
// kernel's parameter, and launches that run the threads one after the other. `benchmarks/adopt.py` writes the programs.
//
// The host's own numbers stay double (`host_real`). A copy to the device is converted when a kernel is launched on it,
// a copy back is converted again, and is what PROMISE compares: at most 500 numbers of each, evenly spread.
// With -DTIMED launches are repeated, run on all cores, and print their median time instead.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
// The functions of float, too, as in CUDA.
#include <math.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

typedef double host_real;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
// Signed, as loops over them are vectorised more often.
static thread_local struct Index {
    int x, y, z;
} threadIdx, blockIdx, blockDim, gridDim;

template <class T>
struct four {
    T x, y, z, w;
};
using host_four = four<host_real>;
inline host_four make_host_four(double x, double y, double z, double w) { return {x, y, z, w}; }

template <class T>
struct scalar_of {
    using type = T;
};
template <class T>
struct scalar_of<four<T>> {
    using type = T;
};

#ifdef TIMED
// The runtime library has these for float only.
#define FUNCTION(name) \
    inline _Float16 name(_Float16 x) { return (_Float16)::name##f((float)x); }
FUNCTION(sqrt) FUNCTION(exp) FUNCTION(log) FUNCTION(sin) FUNCTION(cos) FUNCTION(erfc)
#undef FUNCTION
#endif

template <class T>
inline T rsqrt(T x) {
    return T(1.0) / sqrt(x);
}

class Device {
  public:
    std::vector<host_real> values;

    template <class T>
    operator T*() {
        using Scalar = typename scalar_of<std::remove_const_t<T>>::type;
        auto typed = std::make_shared<std::vector<Scalar>>(values.size());
        for (size_t i = 0; i < values.size(); i++) (*typed)[i] = static_cast<Scalar>(values[i]);
        back_ = [this, typed] {
            for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<host_real>((*typed)[i]);
#ifndef TIMED
            size_t stride = (values.size() + 499) / 500;
            std::vector<Scalar> some;
            for (size_t i = 0; i < values.size(); i += stride) some.push_back((*typed)[i]);
            promise_dump("answer", some.data(), (long)some.size());
#endif
        };
        return reinterpret_cast<T*>(typed->data());
    }

    void bring_back() { back_(); }

  private:
    std::function<void()> back_;
};

enum Direction { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline int cudaMalloc(Device* device, size_t bytes) {
    device->values.resize(bytes / sizeof(host_real));
    return 0;
}
inline int cudaMemcpy(Device& device, const void* from, size_t bytes, Direction) {
    std::memcpy(device.values.data(), from, bytes);
    return 0;
}
inline int cudaMemcpy(void* to, Device& device, size_t bytes, Direction) {
    device.bring_back();
    std::memcpy(to, device.values.data(), bytes);
    return 0;
}
inline int cudaFree(Device&) { return 0; }
inline int cudaDeviceSynchronize() { return 0; }

template <auto kernel>
struct Launch;

template <class... P, void (*kernel)(P...)>
struct Launch<kernel> {
    template <class... A>
    static void run(dim3 grid, dim3 block, A&... given) {
        // Converted once, not by each thread.
        const std::tuple<P...> arguments{static_cast<P>(given)...};
#ifdef TIMED
        std::vector<double> times_ms;
        once(grid, block, arguments);
        for (int repeat = 0; repeat < 15; repeat++) {
            const auto start = std::chrono::steady_clock::now();
            once(grid, block, arguments);
            const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
            times_ms.push_back(took.count());
        }
        std::sort(times_ms.begin(), times_ms.end());
        std::printf("TIME_MS %.6f\n", times_ms[times_ms.size() / 2]);
        std::fflush(stdout);
#else
        once(grid, block, arguments);
#endif
    }

  private:
    static void once(dim3 grid, dim3 block, const std::tuple<P...>& arguments) {
        const int rows = grid.y, columns = grid.x;
#ifdef TIMED
#pragma omp parallel for collapse(2)
#endif
        for (int row = 0; row < rows; row++) {
            for (int column = 0; column < columns; column++) {
                blockIdx = {column, row, 0};
                std::apply([=](P... values) { threads(grid, block, values...); }, arguments);
            }
        }
    }

    // The threads of a block; counted in indices of the grid, their loop is the one that is vectorised.
    static __attribute__((flatten)) void threads(dim3 grid, dim3 block, P... values) {
        const int width = block.x, height = block.y;
        gridDim = {(int)grid.x, (int)grid.y, (int)grid.z};
        blockDim = {width, height, (int)block.z};
        for (int y = 0; y < height; y++) {
            const int first = blockIdx.x * blockDim.x;
#pragma GCC ivdep
            for (int x = first; x < first + width; x++) {
                threadIdx = {x - first, y, 0};
                kernel(values...);
            }
        }
    }
};
