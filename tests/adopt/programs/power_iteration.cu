// The largest eigenvalue of a matrix: what comes out is scaled by its norm, which the host works out, and goes in again.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void set(double* matrix, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n * n) matrix[i] = 1.0 / (1 + i / n + i % n);
}

__global__ void multiply(const double* matrix, const double* x, double scale, double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += matrix[i * n + j] * x[j];
    y[i] = scale * sum;
  }
}

int main() {
  const int n = 64;
  std::vector<double> x(n, 1.0);
  double *d_matrix, *d_x, *d_y, scale = 1.0, norm = 0;
  cudaMalloc(&d_matrix, n * n * sizeof(double));
  cudaMalloc(&d_x, n * sizeof(double));
  cudaMalloc(&d_y, n * sizeof(double));
  set<<<n * n / 128, 128>>>(d_matrix, n);
  for (int turn = 0; turn < 6; ++turn) {
    cudaMemcpy(d_x, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    multiply<<<1, n>>>(d_matrix, d_x, scale, d_y, n);
    cudaMemcpy(x.data(), d_y, n * sizeof(double), cudaMemcpyDeviceToHost);
    norm = 0;
    for (double each : x) norm += each * each;
    scale = 1.0 / sqrt(norm);
  }
  printf("eigenvalue about %.4f\n", sqrt(norm));
}
