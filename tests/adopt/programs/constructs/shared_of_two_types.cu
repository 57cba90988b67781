// Dynamic shared memory of numbers and indices, and what asks how much of it there may be.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void both(const double* x, double* y, int n) {
    extern __shared__ unsigned char room[];
    double* values = reinterpret_cast<double*>(room);
    int* order = (int*)(values + blockDim.x);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[threadIdx.x] = x[i];
    order[threadIdx.x] = blockDim.x - 1 - threadIdx.x;
    __syncthreads();
    y[i] = values[order[threadIdx.x]] * 2.0;
}
int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    int bytes = 128 * (sizeof(double) + sizeof(int));
    cudaFuncSetAttribute(both, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute((const void*)both, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    int blocks = 0, grid = 0, block = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, both, 128, bytes);
    cudaOccupancyMaxPotentialBlockSize(&grid, &block, both, 0, 0);
    cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, both, [](int b) { return size_t(b) * 12; });
    both<<<2, 128, bytes>>>(x, y, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.17g\n", v);
}
