// Structs with room between their fields, in which there is something else in each run: in memory, by value, in a file.
#include <cstdio>
#include <cstring>
#include <unistd.h>
#include <vector>
#include <cuda_runtime.h>

struct Step { char kind; double width; int cells; };
struct Cell { double heat; int kind; };

__global__ void warm(Cell* cells, double* out, Step step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= step.cells) return;
    cells[i].heat *= step.width + step.kind;
    out[i] = cells[i].heat;
}

int main() {
    const int n = 500;
    std::vector<Cell> cells(n);
    std::memset(cells.data(), getpid(), n * sizeof(Cell));
    for (int i = 0; i < n; i++) {
        cells[i].heat = 1 + i % 13;
        cells[i].kind = i % 3;
    }
    Step step;
    std::memset(&step, getpid(), sizeof step);
    step.kind = 1;
    step.width = 0.25;
    step.cells = n;
    Cell* device;
    double *d_out, out[n];
    cudaMalloc(&device, n * sizeof(Cell));
    cudaMalloc(&d_out, n * sizeof(double));
    cudaMemcpy(device, cells.data(), n * sizeof(Cell), cudaMemcpyHostToDevice);
    warm<<<(n + 63) / 64, 64>>>(device, d_out, step);
    cudaMemcpy(cells.data(), device, n * sizeof(Cell), cudaMemcpyDeviceToHost);
    cudaMemcpy(out, d_out, n * sizeof(double), cudaMemcpyDeviceToHost);
    FILE* file = fopen("cells.bin", "wb");
    fwrite(cells.data(), sizeof(Cell), n, file);
    fclose(file);
    bool good = true;
    for (int i = 0; i < n; i++) good = good && cells[i].kind == i % 3 && out[i] > 1.2 * (1 + i % 13);
    printf("%s\n", good ? "PASSED" : "FAILED");
    return !good;
}
