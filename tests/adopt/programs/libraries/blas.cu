// Products, sums and solutions by cuBLAS, of matrices that a kernel fills: printed with the name of the call.
#include <cublas_v2.h>

#include <cstdio>
#include <vector>

constexpr int M = 7, N = 5, K = 6;

template <class T>
__global__ void fill(T* x, int n, double start) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = T(start + (i * 37 % 11) * 0.25 - i * 0.03125);
}

template <class T>
T* filled(int n, double start) {
    T* x;
    cudaMalloc(&x, n * sizeof(T));
    const int numbers = n * sizeof(T) / sizeof(double);
    fill<<<(numbers + 63) / 64, 64>>>((double*)x, numbers, start);
    return x;
}

void show(const char* name, const void* device, int bytes) {
    std::vector<double> values(bytes / sizeof(double));
    cudaMemcpy(values.data(), device, bytes, cudaMemcpyDeviceToHost);
    printf("%s", name);
    for (double value : values) printf(" %.17g", value);
    printf("\n");
}

int main() {
    cublasHandle_t handle;
    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
    const double alpha = 1.5, beta = -0.5, one = 1;
    double* a = filled<double>(M * K, 1);
    double* b = filled<double>(K * N, 2);
    double* c = filled<double>(M * N, 3);
    cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, a, M, b, K, &beta, c, M);
    show("gemm", c, M * N * 8);
    c = filled<double>(M * N, 3);
    cublasDgemm(handle, CUBLAS_OP_T, CUBLAS_OP_T, M, N, K, &alpha, a, K, b, N, &beta, c, M);
    show("gemm_transposed", c, M * N * 8);
    cublasDgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &alpha, a, 2, 8, b, 4, 12, &beta, c, 2, 6, 2);
    show("gemm_strided", c, 12 * 8);

    double *x = filled<double>(M, 4), *y = filled<double>(K, 5), *result;
    cudaMalloc(&result, sizeof(double));
    cublasDgemv(handle, CUBLAS_OP_T, M, K, &alpha, a, M, x, 1, &beta, y, 1);
    show("gemv", y, K * 8);
    cublasDger(handle, M, K, &alpha, x, 1, y, 1, a, M);
    show("ger", a, M * K * 8);
    cublasDaxpy(handle, K, &alpha, x, 1, y, 1);
    show("axpy", y, K * 8);
    cublasDscal(handle, 3, &beta, y, 2);
    show("scal", y, K * 8);
    double sum = 0, length = 0, size = 0;
    int largest = 0;
    cublasDdot(handle, K, x, 1, y, -1, &sum);
    cublasDnrm2(handle, K, y, 1, &length);
    cublasDasum(handle, K, y, 1, &size);
    cublasIdamax(handle, K, y, 1, &largest);
    printf("sums %.17g %.17g %.17g %d\n", sum, length, size, largest);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
    cublasDdot(handle, K, x, 1, x, 1, result);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
    show("dot_on_device", result, 8);

    double* square = filled<double>(K * K, 6);
    double* rhs = filled<double>(K * N, 7);
    cublasDtrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, K, N, &alpha, square, K, rhs, K);
    show("trsm", rhs, K * N * 8);
    rhs = filled<double>(N * K, 7);
    cublasDtrsm(handle, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, CUBLAS_DIAG_UNIT, N, K, &one, square, K, rhs, N);
    show("trsm_right", rhs, N * K * 8);
    cublasDsyrk(handle, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, K, N, &alpha, rhs, K, &beta, square, K);
    show("syrk", square, K * K * 8);
    cublasDsymv(handle, CUBLAS_FILL_MODE_LOWER, K, &alpha, square, K, x, 1, &beta, y, 1);
    show("symv", y, K * 8);
    cublasDgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, K, &alpha, rhs, K, &beta, rhs, N, c, N);
    show("geam", c, N * K * 8);

    const cuDoubleComplex z = make_cuDoubleComplex(0.5, -1), none = make_cuDoubleComplex(0, 0);
    cuDoubleComplex *p = filled<cuDoubleComplex>(12, 1), *q = filled<cuDoubleComplex>(12, 2), *r = filled<cuDoubleComplex>(9, 3);
    cublasZgemm(handle, CUBLAS_OP_C, CUBLAS_OP_N, 3, 3, 4, &z, p, 4, q, 4, &none, r, 3);
    show("zgemm", r, 9 * 16);
    cuDoubleComplex product;
    cublasZdotc(handle, 12, p, 1, q, 1, &product);
    printf("zdotc %.17g %.17g\n", product.x, product.y);
    cublasDestroy(handle);
    return 0;
}
