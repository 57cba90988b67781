// Conjugate gradients: each dot product is one number that the host copies back, steers by, and computes with.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__global__ void multiply(const double* p, double* q, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double left = i > 0 ? p[i - 1] : 0.0, right = i + 1 < n ? p[i + 1] : 0.0;
        q[i] = (2.02 + 0.0001 * i) * p[i] - left - right;
    }
}

__global__ void dot(const double* a, const double* b, double* sum, int n) {
    __shared__ double part[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? a[i] * b[i] : 0.0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) atomicAdd(sum, part[0]);
}

__global__ void add(double* y, double a, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

__global__ void turn(double* p, double beta, const double* r, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = r[i] + beta * p[i];
}

double dotted(const double* a, const double* b, double* d_sum, int n) {
    double sum = 0.0;
    cudaMemset(d_sum, 0, sizeof(double));
    dot<<<(n + 63) / 64, 64>>>(a, b, d_sum, n);
    cudaMemcpy(&sum, d_sum, sizeof(double), cudaMemcpyDeviceToHost);
    return sum;
}

int main() {
    const int n = 300;
    size_t bytes = n * sizeof(double);
    std::vector<double> x(n, 0.0), b(n);
    for (int i = 0; i < n; i++) b[i] = 1 + 0.25 * (i % 7);
    double *d_x, *d_r, *d_p, *d_q, *d_sum;
    cudaMalloc(&d_x, bytes);
    cudaMalloc(&d_r, bytes);
    cudaMalloc(&d_p, bytes);
    cudaMalloc(&d_q, bytes);
    cudaMalloc(&d_sum, sizeof(double));
    cudaMemset(d_x, 0, bytes);
    cudaMemcpy(d_r, b.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_p, b.data(), bytes, cudaMemcpyHostToDevice);
    int blocks = (n + 127) / 128, turns = 0;
    double rho = dotted(d_r, d_r, d_sum, n), first = rho;
    while (rho > 1e-20 * first && turns < 200) {
        multiply<<<blocks, 128>>>(d_p, d_q, n);
        double alpha = rho / dotted(d_p, d_q, d_sum, n);
        add<<<blocks, 128>>>(d_x, alpha, d_p, n);
        add<<<blocks, 128>>>(d_r, -alpha, d_q, n);
        double before = rho;
        rho = dotted(d_r, d_r, d_sum, n);
        turn<<<blocks, 128>>>(d_p, rho / before, d_r, n);
        turns++;
    }
    cudaMemcpy(x.data(), d_x, bytes, cudaMemcpyDeviceToHost);
    double worst = 0.0;
    for (int i = 0; i < n; i++) {
        double left = i > 0 ? x[i - 1] : 0.0, right = i + 1 < n ? x[i + 1] : 0.0;
        worst = fmax(worst, fabs((2.02 + 0.0001 * i) * x[i] - left - right - b[i]));
    }
    printf("%d turns: %s\n", turns, worst < 1e-6 ? "PASS" : "FAIL");
    return !(worst < 1e-6);
}
