// Distances: what cannot be reached is INFINITY. Names and texts that mean something in Python and in templates.
#include <cmath>
#include <cstdio>
#include <unistd.h>

__global__ void start(double* best, double with, int is) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < is) best[i] = with;
}

__global__ void relax(double* best, const double* in, int is) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= is) return;
    const char* text = "{{a}} {% b %} {# c #}";  // {{ not this }}
    double length = in[i] < 5.0 ? 2.0 * in[i] + 0.5 * (sizeof("{{a}}") + (text[1] == '{')) : INFINITY;
    if (length < best[i]) best[i] = length;
}

int main() {
    const int n = 300;
    double in[n], best[n], *d_in, *d_best;
    for (int i = 0; i < n; i++) in[i] = 0.02 * i;
    cudaMalloc(&d_in, sizeof(in));
    cudaMalloc(&d_best, sizeof(best));
    cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice);
    start<<<3, 128>>>(d_best, INFINITY, n);
    relax<<<3, 128>>>(d_best, d_in, n);
    cudaMemcpy(best, d_best, sizeof(best), cudaMemcpyDeviceToHost);
    printf("%g %g\n", best[1], best[n - 1]);
    fflush(stdout);
    _exit(0);
}
