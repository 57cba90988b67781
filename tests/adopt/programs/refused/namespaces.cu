// Two structs of one name: a kernel that uses both is refused, others go on.
#include <cstdio>
#include <cuda_runtime.h>

namespace gas {
struct Law { double rate, rest; };
}
namespace ice {
struct Law { double rate; float slope; int turns; };
}

__global__ void warm(double* field, gas::Law law, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) field[i] = field[i] * law.rate + law.rest;
}

__global__ void cool(double* field, ice::Law law, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; i < n && t < law.turns; t++) field[i] = field[i] * law.rate + law.slope;
}

__global__ void both(double* field, gas::Law law, ice::Law other, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) field[i] = field[i] * law.rate + other.rate;
}

int main() {
    const int n = 256;
    double field[n];
    for (int i = 0; i < n; i++) field[i] = 1 + i % 3;
    gas::Law law = {0.5, 0.25};
    ice::Law other = {0.5, 0.25f, 2};
    double* d_field;
    cudaMalloc(&d_field, sizeof field);
    cudaMemcpy(d_field, field, sizeof field, cudaMemcpyHostToDevice);
    warm<<<2, 128>>>(d_field, law, n);
    cool<<<2, 128>>>(d_field, other, n);
    both<<<2, 128>>>(d_field, law, other, n);
    cudaMemcpy(field, d_field, sizeof field, cudaMemcpyDeviceToHost);
    printf("%s\n", field[0] == 0.78125 ? "PASS" : "FAIL");
    cudaFree(d_field);
    return 0;
}
