// A rod whose cells and time steps are given by options (--cells 120 --steps=120), or as plain numbers in that order.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

__global__ void cool(double* rod, double rate, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < cells) rod[i] -= rate * rod[i] * rod[i];
}

int main(int argc, char** argv) {
    int given[2] = {120, 120}, plain = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--cells")) given[0] = atoi(argv[++i]);
        else if (!strncmp(argv[i], "--steps=", 8)) given[1] = atoi(argv[i] + 8);
        else given[plain++] = atoi(argv[i]);
    }
    std::vector<double> rod(given[0]);
    for (int i = 0; i < given[0]; i++) rod[i] = 1 + 0.001 * i;
    double* d_rod;
    cudaMalloc(&d_rod, rod.size() * sizeof(double));
    cudaMemcpy(d_rod, rod.data(), rod.size() * sizeof(double), cudaMemcpyHostToDevice);
    for (int s = 0; s < given[1]; s++) cool<<<(given[0] + 31) / 32, 32>>>(d_rod, 0.01, given[0]);
    cudaMemcpy(rod.data(), d_rod, rod.size() * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (double each : rod) sum += each;
    printf("%.9f\n", sum);
}
