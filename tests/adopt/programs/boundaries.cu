// Vectors in constant memory, sizes that are sums, copies on the device, and a struct whose numbers the host reads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__constant__ double2 table[4];
__constant__ double weights[3];

struct Law {
  double share, least;
};

__device__ double mixed(double a, double b) { return a * b + 0.1; }

__global__ void move(const double3* at, double3* moved, double* sums, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double3 position = at[i];
  double2 pair = table[i % 4];
  moved[i] = make_double3(position.x * pair.x + weights[i % 3], position.y * pair.y, position.z - 0.3);
  sums[i] += mixed(position.x, position.y) + pair.x;
}

__global__ void halve(const double* from, double* to, int n, const Law law) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = law.share * from[i] + law.least;
}

int main() {
  const int n = 90, rest = 6;
  std::vector<double3> at(n), moved(n);
  std::vector<double> sums(n + rest, 0.7), halves(n);
  for (int i = 0; i < n; ++i) at[i] = make_double3(1.0 + 0.01 * i, std::cos(0.3 * i), 2.0 / (i + 1));
  const double2 pairs[4] = {{0.1, 1.1}, {0.7, 1.3}, {1.9, 0.4}, {0.3, 0.9}};
  const double third[3] = {1.0 / 3, 2.0 / 3, 0.1};
  Law law{0.5, 1.0 / 3};
  sums[1] = std::max(law.least, 0.2);
  double3 *d_at, *d_moved;
  double *d_sums, *d_copy, *d_halves;
  const size_t bytes = n * sizeof(double);
  cudaMalloc(&d_at, n * sizeof(double3));
  cudaMalloc(&d_moved, n * sizeof(double3));
  cudaMalloc(&d_sums, rest * sizeof(double) + n * sizeof(double));
  cudaMalloc(&d_copy, bytes + 48);
  cudaMalloc(&d_halves, bytes);
  cudaMemcpyToSymbol(table, pairs, sizeof(pairs));
  cudaMemcpyToSymbol(weights, third, 3 * sizeof(double));
  cudaMemcpy(d_at, at.data(), n * sizeof(double3), cudaMemcpyHostToDevice);
  cudaMemcpy(d_sums, sums.data(), rest * sizeof(double) + bytes, cudaMemcpyHostToDevice);
  cudaMemset(d_copy, 0, bytes + 48);
  move<<<(n + 31) / 32, 32>>>(d_at, d_moved, d_sums, n);
  cudaMemcpy(d_copy, d_sums, bytes + 16, cudaMemcpyDeviceToDevice);
  halve<<<(n + 31) / 32, 32>>>(d_copy, d_halves, n, law);
  cudaMemcpy(moved.data(), d_moved, n * sizeof(double3), cudaMemcpyDeviceToHost);
  cudaMemcpy(sums.data(), d_sums, (n + rest) * sizeof(double), cudaMemcpyDeviceToHost);
  cudaMemcpy(halves.data(), d_halves, bytes, cudaMemcpyDeviceToHost);
  double all = 0.0;
  for (int i = 0; i < n; ++i) all += moved[i].x + moved[i].y + moved[i].z + sums[i] + halves[i];
  std::printf("%.6g\n", all);
}
