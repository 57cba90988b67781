// Signals of a fixed length, smoothed for some rounds, and a table whose length no expression over arguments gives.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

constexpr int LENGTH = 96;

__global__ void smooth(const double* from, double* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int left = i % LENGTH ? i - 1 : i, right = (i + 1) % LENGTH ? i + 1 : i;
    to[i] = 0.25 * from[left] + 0.5 * from[i] + 0.25 * from[right];
}

__global__ void weigh(double* table, int entries) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < entries) table[i] *= 0.5;
}

int main(int argc, char** argv) {
    int signals = argc > 1 ? atoi(argv[1]) : 8, rounds = argc > 2 ? atoi(argv[2]) : 10;
    int depth = argc > 3 ? atoi(argv[3]) : 6, entries = 56 + depth * 38 % 11, n = signals * LENGTH;
    std::vector<double> x(n), table(entries, 3.0);
    for (int i = 0; i < n; i++) x[i] = 1.0 + sin(0.1 * i);
    double total = 0.0, after = 0.0;
    for (double value : x) total += value;
    double *d_from, *d_to, *d_table;
    cudaMalloc(&d_from, n * sizeof(double));
    cudaMalloc(&d_to, n * sizeof(double));
    cudaMalloc(&d_table, entries * sizeof(double));
    cudaMemcpy(d_from, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_table, table.data(), entries * sizeof(double), cudaMemcpyHostToDevice);
    for (int round = 0; round < rounds; round++) {
        smooth<<<(n + 127) / 128, 128>>>(d_from, d_to, n);
        std::swap(d_from, d_to);
    }
    weigh<<<(entries + 31) / 32, 32>>>(d_table, entries);
    cudaMemcpy(x.data(), d_from, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(table.data(), d_table, entries * sizeof(double), cudaMemcpyDeviceToHost);
    for (double value : x) after += value;
    bool passed = fabs(after - total) < 1e-6 * total && table[entries - 1] == 1.5;
    printf("%s\n", passed ? "PASS" : "FAIL");
    return !passed;
}
