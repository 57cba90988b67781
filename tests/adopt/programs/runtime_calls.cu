// Calls of the runtime and functions of the device, each checked against a plain loop; prints PASS or what failed.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(condition) \
  if (!(condition)) { printf("line %d\nFAIL\n", __LINE__); return 1; }

__constant__ double weights[4];
__device__ int visits;

struct Field {
  double* values;
  int count;
  float scale;
};

__global__ void weigh(Field field) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < field.count) field.values[i] = weights[i % 4] * field.scale;
  if (i < field.count) atomicAdd(&visits, 1);
}

// The sums of blocks, in shared memory whose size the launch gives; the last 32 in a warp.
__global__ void sums(const double* values, double* result, int n) {
  extern __shared__ double part[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? values[i] : 0.0;
  __syncthreads();
  for (int half = blockDim.x / 2; half >= 32; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    double sum = part[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x == 0) atomicAdd(result, sum);
  }
}

// Indices are unsigned: below zero they are large.
__global__ void wrap(unsigned* out, float2* pairs) {
  out[threadIdx.x] = threadIdx.x - 1 < blockDim.x ? threadIdx.x - 1 : 77;
  pairs[threadIdx.x] = make_float2(rsqrtf(threadIdx.x + 1.0f), fmaxf(threadIdx.x, 2.0f));
}

__global__ void scale_rows(double* rows, size_t pitch, int width, int height) {
  int x = threadIdx.x, y = blockIdx.x;
  if (x < width && y < height) ((double*)((char*)rows + y * pitch))[x] *= 2.0;
}

template <typename T, int N>
__global__ void power(T* values, T base) {
  T product = base;
  for (int i = 1; i < N; ++i) product *= base;
  values[threadIdx.x] = max(product, T(threadIdx.x));
}

int main() {
  const int n = 1000;
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices) == cudaSuccess && devices == 1);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.warpSize == 32);
  cudaStream_t stream;
  cudaEvent_t start, stop;
  cudaStreamCreate(&stream);
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  cudaEventRecord(start, stream);

  const double table[4] = {1.0, 0.5, 0.25, 0.125};
  CHECK(cudaMemcpyToSymbol(weights, table, sizeof table) == cudaSuccess);
  double* values;
  cudaMalloc(&values, n * sizeof(double));
  weigh<<<(n + 127) / 128, 128, 0, stream>>>(Field{values, n, 2.0f});
  int visited = 0;
  cudaMemcpyFromSymbol(&visited, visits, sizeof visited);
  CHECK(visited == n);

  double *result, host_result = 0, expected = 0;
  cudaMallocManaged(&result, sizeof *result);
  *result = 3.0;
  sums<<<8, 128, 128 * sizeof(double)>>>(values, result, n);
  cudaDeviceSynchronize();
  for (int i = 0; i < n; ++i) expected += table[i % 4] * 2.0f;
  CHECK(fabs(*result - 3.0 - expected) < 1e-12 * expected);
  cudaMemcpy(&host_result, result, sizeof host_result, cudaMemcpyDefault);
  CHECK(host_result == *result);

  unsigned* wrapped;
  float2* pairs;
  cudaMalloc(&wrapped, 4 * sizeof(unsigned));
  cudaMalloc(&pairs, 4 * sizeof(float2));
  cudaMemset(wrapped, 255, 4 * sizeof(unsigned));
  wrap<<<1, 4>>>(wrapped, pairs);
  unsigned back[4];
  float2 back_pairs[4];
  cudaMemcpy(back, wrapped, sizeof back, cudaMemcpyDeviceToHost);
  cudaMemcpyAsync(back_pairs, pairs, sizeof back_pairs, cudaMemcpyDeviceToHost, stream);
  CHECK(back[0] == 77 && back[1] == 0 && back[3] == 2);
  CHECK(back_pairs[3].x == 0.5f && back_pairs[0].y == 2.0f);

  const int width = 5, height = 3;
  double rows[height][width], doubled[height][width], *pitched;
  for (int i = 0; i < width * height; ++i) rows[i / width][i % width] = i;
  size_t pitch;
  cudaMallocPitch(&pitched, &pitch, width * sizeof(double), height);
  cudaMemcpy2D(pitched, pitch, rows, sizeof rows[0], sizeof rows[0], height, cudaMemcpyHostToDevice);
  scale_rows<<<height, 32>>>(pitched, pitch, width, height);
  cudaMemcpy2D(doubled, sizeof rows[0], pitched, pitch, sizeof rows[0], height, cudaMemcpyDeviceToHost);
  for (int i = 0; i < width * height; ++i) CHECK(doubled[i / width][i % width] == 2.0 * i);

  double powers[8];
  power<double, 3><<<1, 8>>>(values, 1.5);
  cudaMemcpy(powers, values, sizeof powers, cudaMemcpyDeviceToHost);
  CHECK(powers[0] == 3.375 && powers[7] == 7.0);

  power<float, 2><<<1, 2048>>>((float*)values, 1.0f);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
  CHECK(cudaMemcpy(values, powers, n * 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);

  cudaEventRecord(stop, stream);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, stop) == cudaSuccess && milliseconds > 0);
  printf("took %f ms\nPASS\n", milliseconds);
  cudaFree(values);
  cudaFree(result);
  cudaFree(wrapped);
  cudaFree(pairs);
  cudaFree(pitched);
  return 0;
}
