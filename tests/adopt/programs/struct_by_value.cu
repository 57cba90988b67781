// Pointers, numbers and a grid travel in one struct, by value; a second struct nests in it.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

struct Grid {
    int width, height;
    double spacing;
};

struct Field {
    double* values;
    const double* source;
    Grid grid;
};

__global__ void fill(Field field, double factor) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < field.grid.width && y < field.grid.height) {
        int i = y * field.grid.width + x;
        field.values[i] = factor * field.source[i] + x * field.grid.spacing;
    }
}

int main(int argc, char** argv) {
    Field field;
    field.grid = {argc > 1 ? atoi(argv[1]) : 40, 30, 0.125};
    int n = field.grid.width * field.grid.height;
    double* host = (double*)malloc(n * sizeof(double));
    for (int i = 0; i < n; i++) host[i] = 1.0 / (i + 1);
    double* source;
    cudaMalloc(&source, n * sizeof(double));
    cudaMalloc(&field.values, n * sizeof(double));
    cudaMemcpy(source, host, n * sizeof(double), cudaMemcpyHostToDevice);
    field.source = source;
    dim3 block(16, 4), grid((field.grid.width + 15) / 16, (field.grid.height + 3) / 4);
    fill<<<grid, block>>>(field, 3.0);
    double* back = (double*)malloc(n * sizeof(double));
    cudaMemcpy(back, field.values, n * sizeof(double), cudaMemcpyDeviceToHost);
    int last = n - 1, bad = back[last] != 3.0 * host[last] + (field.grid.width - 1) * 0.125;
    printf("%s\n", bad ? "FAIL" : "PASS");
    free(host);
    free(back);
    return bad;
}
