// Adds up a warp by shuffles.
#include <cuda_runtime.h>

__global__ void sum_warps(const double* x, double* sums) {
    double sum = x[blockIdx.x * 32 + threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

int main() {
    double *x, *sums;
    cudaMalloc(&x, 64 * sizeof(double));
    cudaMalloc(&sums, 2 * sizeof(double));
    cudaMemset(x, 0, 64 * sizeof(double));
    sum_warps<<<2, 32>>>(x, sums);
    return 0;
}
