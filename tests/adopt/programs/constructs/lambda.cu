// A lambda in a kernel, and one that a kernel is given.
#include <cstdio>
#include <cuda_runtime.h>
template <class F>
__global__ void each(double* y, int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f(i, y[i]);
}
__global__ void inner(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto twice = [&](int j) { return 2.0 * x[j]; };
    if (i < n) y[i] = twice(i) + twice(n - 1 - i);
}
int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    inner<<<2, 128>>>(x, y, n);
    double by = 1.5;
    each<<<2, 128>>>(y, n, [=] __device__ (int i, double v) { return v * by + x[i]; });
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.17g\n", v);
}
