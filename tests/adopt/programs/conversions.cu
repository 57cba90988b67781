// Conversions to whole numbers out of their range, and operations of one rounding: as GPUs do them.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

__global__ void convert(const float* f, const double* d, const int* by, int* i, unsigned* u, long long* l, unsigned long long* ul, int n) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    const float x = f[k] / by[k];
    const double y = d[k] / by[k];
    i[k] = __float2int_rn(x);
    u[k] = __float2uint_rz(x);
    l[k] = __float2ll_rd(x);
    ul[k] = __float2ull_ru(x);
    i[n + k] = __double2int_rd(y);
    u[n + k] = __double2uint_ru(y);
    l[n + k] = __double2ll_rn(y);
    ul[n + k] = __double2ull_rz(y);
}

__global__ void round_once(const float* f, float* out, int n) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) out[k] = __fadd_rn(__frsqrt_rn(__fmul_rn(f[k], f[k])), __saturatef(__fsub_rn(f[k], 0.5f)));
}

template <class T>
bool are_same(const T* found, const T* wanted, int n, const char* name) {
    bool same = true;
    for (int k = 0; k < n; k++) {
        if (found[k] != wanted[k]) printf("%s[%d]\n", name, k), same = false;
    }
    return same;
}

int main() {
    const int n = 8;
    const double given[n] = {-2.5, 2.5, 0.75, -1e30, 1e30, 0, -1, 1};
    const int divisors[n] = {1, 1, 1, 1, 1, 0, 0, 0};
    const int low = -2147483647 - 1, high = 2147483647;
    const long long lowest = -9223372036854775807ll - 1, highest = 9223372036854775807ll;
    const unsigned most = ~0u;
    const unsigned long long largest = ~0ull, top = 1ull << 63;
    const int ints[2 * n] = {-2, 2, 1, low, high, 0, low, high, -3, 2, 0, low, high, low, low, high};
    const unsigned unsigneds[2 * n] = {0, 2, 0, 0, most, 0, 0, most, 0, 3, 1, 0, most, 1u << 31, 0, most};
    const long long longs[2 * n] = {-3, 2, 0, lowest, highest, lowest, lowest, highest,
                                    -2, 2, 1, lowest, highest, lowest, lowest, highest};
    const unsigned long long whole[2 * n] = {0, 3, 1, 0, largest, top, 0, largest, 0, 2, 0, 0, largest, top, 0, largest};
    float floats[n], *f, *out, once[n];
    for (int k = 0; k < n; k++) floats[k] = given[k];
    double* d;
    int *by, *i, i_found[2 * n];
    unsigned *u, u_found[2 * n];
    long long *l, l_found[2 * n];
    unsigned long long *ul, ul_found[2 * n];
    cudaMalloc(&f, sizeof floats), cudaMalloc(&d, sizeof given), cudaMalloc(&out, sizeof once), cudaMalloc(&by, sizeof divisors);
    cudaMalloc(&i, sizeof ints), cudaMalloc(&u, sizeof unsigneds), cudaMalloc(&l, sizeof longs), cudaMalloc(&ul, sizeof whole);
    cudaMemcpy(f, floats, sizeof floats, cudaMemcpyHostToDevice);
    cudaMemcpy(d, given, sizeof given, cudaMemcpyHostToDevice);
    cudaMemcpy(by, divisors, sizeof divisors, cudaMemcpyHostToDevice);
    convert<<<1, n>>>(f, d, by, i, u, l, ul, n);
    round_once<<<1, n>>>(f, out, 3);
    cudaMemcpy(i_found, i, sizeof ints, cudaMemcpyDeviceToHost);
    cudaMemcpy(u_found, u, sizeof unsigneds, cudaMemcpyDeviceToHost);
    cudaMemcpy(l_found, l, sizeof longs, cudaMemcpyDeviceToHost);
    cudaMemcpy(ul_found, ul, sizeof whole, cudaMemcpyDeviceToHost);
    cudaMemcpy(once, out, 3 * sizeof(float), cudaMemcpyDeviceToHost);
    const float sums[3] = {0.4f, 1.4f, 4 / 3.0f + 0.25f};
    const bool are_as_wanted[] = {are_same(i_found, ints, 2 * n, "int"), are_same(u_found, unsigneds, 2 * n, "unsigned"),
                                  are_same(l_found, longs, 2 * n, "long long"),
                                  are_same(ul_found, whole, 2 * n, "unsigned long long"), are_same(once, sums, 3, "once")};
    bool passed = true;
    for (bool each : are_as_wanted) passed = passed && each;
    printf("%s\n", passed ? "PASS" : "FAIL");
}
