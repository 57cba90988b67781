// Heat in a rod: explicit steps, the buffers swapped after each; prints PASS if the heat that is left is right.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void warm(int n, double width, double* rod) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) rod[i] = sin(M_PI * (i + 1) * width);
}

// One step: every point moves towards the mean of its neighbours.
__global__ void diffuse(int n, const double rate, const double* __restrict__ now, double* __restrict__ next) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    double left = i > 0 ? now[i - 1] : 0.0, right = i < n - 1 ? now[i + 1] : 0.0;
    next[i] = now[i] + rate * (left - 2.0 * now[i] + right);
  }
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 1000;
  const int steps = argc > 2 ? atoi(argv[2]) : 10;
  const double width = 1.0 / (n + 1), rate = 0.25;
  double *now, *next;
  cudaMalloc((void**)&now, n * sizeof(double));
  cudaMalloc((void**)&next, n * sizeof(double));
  const dim3 block(128), grid((n + block.x - 1) / block.x);
  warm<<<grid, block>>>(n, width, now);
  for (int step = 0; step < steps; ++step) {
    diffuse<<<grid, block>>>(n, rate, now, next);
    double* last = now;
    now = next;
    next = last;
  }
  double* rod = (double*)malloc(n * sizeof(double));
  cudaMemcpy(rod, now, n * sizeof(double), cudaMemcpyDeviceToHost);
  const double decay = pow(1.0 - 2.0 * rate * (1.0 - cos(M_PI * width)), steps);
  double worst = 0;
  for (int i = 0; i < n; ++i) worst = fmax(worst, fabs(rod[i] - decay * sin(M_PI * (i + 1) * width)));
  printf("largest error %.3e\n%s\n", worst, worst < 1e-3 ? "PASS" : "FAIL");
  cudaFree(now);
  cudaFree(next);
  free(rod);
  return worst < 1e-3 ? 0 : 1;
}
