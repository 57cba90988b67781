// Sums of blocks in shared memory, of static and of dynamic size; two launches, the second over what the first left.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__global__ void squares(const double* x, double* sums, int n) {
    __shared__ double part[128];
    double mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += x[i] * x[i];
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

__global__ void total(const double* sums, double* result, int blocks) {
    extern __shared__ double every[];
    every[threadIdx.x] = threadIdx.x < blocks ? sums[threadIdx.x] : 0.0;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (int i = 0; i < blocks; i++) sum += every[i];
        *result = sqrt(sum);
    }
}

int main() {
    const int n = 10000, blocks = 12;
    std::vector<double> x(n);
    double sum = 0, norm;
    for (int i = 0; i < n; i++) {
        x[i] = sin(0.37 * i);
        sum += x[i] * x[i];
    }
    double *d_x, *d_sums, *d_norm;
    cudaMalloc(&d_x, n * sizeof(double));
    cudaMalloc(&d_sums, blocks * sizeof(double));
    cudaMalloc(&d_norm, sizeof(double));
    cudaMemcpy(d_x, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    squares<<<blocks, 128>>>(d_x, d_sums, n);
    total<<<1, 16, 16 * sizeof(double)>>>(d_sums, d_norm, blocks);
    cudaMemcpy(&norm, d_norm, sizeof(double), cudaMemcpyDeviceToHost);
    bool good = fabs(norm - sqrt(sum)) < 1e-10;
    printf("norm %.6f %s\n", norm, good ? "PASS" : "FAIL");
    return !good;
}
