// Works through batches with one buffer on the device, each with numbers of another size; sums them up on the device.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__device__ double largest;

__global__ void smooth(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    double sum = in[i];
    if (i > 0) sum += 0.5 * in[i - 1];
    if (i < n - 1) sum += 0.5 * in[i + 1];
    out[i] = sum;
  }
}

__global__ void find_largest(const double* values, int n) {
  double found = values[0];
  for (int i = 1; i < n; ++i) {
    if (values[i] > found) found = values[i];
  }
  largest = found;
}

int main() {
  const int n = 1000, batches = 4;
  std::vector<double> all(n * batches);
  for (int i = 0; i < n * batches; ++i) all[i] = (i / n == 1 ? 40000.0 : 1.0) * (1.03 + i % 7 * 0.1 + i / n);
  double *in, *out;
  cudaMalloc(&in, n * sizeof(double));
  cudaMalloc(&out, n * sizeof(double));
  double total = 0, top = 0;
  for (int batch = 0; batch < batches; ++batch) {
    cudaMemcpy(in, &all[batch * n], n * sizeof(double), cudaMemcpyHostToDevice);
    smooth<<<(n + 127) / 128, 128>>>(in, out, n);
    find_largest<<<1, 1>>>(out, n);
    cudaMemcpy(&all[batch * n], out, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&top, largest, sizeof(double));
    total += top;
  }
  for (double value : all) total += value;
  printf("sum of all %.10g\n", total);
}
