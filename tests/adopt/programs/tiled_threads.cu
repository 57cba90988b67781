// Threads whose loops are the same for all of them, on grids that do not divide evenly, in several ways to say who has
// nothing to do.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>

#define TERMS 3

__device__ double weight_of(int k) { return 1.0 / (k + 1); }

// One of three threads does nothing, and no rectangle of them is left.
__global__ void blend(double* out, const double* in, const double* table, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width) return;
    const int at = y * width + x;  // not known to be inside before the next line
    if (y < height && (x + y) % 3 != 0) {
        double total = 0.0, scale = in[at];
        // Each round is the same for all.
        for (int k = 0; k < TERMS; k++) {
            double part = table[k] * x;
            if (k == 1) continue;
            for (int j = 0; j <= x % 4; j++) part += weight_of(j) * in[(at + j * k) % (width * height)];
            total += part * scale;
        }
        double previous = total;
        for (int k = TERMS - 1; k >= 0; k--) previous = 0.5 * previous + table[k] * y;
        out[at] = total + previous;
    }
}

__global__ void shifted(double* out, const double* in, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double value = in[i];
    int offset = 1;
    for (int k = 0; k < rounds; ++k) {
        int from = (i + offset) % n;
        value += in[from] / (k + 2);
        offset += k;
    }
    out[i] = value;
}

int main() {
    const int width = 45, height = 21, n = width * height;
    std::vector<double> in(n), table = {0.5, 0.25, 0.125}, out(n), moved(n);
    for (int i = 0; i < n; i++) in[i] = 1.0 + 0.01 * (i * 37 % 101);
    double *d_in, *d_table, *d_out, *d_moved;
    cudaMalloc(&d_in, n * sizeof(double));
    cudaMalloc(&d_table, TERMS * sizeof(double));
    cudaMalloc(&d_out, n * sizeof(double));
    cudaMalloc(&d_moved, n * sizeof(double));
    cudaMemcpy(d_in, in.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_table, table.data(), TERMS * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(d_out, 0, n * sizeof(double));
    blend<<<dim3(3, 3), dim3(16, 8)>>>(d_out, d_in, d_table, width, height);
    shifted<<<(n + 63) / 64, 64>>>(d_moved, d_in, n, 4);
    cudaMemcpy(out.data(), d_out, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(moved.data(), d_moved, n * sizeof(double), cudaMemcpyDeviceToHost);
    double worst = 0.0;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            int at = y * width + x, offset = 1;
            double total = 0.0, value = in[at];
            for (int k = 0; k < TERMS; k += 2) {
                double part = table[k] * x;
                for (int j = 0; j <= x % 4; j++) part += in[(at + j * k) % n] / (j + 1);
                total += part * in[at];
            }
            double previous = total;
            for (int k = TERMS - 1; k >= 0; k--) previous = 0.5 * previous + table[k] * y;
            worst = fmax(worst, fabs(out[at] - ((x + y) % 3 ? total + previous : 0.0)));
            for (int k = 0; k < 4; offset += k++) value += in[(at + offset) % n] / (k + 2);
            worst = fmax(worst, fabs(moved[at] - value));
        }
    }
    printf("%s\n", worst < 1e-9 ? "PASS" : "FAIL");
    return worst < 1e-9 ? 0 : 1;
}
