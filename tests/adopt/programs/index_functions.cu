// Functions of the device that say where a thread is, one of them by another.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ double at(const double* values, int by) { return values[place() + by]; }

__global__ void slopes(int n, const double* values, double* result) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) result[i] = at(values, 1) - at(values, 0);
}

__global__ void squares(int n, double* values) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) values[i] = 0.001 * i * i;
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 4000;
  double* values = (double*)malloc((n + 1) * sizeof(double));
  double *d_values, *d_result;
  cudaMalloc(&d_values, (n + 1) * sizeof(double));
  cudaMalloc(&d_result, n * sizeof(double));
  squares<<<(n + 128) / 128, 128>>>(n, d_values);
  slopes<<<(n + 127) / 128, 128>>>(n, d_values, d_result);
  cudaMemcpy(values, d_result, n * sizeof(double), cudaMemcpyDeviceToHost);
  double worst = 0;
  for (int i = 0; i < n; ++i) worst = fmax(worst, fabs(values[i] - 0.001 * (2 * i + 1)));
  printf("%s\n", worst < 1e-9 ? "PASS" : "FAIL");
  return worst < 1e-9 ? 0 : 1;
}
