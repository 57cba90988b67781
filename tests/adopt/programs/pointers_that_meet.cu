// Kernels whose pointers are to the same memory in some launches, and one whose never are.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Pair {
    const double* first;
    double* second;
};

// In place at times.
__global__ void scale(double* out, const double* in, const double* by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * by[i];
}

// Of two halves of one array.
__global__ void fold(double *to, const double *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += from[i];
}

// What is only read may be read twice.
__global__ void square(double* const out, const double* a, const double* b, Pair pair, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = a[i] * b[i];
    pair.second[i] = pair.first[i] + a[i];
}

int main() {
    const int n = 300;
    std::vector<double> x(2 * n);
    for (int i = 0; i < 2 * n; i++) x[i] = 1.0 + 0.01 * (i * 29 % 83);
    double *d_x, *d_y, *d_z, *d_w;
    cudaMalloc(&d_x, 2 * n * sizeof(double));
    cudaMalloc(&d_y, n * sizeof(double));
    cudaMalloc(&d_z, n * sizeof(double));
    cudaMalloc(&d_w, n * sizeof(double));
    cudaMemcpy(d_x, x.data(), 2 * n * sizeof(double), cudaMemcpyHostToDevice);
    scale<<<3, 128>>>(d_y, d_x, d_x, n);
    scale<<<3, 128>>>(d_y, d_y, d_x, n);
    fold<<<3, 128>>>(d_x, d_x + n, n);
    square<<<3, 128>>>(d_z, d_x, d_x, Pair{d_y, d_w}, n);
    std::vector<double> z(n), w(n);
    cudaMemcpy(z.data(), d_z, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(w.data(), d_w, n * sizeof(double), cudaMemcpyDeviceToHost);
    bool is_right = true;
    for (int i = 0; i < n; i++) {
        double folded = x[i] + x[n + i];
        is_right = is_right && z[i] == folded * folded && w[i] == x[i] * x[i] * x[i] + folded;
    }
    printf("%s\n", is_right ? "PASS" : "FAIL");
    return is_right ? 0 : 1;
}
