// What the libraries for kernels that programs share with templates need besides CUDA.
#pragma once

#include "../cuda_runtime.h"

#define MPTUNE_COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define MPTUNE_UNROLL
