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

int main() {
    const int n = 777;
    double x[n], *d_x;
    for (int i = 0; i < n; i++) x[i] = i;
    CHECK(hipMalloc((void**)&d_x, sizeof(x)));
    CHECK(hipMemcpy(d_x, x, sizeof(x), hipMemcpyHostToDevice));
    hipLaunchKernelGGL(scale, dim3((n + 255) / 256), dim3(256), 0, 0, d_x, 0.5, n);
    shift<<<(n + 255) / 256, 256>>>(d_x, 3.0, n);
    CHECK(hipGetLastError());
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(x, d_x, sizeof(x), hipMemcpyDeviceToHost));
    CHECK(hipFree(d_x));
    bool good = true;
    for (int i = 0; i < n; i++) good = good && x[i] == 0.5 * i + 3.0;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
