// cuBLAS on the host.
#pragma once

#include "mptune_layer/blas.hpp"
#include "mptune_layer/letters_begin.hpp"

#define MPTUNE_BLAS(name) cublas##name
#include "mptune_layer/blas_functions.hpp"
#undef MPTUNE_BLAS
#include "mptune_layer/letters_end.hpp"

inline const char* cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "the operation completed successfully" : "the operation failed";
}
inline const char* cublasGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
#define cublasCreate_v2 cublasCreate
#define cublasDestroy_v2 cublasDestroy
#define cublasSetStream_v2 cublasSetStream
#define cublasSetPointerMode_v2 cublasSetPointerMode
#define cublasSgemm_v2 cublasSgemm
#define cublasDgemm_v2 cublasDgemm
#define cublasSetVector_64 cublasSetVector
#define cublasGetVector_64 cublasGetVector
