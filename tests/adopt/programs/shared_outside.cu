// Dynamic shared memory that is declared outside of functions, as bytes, and used as numbers by two kernels.
#include <cmath>
#include <cstdio>
#include <vector>

extern __shared__ char bytes[];

__global__ void total(const double* x, double* out, int n) {
    double* part = reinterpret_cast<double*>(bytes);
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int w = blockDim.x / 2; w > 0; w /= 2) {
        if (threadIdx.x < w) part[threadIdx.x] += part[threadIdx.x + w];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = part[0];
}
__global__ void turned(double* x, int n) {
    double* tile = (double*)bytes;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0;
    __syncthreads();
    if (i < n) x[i] = tile[blockDim.x - 1 - threadIdx.x] + 0.5;
}

int main() {
    const int n = 512;
    std::vector<double> x(n);
    for (int i = 0; i < n; ++i) x[i] = 1.0 / (1 + i);
    double *d_x, *d_out, sum = 0, expected = 0;
    cudaMalloc(&d_x, n * sizeof(double));
    cudaMalloc(&d_out, sizeof(double));
    cudaMemcpy(d_x, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    turned<<<n / 64, 64, 64 * sizeof(double)>>>(d_x, n);
    total<<<1, 128, 128 * sizeof(double)>>>(d_x, d_out, n);
    cudaMemcpy(&sum, d_out, sizeof(double), cudaMemcpyDeviceToHost);
    for (double v : x) expected += v + 0.5;
    printf("%s\n", std::fabs(sum - expected) < 1e-10 ? "PASSED" : "FAILED");
}
