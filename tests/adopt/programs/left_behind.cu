// A program that starts another process and does not wait for it; it waits if it is told to.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

__global__ void fill(double* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = 0.5 * i;
}

int main(int argc, char** argv) {
    if (fork() == 0) {
        sleep(600);
        _exit(0);
    }
    if (argc > 1) sleep(atoi(argv[1]));
    double values[64], *d_values;
    cudaMalloc(&d_values, sizeof(values));
    fill<<<1, 64>>>(d_values, 64);
    cudaMemcpy(values, d_values, sizeof(values), cudaMemcpyDeviceToHost);
    printf("%g\n", values[63]);
}
