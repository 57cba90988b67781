// Sums of 64 numbers each, a wavefront for each; and which of them are negative.
#include <hip/hip_runtime.h>
#include <cmath>
#include <cstdio>

__global__ void sums(const double* x, double* of_wave, unsigned long long* negative) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
    double sum = x[i];
    for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_down(sum, offset);
    unsigned long long mask = __ballot(x[i] < 0.0);
    if (lane == 0) {
        of_wave[i / warpSize] = sum;
        negative[i / warpSize] = mask;
    }
}

int main() {
    const int n = 1024, waves = n / 64;
    double x[n], of_wave[waves], *d_x, *d_sums;
    unsigned long long negative[waves], *d_negative;
    hipDeviceProp_t properties;
    bool good = hipGetDeviceProperties(&properties, 0) == hipSuccess && properties.warpSize == 64;
    for (int i = 0; i < n; i++) x[i] = std::sin(0.37 * i) + 0.25;
    hipMalloc((void**)&d_x, sizeof(x));
    hipMalloc((void**)&d_sums, sizeof(of_wave));
    hipMalloc((void**)&d_negative, sizeof(negative));
    hipMemcpy(d_x, x, sizeof(x), hipMemcpyHostToDevice);
    hipLaunchKernelGGL(sums, dim3(n / 256), dim3(256), 0, 0, d_x, d_sums, d_negative);
    hipMemcpy(of_wave, d_sums, sizeof(of_wave), hipMemcpyDeviceToHost);
    hipMemcpy(negative, d_negative, sizeof(negative), hipMemcpyDeviceToHost);
    for (int wave = 0; wave < waves; wave++) {
        double sum = 0.0;
        for (int lane = 0; lane < 64; lane++) {
            sum += x[wave * 64 + lane];
            good = good && (negative[wave] >> lane & 1) == (x[wave * 64 + lane] < 0.0);
        }
        good = good && std::fabs(of_wave[wave] - sum) < 1e-3;
    }
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
