// Function templates whose types are written out where they are launched and called.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

template <typename T>
__device__ T damped(const double value) {
    return T(0.5) * T(value) / (T(1) + T(value));
}

template <typename T>
__global__ void relax(T* out, const T* in, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] - by * damped<double>(in[i]);
}

int main() {
    const int n = 300;
    double in[n], out[n], *d_in, *d_out;
    for (int i = 0; i < n; i++) in[i] = 1 + i % 13;
    cudaMalloc(&d_in, n * sizeof(double));
    cudaMalloc(&d_out, n * sizeof(double));
    cudaMemcpy(d_in, in, n * sizeof(double), cudaMemcpyHostToDevice);
    relax<double><<<(n + 63) / 64, 64>>>(d_out, d_in, 0.25, n);
    cudaMemcpy(out, d_out, n * sizeof(double), cudaMemcpyDeviceToHost);
    double worst = 0;
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs(out[i] - in[i] + 0.125 * in[i] / (1 + in[i])));
    printf(worst < 1e-5 ? "PASSED\n" : "FAILED\n");
    return worst >= 1e-5;
}
