// Tables in constant memory: one with its numbers in the source, one copied there; a counter in device memory.
#include <cstdio>
#include <cuda_runtime.h>

__constant__ double legendre[4] = {0.0, -0.5, 0.0, 1.5};
__constant__ double knots[16];
__device__ int misses;

__global__ void interpolate(double* out, const double* at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = at[i] * 15;
    int k = (int)x;
    if (k < 0 || k > 14) {
        atomicAdd(&misses, 1);
        out[i] = 0;
        return;
    }
    double t = x - k, value = knots[k] + t * (knots[k + 1] - knots[k]);
    double polynomial = 0;
    for (int j = 3; j >= 0; j--) polynomial = polynomial * value + legendre[j];
    out[i] = polynomial;
}

int main() {
    const int n = 500;
    double table[16], at[n], out[n];
    for (int k = 0; k < 16; k++) table[k] = k / 15.0 - 0.2;
    for (int i = 0; i < n; i++) at[i] = i * 1.01 / n;
    cudaMemcpyToSymbol(knots, table, sizeof(table));
    int zero = 0, missed = -1, expected = 0;
    cudaMemcpyToSymbol(misses, &zero, sizeof(int));
    double *d_at, *d_out;
    cudaMalloc(&d_at, sizeof(at));
    cudaMalloc(&d_out, sizeof(out));
    cudaMemcpy(d_at, at, sizeof(at), cudaMemcpyHostToDevice);
    interpolate<<<(n + 31) / 32, 32>>>(d_out, d_at, n);
    cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&missed, misses, sizeof(int));
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double v = at[i] - 0.2, right = at[i] * 15 >= 15 ? 0 : 1.5 * v * v * v - 0.5 * v, off = out[i] - right;
        worst = off > worst ? off : -off > worst ? -off : worst;
        expected += at[i] * 15 >= 15;
    }
    bool good = worst < 1e-12 && missed == expected;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
