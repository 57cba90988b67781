// Whole numbers alone, in blocks of one size.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void reverse(int* values) {
    __shared__ int kept[64];
    kept[threadIdx.x] = values[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    values[blockIdx.x * 64 + threadIdx.x] = kept[63 - threadIdx.x];
}

int main() {
    int values[256];
    for (int i = 0; i < 256; i++) values[i] = i;
    int* d_values;
    cudaMalloc(&d_values, sizeof values);
    cudaMemcpy(d_values, values, sizeof values, cudaMemcpyHostToDevice);
    reverse<<<4, 64>>>(d_values);
    cudaMemcpy(values, d_values, sizeof values, cudaMemcpyDeviceToHost);
    bool passed = values[0] == 63 && values[64] == 127 && values[255] == 192;
    printf("%s\n", passed ? "PASSED" : "FAILED");
    return !passed;
}
