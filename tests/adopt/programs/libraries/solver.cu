// A system solved by conjugate gradients: products and sums by cuBLAS, the matrix by a kernel, the start by thrust.
#include <cublas_v2.h>
#include <thrust/device_ptr.h>
#include <thrust/fill.h>
#include <thrust/reduce.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

// What is subtracted along the diagonals, from numbers that each row has.
__global__ void weights(const double* stiffness, double* weight, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) weight[i] = 2.0 + stiffness[i] * stiffness[i];
}

__global__ void assemble(const double* weight, double* matrix, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    int row = i / n, column = i % n;
    matrix[i] = row == column ? weight[row] : abs(row - column) == 1 ? -1.0 : 0.0;
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 64;
    std::vector<double> stiffness(n), answer(n);
    for (int i = 0; i < n; i++) stiffness[i] = 0.5 + 0.01 * (i % 7);
    double *d_stiffness, *d_weight, *matrix, *x, *r, *p, *ap;
    cudaMalloc(&d_stiffness, n * sizeof(double));
    cudaMalloc(&d_weight, n * sizeof(double));
    cudaMalloc(&matrix, n * n * sizeof(double));
    for (double** each : {&x, &r, &p, &ap}) cudaMalloc(each, n * sizeof(double));
    cudaMemcpy(d_stiffness, stiffness.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    weights<<<(n + 127) / 128, 128>>>(d_stiffness, d_weight, n);
    assemble<<<(n * n + 127) / 128, 128>>>(d_weight, matrix, n);

    cublasHandle_t handle;
    cublasCreate(&handle);
    const double one = 1, zero = 0;
    thrust::fill(thrust::device_ptr<double>(r), thrust::device_ptr<double>(r) + n, 1.0);
    cudaMemset(x, 0, n * sizeof(double));
    cublasDcopy(handle, n, r, 1, p, 1);
    double rr = 0, pap = 0;
    cublasDdot(handle, n, r, 1, r, 1, &rr);
    int turns = 0;
    while (rr > 1e-20 && turns++ < 200) {
        cublasDgemv(handle, CUBLAS_OP_N, n, n, &one, matrix, n, p, 1, &zero, ap, 1);
        cublasDdot(handle, n, p, 1, ap, 1, &pap);
        const double step = rr / pap, back = -step, before = rr;
        cublasDaxpy(handle, n, &step, p, 1, x, 1);
        cublasDaxpy(handle, n, &back, ap, 1, r, 1);
        cublasDdot(handle, n, r, 1, r, 1, &rr);
        const double turn = rr / before;
        cublasDscal(handle, n, &turn, p, 1);
        cublasDaxpy(handle, n, &one, r, 1, p, 1);
    }
    cudaMemcpy(answer.data(), x, n * sizeof(double), cudaMemcpyDeviceToHost);
    const double sum = thrust::reduce(thrust::device_ptr<double>(x), thrust::device_ptr<double>(x) + n);
    double expected = 0;
    for (double each : answer) expected += each;
    printf("%d turns, sum %.6f\n%s\n", turns, sum, fabs(sum - expected) < 1e-9 * fabs(sum) ? "PASS" : "FAIL");
    cublasDestroy(handle);
    return 0;
}
