// Functions and variables with names a library would take: dot, sum, load, value, num, vec3; and many literals.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

__device__ double dot(const double* a, const double* b, int n) {
    double sum = 0.;
    for (int i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}
__device__ __forceinline__ double load(const double* p, int i) { return p[i]; }

__global__ void vec3(double* value, const double* num, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double local = dot(num + 3 * row, num + 3 * row, 3);
    double max = local > 1e-3 ? fmax(local, 2.5E-1) : .5;
    value[row] = (row % 2 ? 1. : -1) * fmin(max, 1e2) + pow(load(num, 3 * row), 2.0) - 0x1p-3;
}

int main() {
    const int rows = 90;
    double num[3 * rows], value[rows], *d_num, *d_value;
    for (int i = 0; i < 3 * rows; i++) num[i] = 0.02 * (i % 40);
    cudaMalloc(&d_num, sizeof num);
    cudaMalloc(&d_value, sizeof value);
    cudaMemcpy(d_num, num, sizeof num, cudaMemcpyHostToDevice);
    vec3<<<3, 32>>>(d_value, d_num, rows);
    cudaMemcpy(value, d_value, sizeof value, cudaMemcpyDeviceToHost);
    double worst = 0;
    for (int r = 0; r < rows; r++) {
        double* v = num + 3 * r;
        double length = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
        double largest = length > 1e-3 ? fmax(length, 0.25) : 0.5;
        worst = fmax(worst, fabs(value[r] - ((r % 2 ? 1 : -1) * fmin(largest, 100.0) + v[0] * v[0] - 0.125)));
    }
    printf("%s\n", worst < 1e-12 ? "PASS" : "FAIL");
    return worst >= 1e-12;
}
