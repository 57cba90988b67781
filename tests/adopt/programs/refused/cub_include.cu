// Reduces with a library in a kernel; its other kernel does not.
#include <cub/cub.cuh>

__global__ void sum_blocks(const double* x, double* sums, int n) {
    typedef cub::BlockReduce<double, 128> Reduce;
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * 128 + threadIdx.x;
    double sum = Reduce(storage).Sum(i < n ? x[i] : 0.0);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void halve(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 0.5;
}

int main() {
    double *x, *sums;
    cudaMalloc(&x, 1280 * sizeof(double));
    cudaMalloc(&sums, 10 * sizeof(double));
    cudaMemset(x, 0, 1280 * sizeof(double));
    halve<<<10, 128>>>(x, 1280);
    sum_blocks<<<10, 128>>>(x, sums, 1280);
    return cudaDeviceSynchronize();
}
