// What headers for host and device have: macros by the compiler and defined twice, members for the host alone,
// specialisations of functions and classes, constant functions, vectors made otherwise, shared memory of a file,
// enumerations as parameters, a variable whose name the prelude has, too.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <cuda_runtime.h>

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

template <class T>
struct Complex {
    T re, im;
    BOTH Complex(T re, T im) : re(re), im(im) {}
    BOTH T size() const { return std::sqrt(re * re + im * im); }
    friend std::ostream& operator<<(std::ostream& out, const Complex& z) { return out << z.re << " " << z.im; }
    void print() const { std::cout << *this << std::endl; }
};

template <int N>
struct Weight {};
template <>
struct Weight<1> {
    static BOTH double of() { return 0.25; }
};
template <>
struct Weight<2> {
    static BOTH double of() { return 0.75; }
};

BOTH constexpr double distance(double a, double b) { return fabs(a - b); }

template <int N>
BOTH double power(double x) {
    return x * power<N - 1>(x);
}
template <>
BOTH double power<0>(double) {
    return 1.0;
}

inline BOTH double3 make_double3(double x) { return make_double3(x, x, x); }

__shared__ double room[128];

__device__ void reverse() {
    double kept = room[127 - threadIdx.x];
    __syncthreads();
    room[threadIdx.x] = kept;
    __syncthreads();
}

__global__ void first(int* counts);  // another one of the name, which nothing calls

#define SHIFT 1.0
__global__ void first(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const double* from = x != NULL ? x : y;
    Complex<double> z(from[i], 2.0);
    double3 sides = make_double3(SHIFT);
    double local = 1.0 + from[i] / 64.0;
    double other = z.size() + power<10>(local);
    y[i] = other + sides.y * (i % 2 ? 1 : 0.0);
}
#undef SHIFT
#define SHIFT 3.0
typedef enum { ONCE, TWICE } Times;
enum class Sign { plus = 1, minus };
__global__ void second(const double* x, double* y, int n, Times times, Sign sign) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    room[threadIdx.x] = y[i] * Weight<2>::of() + Weight<1>::of() * SHIFT;
    __syncthreads();
    reverse();
    y[i] = distance(room[threadIdx.x], x[i]);
    if (times == TWICE && sign == Sign::minus) y[i] *= -2.0;
}

int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    first<<<2, 128>>>(x, y, n);
    second<<<2, 128>>>(x, y, n, TWICE, Sign::minus);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.17g\n", v);
}
