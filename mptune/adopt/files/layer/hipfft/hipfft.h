// hipFFT: cuFFT under other names.
#pragma once

#include "../hip/hip_runtime.h"
#include "../cufft.h"

#define hipfftResult_t cufftResult_t
#define hipfftResult cufftResult
#define hipfftType_t cufftType_t
#define hipfftType cufftType
#define hipfftHandle cufftHandle
#define hipfftReal cufftReal
#define hipfftDoubleReal cufftDoubleReal
#define hipfftComplex cufftComplex
#define hipfftDoubleComplex cufftDoubleComplex
#define hipfftCreate cufftCreate
#define hipfftDestroy cufftDestroy
#define hipfftMakePlanMany cufftMakePlanMany
#define hipfftPlanMany cufftPlanMany
#define hipfftMakePlan1d cufftMakePlan1d
#define hipfftMakePlan2d cufftMakePlan2d
#define hipfftMakePlan3d cufftMakePlan3d
#define hipfftPlan1d cufftPlan1d
#define hipfftPlan2d cufftPlan2d
#define hipfftPlan3d cufftPlan3d
#define hipfftSetStream cufftSetStream
#define hipfftSetAutoAllocation cufftSetAutoAllocation
#define hipfftSetWorkArea cufftSetWorkArea
#define hipfftGetSize cufftGetSize
#define hipfftGetVersion cufftGetVersion
#define hipfftExecC2C cufftExecC2C
#define hipfftExecZ2Z cufftExecZ2Z
#define hipfftExecR2C cufftExecR2C
#define hipfftExecD2Z cufftExecD2Z
#define hipfftExecC2R cufftExecC2R
#define hipfftExecZ2D cufftExecZ2D
#define HIPFFT_FORWARD CUFFT_FORWARD
#define HIPFFT_INVERSE CUFFT_INVERSE
#define HIPFFT_SUCCESS CUFFT_SUCCESS
#define HIPFFT_INVALID_PLAN CUFFT_INVALID_PLAN
#define HIPFFT_ALLOC_FAILED CUFFT_ALLOC_FAILED
#define HIPFFT_INVALID_TYPE CUFFT_INVALID_TYPE
#define HIPFFT_INVALID_VALUE CUFFT_INVALID_VALUE
#define HIPFFT_INTERNAL_ERROR CUFFT_INTERNAL_ERROR
#define HIPFFT_EXEC_FAILED CUFFT_EXEC_FAILED
#define HIPFFT_SETUP_FAILED CUFFT_SETUP_FAILED
#define HIPFFT_INVALID_SIZE CUFFT_INVALID_SIZE
#define HIPFFT_UNALIGNED_DATA CUFFT_UNALIGNED_DATA
#define HIPFFT_NOT_SUPPORTED CUFFT_NOT_SUPPORTED
#define HIPFFT_R2C CUFFT_R2C
#define HIPFFT_C2R CUFFT_C2R
#define HIPFFT_C2C CUFFT_C2C
#define HIPFFT_D2Z CUFFT_D2Z
#define HIPFFT_Z2D CUFFT_Z2D
#define HIPFFT_Z2Z CUFFT_Z2Z
