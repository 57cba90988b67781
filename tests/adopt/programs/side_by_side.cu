// Threads that have elements side by side in memory, in parts of buffers that begin anywhere, in rows of any length, and
// beside others that they share, choose or look for.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void advance(double* y, const double* x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

// Those at the edges have neighbours outside.
__global__ void smooth(double* out, const double* in, const int* mask, double r, int width, int height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const int at = row * width + column;
    double left = column > 0 ? in[at - 1] : 0.0, right = column < width - 1 ? in[at + 1] : 0.0;
    double up = row > 0 ? in[at - width] : 0.0, down = row < height - 1 ? in[at + width] : 0.0;
    out[at] = mask[at] ? in[at] + r * (left + right + up + down) : in[at];
}

// Each puts two numbers, changes a third one at times, and adds to one that is not beside its neighbour's.
__global__ void split(double* both, double* kept, double* last, const double* in, int n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double value = in[i], root = sqrt(value);
        both[i] = root;
        both[n + i] = value - root;
        if (kept[i] < value) kept[i] = value;
        last[n - 1 - i] += value;
    }
}

int main() {
    const int width = 37, height = 11, n = width * height, batches = 3;
    std::vector<double> x(batches * n), y(batches * n, 1.0), in(n), out(n), both(2 * n), kept(n), last(n, 0.5);
    std::vector<int> mask(n);
    for (int i = 0; i < batches * n; i++) x[i] = 1.0 + 0.01 * (i * 31 % 97);
    for (int i = 0; i < n; i++) {
        in[i] = 2.0 + 0.03 * (i * 17 % 41);
        mask[i] = i % 5 != 0;
        kept[i] = 2.5 + 0.02 * (i * 7 % 23);
    }
    double *d_x, *d_y, *d_in, *d_out, *d_both, *d_kept, *d_last;
    int* d_mask;
    size_t bytes = n * sizeof(double);
    cudaMalloc(&d_x, batches * bytes);
    cudaMalloc(&d_y, batches * bytes);
    cudaMalloc(&d_in, bytes);
    cudaMalloc(&d_out, bytes);
    cudaMalloc(&d_both, 2 * bytes);
    cudaMalloc(&d_kept, bytes);
    cudaMalloc(&d_last, bytes);
    cudaMalloc(&d_mask, n * sizeof(int));
    cudaMemcpy(d_x, x.data(), batches * bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_y, y.data(), batches * bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_in, in.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_kept, kept.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_last, last.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_mask, mask.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    for (int batch = 0; batch < batches; batch++) {
        advance<<<(n + 63) / 64, 64>>>(d_y + batch * n, d_x + batch * n, 0.25, n);
    }
    dim3 block(16, 4), grid((width + 15) / 16, (height + 3) / 4);
    smooth<<<grid, block>>>(d_out, d_in, d_mask, 0.1, width, height);
    split<<<(n + 63) / 64, 64>>>(d_both, d_kept, d_last, d_out, n);
    std::vector<double> moved(batches * n), highest(n), ends(n);
    cudaMemcpy(moved.data(), d_y, batches * bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(both.data(), d_both, 2 * bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(highest.data(), d_kept, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(ends.data(), d_last, bytes, cudaMemcpyDeviceToHost);
    double worst = 0.0;
    for (int i = 0; i < batches * n; i++) worst = fmax(worst, fabs(moved[i] - (0.25 * x[i] + 1.0)));
    for (int i = 0; i < n; i++) {
        const int column = i % width, row = i / width;
        double sum = (column > 0 ? in[i - 1] : 0.0) + (column < width - 1 ? in[i + 1] : 0.0) +
                     (row > 0 ? in[i - width] : 0.0) + (row < height - 1 ? in[i + width] : 0.0);
        double value = in[i] + (mask[i] ? 0.1 * sum : 0.0);
        worst = fmax(worst, fabs(both[i] + both[n + i] - value) + fabs(both[i] - sqrt(value)));
        worst = fmax(worst, fabs(highest[i] - fmax(kept[i], value)) + fabs(ends[n - 1 - i] - 0.5 - value));
    }
    printf("%s\n", worst < 1e-9 ? "PASS" : "FAIL");
    return worst < 1e-9 ? 0 : 1;
}
