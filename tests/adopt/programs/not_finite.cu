// Holes in data, as NaN and as infinities, and kernels without parameters.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__device__ double offsets[4];

__global__ void warm() {}

__global__ void reset() {
    if (threadIdx.x < 4) offsets[threadIdx.x] = 0.0;
}

__global__ void fill_holes(const double* in, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = isnan(in[i]) || isinf(in[i]) ? 2.0 : sqrt(in[i]) + offsets[i & 3];
}

int main() {
    int n = 1000;
    std::vector<double> values(n);
    for (int i = 0; i < n; i++) values[i] = i % 20 == 3 ? NAN : i % 50 == 5 ? -INFINITY : std::sin(0.1 * i) + 1.5;
    double *d_in, *d_out;
    cudaMalloc(&d_in, n * sizeof(double));
    cudaMalloc(&d_out, n * sizeof(double));
    cudaMemcpy(d_in, values.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    warm<<<1, 1>>>();
    reset<<<1, 32>>>();
    fill_holes<<<(n + 127) / 128, 128>>>(d_in, d_out, n);
    cudaMemcpy(values.data(), d_out, n * sizeof(double), cudaMemcpyDeviceToHost);
    printf("%s\n", values[3] == 2.0 && values[5] == 2.0 && values[4] == sqrt(std::sin(0.4) + 1.5) ? "PASS" : "FAIL");
    return 0;
}
