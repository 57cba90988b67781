// Rows of an array whose pitch is in bytes, parts of shared bytes, and short names for types of whole numbers.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

__global__ void add_rows(const char* base, size_t pitch, double* out, uint width, ushort height) {
    extern __shared__ char bytes[];
    double* part = (double*)bytes;
    uint x = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = 0;
    if (x >= width) return;
    for (ushort y = 0; y < height; y++) {
        const double* row = (const double*)(base + y * pitch);
        part[threadIdx.x] += y < height - 1 ? row[x] : 0;
    }
    out[x] = part[threadIdx.x];
}

int main() {
    const int width = 100, height = 7;
    std::vector<double> in(width * height), out(width);
    for (int i = 0; i < width * height; i++) in[i] = std::sin(0.1 * i);
    char* d_in;
    double* d_out;
    size_t pitch;
    cudaMallocPitch((void**)&d_in, &pitch, width * sizeof(double), height);
    cudaMalloc(&d_out, width * sizeof(double));
    cudaMemcpy2D(d_in, pitch, in.data(), width * sizeof(double), width * sizeof(double), height, cudaMemcpyHostToDevice);
    add_rows<<<2, 64, 64 * sizeof(double)>>>(d_in, pitch, d_out, width, height);
    cudaMemcpy(out.data(), d_out, width * sizeof(double), cudaMemcpyDeviceToHost);
    double worst = 0;
    for (int x = 0; x < width; x++) {
        double sum = 0;
        for (int y = 0; y < height - 1; y++) sum += in[y * width + x];
        worst = std::fmax(worst, std::fabs(sum - out[x]));
    }
    printf("%s\n", worst < 1e-12 ? "PASS" : "FAIL");
    return 0;
}
