// A struct whose numbers the host counts by its size, and one of which it computes with what it computed before, in
// branches that a run does not take; and what may change: bytes for copies, literals, what is only passed on or printed.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Counted { double first, second, third; };
struct Computed { double share, bound, shift; };
struct Passed { double rate, start; };

__global__ void mix(double* out, Counted counted, Computed computed, Passed passed, const Passed* table, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double at = counted.first + counted.second * i + counted.third;
    double in = computed.share * at + computed.bound - computed.shift;
    out[i] = in + passed.rate * passed.start + table[i % 4].rate * table[i % 4].start;
}

int main(int argc, char** argv) {
    const int n = 256;
    Counted counted = {0.5, 0.25, 0.125};
    Computed computed = {0.75, 0.5, 0.25};
    Passed passed = {0.5, 0.25};
    std::vector<Passed> table(4, passed);
    for (int i = 0; i < 4; i++) table[i].rate = 0.5 * i;
    if (argc > 1) {
        double all[] = {0.5, 0.25, 0.125}, sum = 0;
        for (size_t k = 0; k < sizeof(Counted) / sizeof(double); k++) sum += all[k];
        computed.share = 1.0 + 1e-9;
        if (computed.share - 1.0 > 0) computed.bound = sum;
        passed.rate = 0.5 / argc;
        passed.start = passed.rate;
    }
    double *out, host[n];
    Passed* d_table;
    cudaMalloc(&out, n * sizeof(double));
    cudaMalloc(&d_table, 4 * sizeof(Passed));
    cudaMemcpy(d_table, table.data(), table.size() * sizeof(Passed), cudaMemcpyHostToDevice);
    mix<<<n / 64, 64>>>(out, counted, computed, passed, d_table, n);
    cudaMemcpy(host, out, n * sizeof(double), cudaMemcpyDeviceToHost);
    printf("rate %g of %zu bytes, %g\n", passed.rate, 4 * sizeof(Passed) / sizeof(Passed), host[n - 1]);
    cudaFree(out);
    cudaFree(d_table);
}
