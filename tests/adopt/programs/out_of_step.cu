// Its threads read from shared memory what others of their warp wrote, with no barrier between.
#include <cstdio>
#include <cuda_runtime.h>

#define WIDTH 32

__global__ void turned(const double* in, double* out) {
    __shared__ double row[WIDTH];
    row[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = row[WIDTH - 1 - threadIdx.x];
}

int main() {
    double in[WIDTH], out[WIDTH], *d_in, *d_out;
    for (int i = 0; i < WIDTH; i++) in[i] = i + 1;
    cudaMalloc(&d_in, sizeof in);
    cudaMalloc(&d_out, sizeof out);
    cudaMemcpy(d_in, in, sizeof in, cudaMemcpyHostToDevice);
    turned<<<1, WIDTH>>>(d_in, d_out);
    cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < WIDTH; i++) {
        if (out[i] != in[WIDTH - 1 - i]) {
            printf("FAILED at %d\n", i);
            return 0;
        }
    }
    printf("PASSED\n");
    return 0;
}
