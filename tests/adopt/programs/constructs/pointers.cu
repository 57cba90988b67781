// Pointers to device functions, in a variable and in memory, and a struct that is derived from another.
#include <cstdio>
#include <cuda_runtime.h>
typedef double (*Law)(double);
__device__ double square(double x) { return x * x; }
__device__ double shift(double x) { return x + 0.25; }
__device__ Law laws[2] = {square, shift};
struct Base {
    double by;
    __host__ __device__ explicit Base(double by) : by(by) {}
    __host__ __device__ double operator()(double x) const { return x * by; }
};
struct Derived : Base {
    double more;
    __host__ __device__ Derived(double by, double more) : Base(by), more(more) {}
    __host__ __device__ double operator()(double x) const { return Base::operator()(x) + more; }
};
__global__ void run(const double* x, double* y, int which, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Law law = which == 0 ? square : shift;
    Derived then(2.0, 0.125);
    if (i < n) y[i] = then(law(x[i])) + laws[1](x[i]);
}
int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    run<<<2, 128>>>(x, y, 0, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.17g\n", v);
}
