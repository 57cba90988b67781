// A struct with operator() by value, to a template and with numbers of its own.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
struct Growth { double rate, limit; __host__ __device__ double operator()(double u) const { return u + rate * u * (1.0 - u / limit); } };
template <class F> __global__ void each(double* u, int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) u[i] = f(u[i]);
}
int main() {
    const int n = 2000;
    double u[n], *d;
    for (int i = 0; i < n; ++i) u[i] = 0.1 + 0.001 * i;
    cudaMalloc(&d, n * sizeof(double));
    cudaMemcpy(d, u, n * sizeof(double), cudaMemcpyHostToDevice);
    for (int s = 0; s < 10; ++s) each<<<(n + 63) / 64, 64>>>(d, n, Growth{0.1, 3.0});


    cudaMemcpy(u, d, n * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (double v : u) sum += v;
    std::printf("%.12g\n%s\n", sum, std::isfinite(sum) ? "PASSED" : "FAILED");
}
