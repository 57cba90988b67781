// Limited slopes of a curve: conditional expressions between numbers of different variables, also in macros.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define AT_LEAST(a, b, c) LARGER(LARGER(a, b), c)

__device__ double limited(double one, double other) {
  double nearer = fabs(one) < fabs(other) ? one : other;
  return one * other > 0 ? nearer : 0;
}

__global__ void slopes(int n, const double* values, const double* weights, double* result) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double before = i > 0 ? values[i] - values[i - 1] : 0.0;
  double after = i < n - 1 ? values[i + 1] - values[i] : weights[i];
  double chain = i % 7 == 0 ? before
                 : i % 5 == 0 ? after : i % 3 == 0 ? weights[i] * values[i] : before * after;
  double widest = AT_LEAST(before, after, weights[i]);
  result[i] = limited(before, after) + 0.125 * chain + (i & 1 ? widest : 1);
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 1000;
  double* values = (double*)malloc(n * sizeof(double));
  double* weights = (double*)malloc(n * sizeof(double));
  for (int i = 0; i < n; ++i) values[i] = sin(0.07 * i), weights[i] = 0.5 + 0.25 * cos(0.3 * i);
  double *d_values, *d_weights, *d_result;
  cudaMalloc(&d_values, n * sizeof(double));
  cudaMalloc(&d_weights, n * sizeof(double));
  cudaMalloc(&d_result, n * sizeof(double));
  cudaMemcpy(d_values, values, n * sizeof(double), cudaMemcpyHostToDevice);
  cudaMemcpy(d_weights, weights, n * sizeof(double), cudaMemcpyHostToDevice);
  slopes<<<(n + 127) / 128, 128>>>(n, d_values, d_weights, d_result);
  cudaMemcpy(values, d_result, n * sizeof(double), cudaMemcpyDeviceToHost);
  double worst = 0;
  for (int i = 0; i < n; ++i) {
    auto value = [](int k) { return sin(0.07 * k); };
    auto weight = [](int k) { return 0.5 + 0.25 * cos(0.3 * k); };
    double before = 0, after = weight(i), nearer, chain, widest = weight(i);
    if (i > 0) before = value(i) - value(i - 1);
    if (i < n - 1) after = value(i + 1) - value(i);
    if (i % 7 == 0) chain = before;
    else if (i % 5 == 0) chain = after;
    else if (i % 3 == 0) chain = weight(i) * value(i);
    else chain = before * after;
    if (before > widest) widest = before;
    if (after > widest) widest = after;
    nearer = fabs(before) < fabs(after) ? before : after;
    if (before * after <= 0) nearer = 0;
    if (i % 2 == 0) widest = 1;
    worst = fmax(worst, fabs(values[i] - (nearer + 0.125 * chain + widest)));
  }
  printf("largest error %.3e\n%s\n", worst, worst < 1e-2 ? "PASS" : "FAIL");
  return worst < 1e-2 ? 0 : 1;
}
