// A rod that is smoothed, and lifted by means that a recursive function computes; and a kernel that is never launched.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__global__ void smooth(const double* from, double* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double left = from[i > 0 ? i - 1 : i], right = from[i < n - 1 ? i + 1 : i];
    to[i] = 0.25 * left + 0.5 * from[i] + 0.25 * right;
}

// Of each 32 numbers the mean.
__device__ double total(const double* x, int n) { return n == 1 ? x[0] : total(x, n / 2) + total(x + n / 2, n / 2); }
__global__ void means(const double* x, double* mean) {
    if (threadIdx.x == 0) mean[blockIdx.x] = total(x + blockIdx.x * 32, 32) / 32;
}

__global__ void lift(double* x, const double* mean, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 0.125 * mean[i / 32];
}

__device__ double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }
__global__ void never(double* x) { x[threadIdx.x] = factorial(threadIdx.x); }

int main(int argc, char** argv) {
    const int n = 32 * 40;
    std::vector<double> x(n);
    for (int i = 0; i < n; i++) x[i] = 1.0 + (i * 37 % 11) * 0.25;
    double *one, *other, *mean;
    cudaMalloc(&one, n * sizeof(double));
    cudaMalloc(&other, n * sizeof(double));
    cudaMalloc(&mean, 40 * sizeof(double));
    cudaMemcpy(one, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    for (int step = 0; step < 3; step++) {
        smooth<<<n / 128, 128>>>(one, other, n);
        means<<<40, 32>>>(other, mean);
        lift<<<n / 128, 128>>>(other, mean, n);
        smooth<<<n / 128, 128>>>(other, one, n);
    }
    if (argc > 1 && std::atoi(argv[1]) == 7) never<<<1, 32>>>(one);
    means<<<40, 32>>>(one, mean);
    std::vector<double> result(40);
    cudaMemcpy(result.data(), mean, 40 * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (double value : result) sum += value;
    std::printf("mean %.12f\n", sum / 40);
    return 0;
}
