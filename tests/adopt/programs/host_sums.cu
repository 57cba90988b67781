// Memory that host and device share, and numbers of a struct, in which the host adds up.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

struct Clock { double time, step; };

__global__ void wave(double* parts, const double* weights, const double* total, Clock clock, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) parts[i] = weights[i] * (1 + clock.time) + 1e-9 * total[0];
}

int main() {
    const int n = 1 << 12;
    double *parts, *weights, *total;
    cudaMallocManaged(&parts, n * sizeof(double));
    cudaMallocManaged(&weights, n * sizeof(double));
    cudaMallocManaged(&total, sizeof(double));
    for (int i = 0; i < n; i++) weights[i] = 1.0 + i % 5;
    for (int i = 0; i < n; i++) weights[i] *= 0.25;
    total[0] = 0;
    Clock clock = {0, 0.0009765625};
    for (int turn = 0; turn < 8; turn++) {
        wave<<<(n + 127) / 128, 128>>>(parts, weights, total, clock, n);
        cudaDeviceSynchronize();
        for (int i = 0; i < n; i++) total[0] += parts[i];
        clock.time = clock.time + clock.step;
    }
    printf("%s\n", total[0] > 24000 && total[0] < 25000 ? "PASSED" : "FAILED");
    cudaFree(parts);
    cudaFree(weights);
    cudaFree(total);
    return 0;
}
