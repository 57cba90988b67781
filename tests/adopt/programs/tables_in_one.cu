// Several variables in constant memory of one declaration, numbers and tables, of two types.
#include <cstdio>
#include <cuda_runtime.h>

__constant__ double slope, start;
__constant__ int ahead[3], behind[3], factors[3];

__global__ void blend(double* out, const double* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = start;
    for (int k = 0; k < 3; k++) sum += factors[k] * in[(i + ahead[k] - behind[k] + n) % n];
    out[i] = slope * sum;
}

int main() {
    const int n = 500, to[3] = {1, 0, 4}, back[3] = {0, 2, 1}, times[3] = {3, -1, 2};
    const double a = 0.3, b = 1.1;
    double in[n], out[n], *d_in, *d_out;
    for (int i = 0; i < n; i++) in[i] = i % 17 / 7.0;
    cudaMalloc(&d_in, sizeof(in));
    cudaMalloc(&d_out, sizeof(out));
    cudaMemcpyToSymbol(slope, &a, sizeof(a));
    cudaMemcpyToSymbol(start, &b, sizeof(b));
    cudaMemcpyToSymbol(ahead, to, sizeof(to));
    cudaMemcpyToSymbol(behind, back, sizeof(back));
    cudaMemcpyToSymbol(factors, times, sizeof(times));
    cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice);
    blend<<<(n + 63) / 64, 64>>>(d_out, d_in, n);
    cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double sum = b;
        for (int k = 0; k < 3; k++) sum += times[k] * in[(i + to[k] - back[k] + n) % n];
        double error = out[i] - a * sum;
        if (error * error > worst) worst = error * error;
    }
    printf(worst < 1e-24 ? "PASSED\n" : "FAILED\n");
    return worst >= 1e-24;
}
