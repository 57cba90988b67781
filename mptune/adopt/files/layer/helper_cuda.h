// The part of the CUDA samples' helper that programs use to check calls.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "cuda_runtime.h"

inline void mptune_check(cudaError_t error, const char* call, const char* file, int line) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}
#define checkCudaErrors(call) mptune_check((call), #call, __FILE__, __LINE__)
#define getLastCudaError(message) mptune_check(cudaGetLastError(), message, __FILE__, __LINE__)
inline int findCudaDevice(int, const char**) { return 0; }
inline int gpuGetMaxGflopsDeviceId() { return 0; }
