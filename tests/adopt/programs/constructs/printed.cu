// A kernel that prints and asserts.
#include <cassert>
#include <cstdio>
#include <cuda_runtime.h>
__global__ void scale(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n > 0);
    if (i == 5) printf("thread %d has %g\n", i, x[i]);
    if (i < n) y[i] = 3.0 * x[i] + 0.5;
}
int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    scale<<<2, 128>>>(x, y, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.17g\n", v);
}
