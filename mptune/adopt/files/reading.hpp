// What libclang reads before every file of a program: the layer's own headers, with CUDA's attributes.
#pragma once
#define MPTUNE_READING
#include <cstddef>
#ifdef _LIBCPP_VERSION  // most of its headers have some of the mathematical functions
#pragma clang force_cuda_host_device begin
#include <cmath>
#include <cstdlib>
#pragma clang force_cuda_host_device end
#endif

// Device code may call the functions of C and the C++ library that CUDA offers it; constexpr ones it may call anyhow.
#pragma clang force_cuda_host_device begin
#include <utility>
#pragma clang force_cuda_host_device end
#include <exception>
#pragma clang force_cuda_host_device begin
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#pragma clang force_cuda_host_device end
#include <cfloat>
#include <climits>
#include <cstdint>
#include <limits>
#pragma clang force_cuda_host_device begin
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <numeric>
#include <tuple>
#pragma clang force_cuda_host_device end


// A program without <cuda_fp16.h> may have a kernel, or a number, called half.
#if defined(MPTUNE_PLAIN)
#include "mptune_layer/api.hpp"
#include "mptune_layer/device.hpp"
#else
#include "cuda_runtime.h"
#endif

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

typedef cudaTextureObject_t hipTextureObject_t;

template <class F>
cudaError_t cudaLaunchKernel(F* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0,
                             cudaStream_t stream = 0);
#define hipLaunchKernel cudaLaunchKernel
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t stream = 0);

// What loops of C++ that are cut out of their functions have beside a launch.
namespace mptune_layer {
struct host_array {
    host_array(const volatile void* start, size_t bytes);
};
}  // namespace mptune_layer
