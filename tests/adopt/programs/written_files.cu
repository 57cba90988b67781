// What it computes goes to files: a table, numbers as bytes, and words.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void warm(double* heat, double by, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < cells) heat[i] = heat[i] * by + 1.0 / (1 + i);
}
int main() {
    const int cells = 500;
    std::vector<double> heat(cells);
    for (int i = 0; i < cells; i++) heat[i] = 1 + i % 13;
    double* device;
    cudaMalloc(&device, cells * sizeof(double));
    cudaMemcpy(device, heat.data(), cells * sizeof(double), cudaMemcpyHostToDevice);
    warm<<<(cells + 63) / 64, 64>>>(device, 0.3, cells);
    cudaMemcpy(heat.data(), device, cells * sizeof(double), cudaMemcpyDeviceToHost);
    FILE* table = fopen("heat.csv", "w");
    fprintf(table, "cell,heat\n");
    for (int i = 0; i < cells; i++) fprintf(table, "%d,%.12g\n", i, heat[i]);
    fclose(table);
    FILE* raw = fopen("heat.bin", "wb");
    fwrite(heat.data(), sizeof(double), cells, raw);
    fclose(raw);
    FILE* note = fopen("note.txt", "w");
    fprintf(note, "of %d cells\n", cells);
    fclose(note);
    printf("%s\n", heat[0] > 1.29 && heat[0] < 1.31 ? "PASSED" : "FAILED");
}
