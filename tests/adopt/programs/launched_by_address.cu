// Kernels launched by their addresses, with the arguments in an array: one of them is a template.
#include <cmath>
#include <cstdio>
#include <vector>

template <class T>
__global__ void relax(T* u, const T* f, int n, T w) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        u[i] = (1 - w) * u[i] + w * f[i];
}
__global__ void square(double* u, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) u[i] *= u[i];
}

int main() {
    int n = 3000;
    double w = 0.3;
    std::vector<double> u(n, 1.0), f(n);
    for (int i = 0; i < n; ++i) f[i] = 1.0 + 0.5 * std::sin(0.001 * i);
    double *du, *df;
    cudaMalloc(&du, n * sizeof(double));
    cudaMalloc(&df, n * sizeof(double));
    cudaMemcpy(du, u.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(df, f.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    void* arguments[] = {&du, &df, &n, &w};
    cudaError_t status = cudaLaunchKernel((void*)relax<double>, dim3(8), dim3(64), arguments, 0, 0);
    void* others[] = {&du, &n};
    if (status == cudaSuccess) status = cudaLaunchKernel(reinterpret_cast<const void*>(&square), dim3(47), dim3(64), others);
    cudaMemcpy(u.data(), du, n * sizeof(double), cudaMemcpyDeviceToHost);
    double largest = 0;
    for (int i = 0; i < n; ++i) {
        double expected = 0.7 + 0.3 * f[i];
        largest = std::fmax(largest, std::fabs(u[i] - expected * expected));
    }
    bool is_right = status == cudaSuccess && largest < 1e-12;
    printf("%s\n", is_right ? "PASSED" : "FAILED");
    return !is_right;
}
