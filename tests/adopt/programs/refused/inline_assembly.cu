// Multiplies in PTX.
#include <cuda_runtime.h>

__global__ void multiply(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double y;
    if (i < n) {
        asm("mul.f64 %0, %1, %1;" : "=d"(y) : "d"(x[i]));
        x[i] = y;
    }
}

int main() {
    double* x;
    cudaMalloc(&x, 64 * sizeof(double));
    cudaMemset(x, 0, 64 * sizeof(double));
    multiply<<<1, 64>>>(x, 64);
    return 0;
}
