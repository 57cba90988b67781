// Includes its kernels, checks them in parallel loops of the host, and passes a struct without fields.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#include "kernels.cu"

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 30000;
    std::vector<double2> in(n), out(n);
    std::vector<int> whole(n);
    for (int i = 0; i < n; i++) in[i] = make_double2(1.0 / (i + 1), i % 7);
    double2 *d_in, *d_out;
    int* d_whole;
    cudaMalloc(&d_in, n * sizeof(double2));
    cudaMalloc(&d_out, n * sizeof(double2));
    cudaMalloc(&d_whole, n * sizeof(int));
    cudaMemcpy(d_in, in.data(), n * sizeof(double2), cudaMemcpyHostToDevice);
    sharpen<<<(n + 127) / 128, 128>>>(d_in, Grow<double>(), d_out, n, false);
    cut<<<(n + 127) / 128, 128>>>(d_whole, n);
    cudaMemcpy(out.data(), d_out, n * sizeof(double2), cudaMemcpyDeviceToHost);
    cudaMemcpy(whole.data(), d_whole, n * sizeof(int), cudaMemcpyDeviceToHost);
    int wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (int i = 0; i < n; i++) {
        double x = POLE * 1.125 * (in[i].x + in[(i + 1) % n].x);
        wrong += fabs(out[i].x - x) > 1e-14 || abs(whole[i]) > 1;
    }
    printf("%s\n", wrong == 0 ? "PASS" : "FAIL");
    return wrong != 0;
}
