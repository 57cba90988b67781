// Included by main.cu, and no source of its own: a way to write kernels that many programs have.
#include <cassert>
#include <cmath>

#define POLE (sqrt(3.0) - 2.0)
#define SHARE pow(0.5, 3.0)
#define ADDED(a, T) (a + static_cast<Number>(T))

#ifdef __NVCC__
inline __host__ __device__ void operator+=(double2& a, const double2& b) {
    a.x += b.x;
    a.y += b.y;
}
#endif

// A struct of functions alone, passed by value.
template <class T>
struct Grow {
    __host__ __device__ T of(T x) const { return x * (1.0 + SHARE); }
};

template <class How, class Number>
__global__ void sharpen(const double2* in, How how, double2* out, Number n, bool halves = false) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    assert(n > 1);
    double2 sum = in[i];
    sum += in[ADDED(i, 1) % n];
    out[i].x = POLE * how.of(sum.x);
    out[i].y = halves ? 0.5 * sum.y : sum.y;
}

// At every 1000th place a number that is cut just below or above a whole one.
__global__ void cut(int* whole, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double tenth = i / 10.0;
    whole[i] = (int)floor(tenth * 10.0 - i + (i % 1000 == 7 ? 0.0 : 0.25));
}
