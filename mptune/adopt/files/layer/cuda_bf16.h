#pragma once

#include "cuda_fp16.h"

#if defined(__cplusplus)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
#endif
