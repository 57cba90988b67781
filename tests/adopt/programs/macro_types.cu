// Types, sizes and a whole function by macro; the compiler's -D may choose among them.
#include <cuda_runtime.h>
#include <stdio.h>
#ifdef SINGLE
#define REAL float
#else
#define REAL double
#endif
#define N 1000
#define BLOCK 64
#define HALF ((REAL)0.5)
#define SQUARE(v) ((v) * (v))

__global__ void smooth(const REAL* in, REAL* out) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i > 0 && i < N - 1) out[i] = HALF * in[i] + 0.25 * (in[i - 1] + in[i + 1]) + SQUARE(in[i]);
}

int main() {
    static REAL in[N], out[N];
    for (int i = 0; i < N; i++) in[i] = (i * 37 % 101) / 101.0;
    REAL *d_in, *d_out;
    cudaMalloc((void**)&d_in, sizeof(in));
    cudaMalloc((void**)&d_out, N * sizeof(REAL));
    cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice);
    cudaMemset(d_out, 0, N * sizeof(REAL));
    smooth<<<(N + BLOCK - 1) / BLOCK, BLOCK>>>(d_in, d_out);
    cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost);
    REAL expected = HALF * in[500] + 0.25 * (in[499] + in[501]) + SQUARE(in[500]);
    int good = out[500] == expected && out[0] == 0;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
