// Kernels that a run shows to be no templates, between kernels that are tuned: memory of pointers, a pointer that is null
// at times, a lambda, an instantiation that calls itself, and a kernel known by a pointer alone.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void smooth(const double* from, double* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = 0.5 * from[i] + 0.25 * (from[(i + 1) % n] + from[(i + n - 1) % n]);
}

__global__ void sum_rows(double* const* rows, double* sums, int count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0.0;
    for (int row = 0; row < count; row++) sum += rows[row][i];
    sums[i] = sum;
}

__global__ void weigh(double* values, const double* weights, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= weights != nullptr ? weights[i] : 0.5;
}

template <class F>
__global__ void apply(double* values, int n, F function) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = function(values[i]);
}

__device__ double power(double x, int n) { return n == 0 ? 1.0 : x * power(x, n - 1); }

template <int N>
__global__ void raise(double* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = N > 1 ? power(values[i], N) : values[i];
}

__global__ void halve(double* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= 0.5;
}

__global__ void finish(const double* sums, double* result, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) result[i] = sums[i] * sums[i] + 1.0;
}

int main() {
    const int n = 512, count = 3;
    std::vector<double> start(n);
    for (int i = 0; i < n; i++) start[i] = 1.0 + (i * 37 % 101) / 101.0;
    double *first, *rows[count], **all, *weights, *sums, *result;
    cudaMalloc(&first, n * sizeof(double));
    cudaMalloc(&weights, n * sizeof(double));
    cudaMalloc(&sums, n * sizeof(double));
    cudaMalloc(&result, n * sizeof(double));
    cudaMalloc(&all, sizeof rows);
    for (int row = 0; row < count; row++) {
        cudaMalloc(&rows[row], n * sizeof(double));
        cudaMemcpy(first, start.data(), n * sizeof(double), cudaMemcpyHostToDevice);
        smooth<<<n / 128, 128>>>(first, rows[row], n);
    }
    cudaMemcpy(weights, start.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(all, rows, sizeof rows, cudaMemcpyHostToDevice);
    sum_rows<<<n / 128, 128>>>(all, sums, count, n);
    weigh<<<n / 128, 128>>>(sums, weights, n);
    weigh<<<n / 128, 128>>>(sums, nullptr, n);
    const double shift = 0.75;
    apply<<<n / 128, 128>>>(sums, n, [=] __device__ (double x) { return x - shift; });
    raise<1><<<n / 128, 128>>>(sums, n);
    raise<2><<<n / 128, 128>>>(sums, n);
    void (*kernel)(double*, int) = halve;
    kernel<<<n / 128, 128>>>(sums, n);
    finish<<<n / 128, 128>>>(sums, result, n);
    cudaMemcpy(start.data(), result, n * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (double value : start) sum += value;
    printf("%.12g\n", sum);
}
