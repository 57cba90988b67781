// A kernel that launches another.
#include <cuda_runtime.h>

__global__ void inner(double* x) { x[threadIdx.x] += 1.0; }

__global__ void outer(double* x) {
    if (threadIdx.x == 0) inner<<<1, 64>>>(x);
}

int main() {
    double* x;
    cudaMalloc(&x, 64 * sizeof(double));
    cudaMemset(x, 0, 64 * sizeof(double));
    outer<<<1, 32>>>(x);
    return 0;
}
