// Functions and types of the C++ library in a kernel, beside one that has only functions that templates have, too.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>
#include <cuda_runtime.h>

__global__ void work(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double a = x[i], b = x[n - 1 - i];
    if (a > b) std::swap(a, b);
    std::pair<double, double> pair{a, b};
    std::array<double, 3> sides{a, b, std::sqrt(a + b)};
    auto [low, high] = pair;
    double sum = 0.0;
    for (double side : sides) sum += std::fma(side, 0.5, std::fabs(low - high));
    y[i] = sum + std::exp(-std::move(a));
}

__global__ void close(double* y, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = std::max(y[i], std::numeric_limits<double>::min()) + std::clamp(std::max(x[i], x[n - 1 - i]), 0.0, 1.0);
}

int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    work<<<2, 128>>>(x, y, n);
    close<<<2, 128>>>(y, x, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.17g\n", v);
}
