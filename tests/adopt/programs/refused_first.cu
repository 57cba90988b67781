// What a refused kernel alone writes is copied back as well as what another one makes of it.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

// Of each warp of 32 numbers the sum of those from here on.
__global__ void gather(const double* x, double* values) {
    int i = blockIdx.x * 32 + threadIdx.x;
    double sum = x[i];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    values[i] = __shfl_sync(0xffffffff, sum, 0);
}

__global__ void halve(const double* values, double* halves, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) halves[i] = 0.5 * values[i];
}

int main() {
    const int n = 32 * 20;
    std::vector<double> x(n), values(n), halves(n);
    for (int i = 0; i < n; i++) x[i] = 1.0 / (1 + i);
    double *d_x, *d_values, *d_halves;
    cudaMalloc(&d_x, n * sizeof(double));
    cudaMalloc(&d_values, n * sizeof(double));
    cudaMalloc(&d_halves, n * sizeof(double));
    cudaMemcpy(d_x, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    gather<<<n / 32, 32>>>(d_x, d_values);
    halve<<<n / 64, 64>>>(d_values, d_halves, n);
    cudaMemcpy(values.data(), d_values, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(halves.data(), d_halves, n * sizeof(double), cudaMemcpyDeviceToHost);
    bool passed = true;
    for (int i = 0; i < n; i++) passed &= std::fabs(values[i] - 2 * halves[i]) < 1e-12 && values[i] > 0;
    printf("%s\n", passed ? "PASS" : "FAIL");
    return !passed;
}
