// The body of main, and of a function that it calls, is a try with what catches; kernels are launched in both.
#include <cstdio>
#include <stdexcept>
#include <vector>

__global__ void damp(double* u, double by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) u[i] *= 1.0 - by * (i % 5);
}

void apply(double* d_u, double by, int n) try {
    if (by >= 1.0) throw std::invalid_argument("damped too much");
    damp<<<(n + 127) / 128, 128>>>(d_u, by, n);
} catch (const std::invalid_argument&) {
    damp<<<(n + 127) / 128, 128>>>(d_u, 0.0, n);
}

int main() try {
    const int n = 1000;
    std::vector<double> u(n, 1.0);
    double* d_u;
    cudaMalloc(&d_u, n * sizeof(double));
    cudaMemcpy(d_u, u.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    apply(d_u, 0.125, n);
    apply(d_u, 2.0, n);
    cudaMemcpy(u.data(), d_u, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(d_u);
    double sum = 0;
    for (double each : u) sum += each;
    std::printf("%s\n", sum > 749.99 && sum < 750.01 ? "PASS" : "FAIL");
    return 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
}
