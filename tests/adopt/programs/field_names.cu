// A variable of a kernel that is called as a field of a struct is once it is passed alone; atomic functions with scopes.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

struct Grid { int nx, ny; double h; };

__global__ void blur(const double* a, double* out, unsigned* hits, const Grid grid) {
    const int grid_nx = grid.nx;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= grid_nx) return;
    double sum = 0;
    for (int k = 0; k < grid.ny; k++) sum += a[(i + k) % grid_nx] * grid.h;
    atomicAdd_system(&hits[0], 1u);
    out[i] = sum;
}

int main() {
    int n = 1000;
    std::vector<double> h(n);
    for (int i = 0; i < n; i++) h[i] = std::sin(0.1 * i) + 1.5;
    double *a, *b; unsigned* hits;
    cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8); cudaMalloc(&hits, 4); cudaMemset(hits, 0, 4);
    cudaMemcpy(a, h.data(), n * 8, cudaMemcpyHostToDevice);
    blur<<<(n + 127) / 128, 128>>>(a, b, hits, Grid{n, 5, 0.5});
    cudaMemcpy(h.data(), b, n * 8, cudaMemcpyDeviceToHost);
    unsigned c; cudaMemcpy(&c, hits, 4, cudaMemcpyDeviceToHost);
    double expected = 0;
    for (int k = 0; k < 5; k++) expected += (std::sin(0.1 * k) + 1.5) * 0.5;
    printf("%s\n", c == 1000 && std::fabs(h[0] - expected) < 1e-12 ? "PASS" : "FAIL");
    return 0;
}
