// Waits for the whole grid.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

__global__ void twice(double* x, double* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    cooperative_groups::this_grid().sync();
    x[i] = y[63 - i];
}

int main() {
    double *x, *y;
    cudaMalloc(&x, 64 * sizeof(double));
    cudaMalloc(&y, 64 * sizeof(double));
    void* arguments[] = {&x, &y};
    cudaLaunchCooperativeKernel((void*)twice, dim3(2), dim3(32), arguments, 0, 0);
    return 0;
}
