// A struct whose fields are structs without names of their own, one of them with a name as a field.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

struct Law {
    struct { double rate, rest; } now;
    struct { double low, high; };
    struct { double weight; } taps[2];
};

__global__ void warm(double* field, Law law, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = field[i] * law.now.rate + law.now.rest;
    field[i] = fmin(fmax(x * law.taps[0].weight + law.taps[1].weight, law.low), law.high);
}

int main() {
    const int n = 256;
    double field[n];
    for (int i = 0; i < n; i++) field[i] = 1 + i % 3;
    Law law;
    law.now.rate = 0.5;
    law.now.rest = 0.25;
    law.low = 0;
    law.high = 1.5;
    law.taps[0].weight = 2;
    law.taps[1].weight = -0.5;
    double* d_field;
    cudaMalloc(&d_field, sizeof field);
    cudaMemcpy(d_field, field, sizeof field, cudaMemcpyHostToDevice);
    warm<<<2, 128>>>(d_field, law, n);
    cudaMemcpy(field, d_field, sizeof field, cudaMemcpyDeviceToHost);
    bool good = fabs(field[0] - 1.0) < 1e-12 && fabs(field[1] - 1.5) < 1e-12;
    printf("%s\n", good ? "PASS" : "FAIL");
    cudaFree(d_field);
    return !good;
}
