// Numbers of 16 bits, converted as CUDA converts them.
#include <cmath>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <vector>

__global__ void blend(const __half* a, const __half* b, __half* mixed, float part, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) mixed[i] = __float2half(part * __half2float(a[i]) + (1.0f - part) * __half2float(b[i]));
}

int main() {
    const int count = 1000;
    std::vector<__half> a(count), b(count), mixed(count);
    for (int i = 0; i < count; i++) {
        a[i] = __float2half(0.01f * i);
        b[i] = __float2half(1.0f / (1 + i));
    }
    __half *d_a, *d_b, *d_mixed;
    cudaMalloc(&d_a, count * sizeof(__half));
    cudaMalloc(&d_b, count * sizeof(__half));
    cudaMalloc(&d_mixed, count * sizeof(__half));
    cudaMemcpy(d_a, a.data(), count * sizeof(__half), cudaMemcpyHostToDevice);
    cudaMemcpy(d_b, b.data(), count * sizeof(__half), cudaMemcpyHostToDevice);
    blend<<<(count + 127) / 128, 128>>>(d_a, d_b, d_mixed, 0.25f, count);
    cudaMemcpy(mixed.data(), d_mixed, count * sizeof(__half), cudaMemcpyDeviceToHost);
    bool passed = true;
    for (int i = 0; i < count; i++)
        passed = passed && std::fabs(__half2float(mixed[i]) - (0.0025f * i + 0.75f / (1 + i))) < 5e-3f;
    printf("%s\n", passed ? "PASSED" : "FAILED");
    return !passed;
}
