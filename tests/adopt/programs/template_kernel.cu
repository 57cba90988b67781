// One template, launched with two types and two numbers of terms.
#include <cuda_runtime.h>
#include <cmath>
#include <cstdio>

template <typename T, int TERMS>
__global__ void exponential(T* out, const T* in, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        T term = T(1), sum = T(1);
        for (int k = 1; k <= TERMS; ++k) {
            term *= in[i] / T(k);
            sum += term;
        }
        out[i] = sum;
    }
}

template <typename T, int TERMS>
double worst(int n) {
    T* in = new T[n];
    T* out = new T[n];
    for (int i = 0; i < n; ++i) in[i] = T(i) / n;
    T *d_in, *d_out;
    cudaMalloc(&d_in, n * sizeof(T));
    cudaMalloc(&d_out, n * sizeof(T));
    cudaMemcpy(d_in, in, n * sizeof(T), cudaMemcpyHostToDevice);
    exponential<T, TERMS><<<(n + 127) / 128, 128>>>(d_out, d_in, n);
    cudaMemcpy(out, d_out, n * sizeof(T), cudaMemcpyDeviceToHost);
    double error = 0;
    for (int i = 0; i < n; ++i) error = fmax(error, fabs(out[i] - std::exp((double)in[i])));
    cudaFree(d_in);
    cudaFree(d_out);
    delete[] in;
    delete[] out;
    return error;
}

int main() {
    bool good = worst<double, 20>(1000) < 1e-14 && worst<float, 8>(500) < 1e-4;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
