// A map that makes much of the last digit of a float: what a literal of type double multiplies is rounded once.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__global__ void turn(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3.9 * x[i] * (1.0 - x[i]);
}

int main() {
    const int n = 256, turns = 18;
    std::vector<float> x(n), host;
    for (int i = 0; i < n; i++) x[i] = 0.2f + 0.002f * i;
    host = x;
    float *d_x, *d_y;
    cudaMalloc(&d_x, n * sizeof(float));
    cudaMalloc(&d_y, n * sizeof(float));
    cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    for (int each = 0; each < turns; each++) {
        turn<<<n / 64, 64>>>(d_x, d_y, n);
        float* other = d_x;
        d_x = d_y;
        d_y = other;
        for (int i = 0; i < n; i++) host[i] = 3.9 * host[i] * (1.0 - host[i]);
    }
    cudaMemcpy(x.data(), d_x, n * sizeof(float), cudaMemcpyDeviceToHost);
    bool good = true;
    for (int i = 0; i < n; i++) good = good && std::fabs(x[i] - host[i]) < 0.1f;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
