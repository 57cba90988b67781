// A device function that is instantiated for two lengths in one type, and changes what it is given.
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

template <typename T, int N>
__device__ void halve(T (&values)[N], T& sum) {
    for (int k = 0; k < N; k++) {
        values[k] *= T(0.5);
        sum += values[k];
    }
}

__global__ void sums(const double* x, double* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double four[4], eight[8], sum = 0;
    for (int k = 0; k < 4; k++) four[k] = x[i] + k;
    for (int k = 0; k < 8; k++) eight[k] = x[i] * k;
    halve(four, sum);
    halve(eight, sum);
    out[i] = sum;
}

int main() {
    const int count = 200;
    std::vector<double> x(count), out(count);
    for (int i = 0; i < count; i++) x[i] = 1.0 / (1 + i);
    double *d_x, *d_out;
    cudaMalloc(&d_x, count * sizeof(double));
    cudaMalloc(&d_out, count * sizeof(double));
    cudaMemcpy(d_x, x.data(), count * sizeof(double), cudaMemcpyHostToDevice);
    sums<<<(count + 63) / 64, 64>>>(d_x, d_out, count);
    cudaMemcpy(out.data(), d_out, count * sizeof(double), cudaMemcpyDeviceToHost);
    bool passed = out[0] == 2 + 3 + 14 && out[1] == 1 + 3 + 7;
    printf("%s\n", passed ? "PASSED" : "FAILED");
    return !passed;
}
