// Stands in for CUDA's own header: the same names, on the processor.
#pragma once

#include "mptune_layer/letters_begin.hpp"

#include "mptune_layer/api.hpp"

#if defined(MPTUNE_READING)
#include "mptune_layer/mathematics.hpp"
#include "mptune_layer/textures.hpp"
#elif defined(__CUDACC__) || defined(__HIPCC__)
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "mptune_layer/mathematics.hpp"
#include "mptune_layer/launch.hpp"
#include "mptune_layer/textures.hpp"
#else
#define __host__
#define __device__
#define __global__
#endif

#include "mptune_layer/letters_end.hpp"
