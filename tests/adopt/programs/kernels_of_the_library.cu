// Kernels whose names functions of CUDA (norm) and of the C++ library (norm, distance) have, too.
#include <cuda_runtime.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <iterator>
#include <vector>

using namespace std;

__global__ void norm(const double* x, const double* y, double* r, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) r[i] = sqrt(x[i] * x[i] + y[i] * y[i]);
}

namespace apart {
__global__ void distance(const double* x, double* r, double from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) r[i] += fabs(x[i] - from);
}
}  // namespace apart

int main() {
    const int n = 1003;
    vector<double> x(n), y(n), r(n);
    for (int i = 0; i < n; ++i) {
        x[i] = sin(i * 0.1);
        y[i] = cos(i * 0.3);
    }
    double *dx, *dy, *dr;
    cudaMalloc(&dx, n * sizeof(double));
    cudaMalloc(&dy, n * sizeof(double));
    cudaMalloc(&dr, n * sizeof(double));
    cudaMemcpy(dx, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(dy, y.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    norm<<<(n + 127) / 128, 128>>>(dx, dy, dr, n);
    apart::distance<<<(n + 127) / 128, 128>>>(dx, dr, 2, n);
    cudaMemcpy(r.data(), dr, n * sizeof(double), cudaMemcpyDeviceToHost);
    double wrong = 0;
    for (int i = 0; i < n; ++i) wrong = max(wrong, abs(r[i] - sqrt(x[i] * x[i] + y[i] * y[i]) - abs(x[i] - 2)));
    printf(wrong < 1e-14 ? "PASS\n" : "FAIL\n");
}
