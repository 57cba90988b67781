// Between launches parts of memory are set, copied to and copied on the device; one argument is always null.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__global__ void add(const double* x, double* y, const double* weight, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += weight != nullptr ? weight[i] * x[i] : x[i];
}

int main() {
    const int n = 600;
    std::vector<double> x(n), y(n), expected(n), front(50, 7.5);
    for (int i = 0; i < n; i++) x[i] = 1.0 + 0.01 * i;
    double *d_x, *d_y;
    cudaMalloc(&d_x, n * sizeof(double));
    cudaMalloc(&d_y, n * sizeof(double));
    cudaMemcpy(d_x, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(d_y, 0, n * sizeof(double));
    for (int round = 0; round < 5; round++) {
        add<<<3, 200>>>(d_x, d_y, nullptr, n);
        for (int i = 0; i < n; i++) expected[i] += x[i];
        cudaMemset(d_y + 100, 0, 40 * sizeof(double));
        for (int i = 0; i < 40; i++) expected[100 + i] = 0.0;
        front[0] = round;
        cudaMemcpy(d_y + 10 * round, front.data(), 50 * sizeof(double), cudaMemcpyHostToDevice);
        for (int i = 0; i < 50; i++) expected[10 * round + i] = front[i];
        cudaMemcpy(d_y + 400, d_x + 20, 30 * sizeof(double), cudaMemcpyDeviceToDevice);
        for (int i = 0; i < 30; i++) expected[400 + i] = x[20 + i];
    }
    cudaMemcpy(y.data(), d_y, n * sizeof(double), cudaMemcpyDeviceToHost);
    double worst = 0.0;
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs(y[i] - expected[i]));
    printf("%s\n", worst < 1e-12 ? "PASS" : "FAIL");
    return 0;
}
