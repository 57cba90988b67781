// What the host prints is a quotient of differences that fewer digits leave nothing of.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void fill(double* height, double slope, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) height[i] = 1 + slope * i;
}

int main() {
    const int n = 64;
    double height[n], *d_height;
    cudaMalloc(&d_height, n * sizeof(double));
    fill<<<1, n>>>(d_height, 1e-10, n);
    cudaMemcpy(height, d_height, n * sizeof(double), cudaMemcpyDeviceToHost);
    printf("step %g\n", 1 / (height[1] - height[0]));
    bool good = height[n - 1] > 0.999 && height[n - 1] < 1.001;
    printf("%s\n", good ? "PASS" : "FAIL");
    cudaFree(d_height);
    return !good;
}
