// Does one of everything that a recorder sees, on the processor, on a GPU or on what stands in for one.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

struct Line {
    double* values;
    int n;
    double by;
};

__constant__ double factors[2];
__device__ int calls;

__global__ void scale(Line line) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < line.n) line.values[i] *= factors[i % 2] * line.by;
}

template <class T, int N>
__global__ void shift(T* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += N;
}

__global__ void total(const double* values, double* sum, int n) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < n; i++) *sum += values[i];
        calls++;
    }
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 100;
    double* host = new double[n];
    for (int i = 0; i < n; i++) host[i] = i % 13;
    const double both[2] = {1.5, 0.25};
    cudaMemcpyToSymbol(factors, both, sizeof both);
    double *values, *copy, *sum, *rows;
    size_t pitch;
    cudaMalloc(&values, n * sizeof(double));
    cudaMalloc((void**)&copy, n * sizeof(double));
    cudaMallocManaged(&sum, sizeof(double));
    cudaMallocPitch(&rows, &pitch, 5 * sizeof(double), 3);
    cudaMemcpy(values, host, n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(copy, 0, n * sizeof(double));
    cudaMemcpy2D(rows, pitch, host, 5 * sizeof(double), 5 * sizeof(double), 3, cudaMemcpyHostToDevice);
    *sum = 0.5;
    for (int step = 0; step < 3; step++) {
        scale<<<(n + 31) / 32, 32>>>(Line{values, n, 1.0 + step});
        shift<double, 3><<<dim3((n + 31) / 32), 32, 0, 0>>>(values, n);
    }
    shift<double, 3><<<1, 2048>>>(values, n);
    if (cudaGetLastError() != cudaErrorInvalidConfiguration) printf("FAIL\n");
    if (cudaMemcpy(values, host, 2 * n * sizeof(double), cudaMemcpyHostToDevice) == cudaSuccess) printf("FAIL\n");
    cudaMemcpy(copy, values, n * sizeof(double), cudaMemcpyDeviceToDevice);
    total<<<1, 32>>>(copy, sum, n);
    cudaDeviceSynchronize();
    int called = 0;
    cudaMemcpyFromSymbol(&called, calls, sizeof called);
    cudaMemcpyAsync(host, copy, n * sizeof(double), cudaMemcpyDeviceToHost, 0);
    double expected = 0.5;
    for (int i = 0; i < n; i++) {
        double value = i % 13;
        for (int step = 0; step < 3; step++) value = value * (both[i % 2] * (1.0 + step)) + 3;
        if (value != host[i]) printf("FAIL\n");
        expected += value;
    }
    printf("%s %.17g\n", *sum == expected && called == 1 ? "PASS" : "FAIL", *sum);
    cudaFree(values);
    cudaFree(copy);
    cudaFree(rows);
    cudaDeviceReset();
    return 0;
}
