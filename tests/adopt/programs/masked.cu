// An ocean: land is NaN in the data, and in the answer.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__global__ void smooth(const double* in, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = isnan(in[i]) ? in[i] : 0.5 * sqrt(in[i]);
}

int main() {
    int n = 1000;
    std::vector<double> values(n);
    for (int i = 0; i < n; i++) values[i] = i % 20 == 3 ? NAN : std::sin(0.1 * i) + 1.5;
    double *d_in, *d_out;
    cudaMalloc(&d_in, n * sizeof(double));
    cudaMalloc(&d_out, n * sizeof(double));
    cudaMemcpy(d_in, values.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    smooth<<<(n + 127) / 128, 128>>>(d_in, d_out, n);
    cudaMemcpy(values.data(), d_out, n * sizeof(double), cudaMemcpyDeviceToHost);
    printf("%f %f\n", values[4], values[10]);
    return 0;
}
