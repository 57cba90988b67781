// What is worked on comes from indices and numbers alone, not from the host.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

__global__ void bump(double* height, double width, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < cells) height[i] = exp(-(i - 0.5 * cells) * (i - 0.5 * cells) / (width * width));
}

__global__ void spread(const double* height, double* wider, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cells) return;
    wider[i] = (height[(i + cells - 1) % cells] + 2.0 * height[i] + height[(i + 1) % cells]) / 4.0;
}

int main(int argc, char** argv) {
    int cells = atoi(argv[1]), turns = atoi(argv[2]);
    double *height, *wider;
    cudaMalloc(&height, cells * sizeof(double));
    cudaMalloc(&wider, cells * sizeof(double));
    bump<<<(cells + 127) / 128, 128>>>(height, 0.1 * cells, cells);
    for (int turn = 0; turn < turns; turn++) {
        spread<<<(cells + 127) / 128, 128>>>(height, wider, cells);
        double* kept = height;
        height = wider;
        wider = kept;
    }
    std::vector<double> found(cells);
    cudaMemcpy(found.data(), height, cells * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0.0, expected = 0.0;
    for (int i = 0; i < cells; i++) {
        sum += found[i];
        expected += exp(-(i - 0.5 * cells) * (i - 0.5 * cells) / (0.01 * cells * cells));
    }
    printf("%s\n", fabs(sum - expected) < 1e-9 * expected ? "PASS" : "FAIL");
    return 0;
}
