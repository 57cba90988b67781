#pragma once

#include "cuda_fp16.h"

#if defined(__cplusplus)
MPTUNE_SHORT_TYPE(__nv_bfloat16, mptune_layer::to_bfloat16, mptune_layer::from_bfloat16)
typedef __nv_bfloat16 nv_bfloat16;
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
#endif
