#include "physics.h"

#include <cuda_runtime.h>

static __device__ real fourth(real t) { return t * t * t * t; }

__global__ void radiation_of(const real* temperature, real* radiation, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) radiation[i] = EMISSIVITY * STEFAN * fourth(temperature[i] / 100.0);
}

void radiate(const real* temperature, real* radiation, int n) {
    real *d_temperature, *d_radiation;
    cudaMalloc((void**)&d_temperature, sizeof(real) * n);
    cudaMalloc((void**)&d_radiation, sizeof(real) * n);
    cudaMemcpy(d_temperature, temperature, sizeof(real) * n, cudaMemcpyHostToDevice);
    radiation_of<<<(n + 31) / 32, 32>>>(d_temperature, d_radiation, n);
    cudaMemcpy(radiation, d_radiation, sizeof(real) * n, cudaMemcpyDeviceToHost);
    cudaFree(d_temperature);
    cudaFree(d_radiation);
}
