// HIP's names, both ways to launch.
#include <hip/hip_runtime.h>
#include <cstdio>

#define CHECK(call) do { if ((call) != hipSuccess) { printf("FAIL\n"); return 2; } } while (0)

__global__ void scale(double* x, double factor, int n) {
    int i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
    if (i < n) x[i] *= factor;
}

__global__ void shift(double* x, double by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}

__global__ void total(double* sums, const double* x, int n) {
    HIP_DYNAMIC_SHARED(double, partial)
    int i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
    partial[hipThreadIdx_x] = i < n ? x[i] : 0.0;
    __syncthreads();
    for (int half = hipBlockDim_x / 2; half > 0; half /= 2) {
        if (hipThreadIdx_x < half) partial[hipThreadIdx_x] += partial[hipThreadIdx_x + half];
        __syncthreads();
    }
    if (hipThreadIdx_x == 0) sums[hipBlockIdx_x % hipGridDim_x] = partial[0];
}

int main() {
    const int n = 777, blocks = (n + 127) / 128;
    double x[n], sums[blocks], *d_x, *d_sums;
    for (int i = 0; i < n; i++) x[i] = i;
    CHECK(hipMalloc((void**)&d_x, sizeof(x)));
    CHECK(hipMemcpy(d_x, x, sizeof(x), hipMemcpyHostToDevice));
    hipLaunchKernelGGL(scale, dim3((n + 255) / 256), dim3(256), 0, 0, d_x, 0.5, n);
    shift<<<(n + 255) / 256, 256>>>(d_x, 3.0, n);
    CHECK(hipMalloc((void**)&d_sums, sizeof(sums)));
    hipLaunchKernelGGL(total, dim3(blocks), dim3(128), 128 * sizeof(double), 0, d_sums, d_x, n);
    CHECK(hipGetLastError());
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(x, d_x, sizeof(x), hipMemcpyDeviceToHost));
    CHECK(hipMemcpy(sums, d_sums, sizeof(sums), hipMemcpyDeviceToHost));
    CHECK(hipFree(d_x));
    bool good = true;
    for (int i = 0; i < n; i++) sums[i / 128] -= x[i];
    for (int k = 0; k < blocks; k++) good = good && sums[k] == 0;
    for (int i = 0; i < n; i++) good = good && x[i] == 0.5 * i + 3.0;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
