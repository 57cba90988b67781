// What vectors are computed and converted with on a GPU, an operation at a time; test_prelude_pairs.py runs it.

template <int N, class T>
__device__ void arithmetic(const T* x, T* y, int threads) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const vec<T, N> a = load<N>(x + i * N), b = load<N>(x + (threads + i) * N), c = load<N>(x + (2 * threads + i) * N);
    const vec<T, N> results[] = {a + b, a - b, a * b, a / b, fma(a, b, c), min(a, b), max(a, b), a + T(3), 2 - b,
                                 fmin(a, b), fmax(a, b)};
    #pragma unroll
    for (int k = 0; k < 11; ++k) store(y + (k * threads + i) * N, results[k]);
}
#define ARITHMETIC(type, n)                                                                        \
    extern "C" __global__ void arithmetic_##type##_##n(const type* x, type* y, int threads) {      \
        arithmetic<n>(x, y, threads);                                                              \
    }
ARITHMETIC(half, 3)
ARITHMETIC(half, 8)
ARITHMETIC(bfloat16, 3)
ARITHMETIC(bfloat16, 8)

// Four neighbours of a thread, not aligned for two or aligned; and functions whose results are rounded in pairs.
template <class T>
__device__ void side_by_side(const T* x, T* y) {
    constexpr int width = mp::abreast<4, T, float>;
    using values = mp::neighbours<T, width>;
    const int start = 6 * (blockIdx.x * blockDim.x + threadIdx.x);
    #pragma unroll
    for (int v = 0; v < 4 / width; ++v) {
        const values own = mp::get_neighbours<width>(x + 1 + start + v * width, false);
        const values changed = mp::fabs(own) - T(1);
        mp::put_neighbours<width>(y + 1 + start + v * width, changed, false);
        if (v == 0) y[start] = mp::nth(own, 0);
    }
}
template <class T>
__device__ void side_by_side_aligned(const T* x, T* y) {
    constexpr int width = mp::abreast<4, T, float>;
    const int start = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    #pragma unroll
    for (int i = start; i < start + 4; i += width) {
        mp::put_neighbours<width>(y + i, mp::get_neighbours<width>(x + i, true) - T(1), true);
    }
}
extern "C" __global__ void aligned_half(const half* x, half* y) { side_by_side_aligned(x, y); }
extern "C" __global__ void neighbours_half(const half* x, half* y) { side_by_side(x, y); }
extern "C" __global__ void neighbours_bfloat16(const bfloat16* x, bfloat16* y) { side_by_side(x, y); }
extern "C" __global__ void neighbours_float(const float* x, float* y) {
    static_assert(mp::abreast<4, float, double> == 1 && mp::abreast<3, half> == 1, "only pairs of 16 bits");
    side_by_side(x, y);
}

template <class T>
__device__ void comparisons(const T* x, unsigned char* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const T a = x[2 * i], b = x[2 * i + 1];
    y[i] = (a == b) | (a != b) << 1 | (a < b) << 2 | (a <= b) << 3 | (a > b) << 4 | (a >= b) << 5;
}
extern "C" __global__ void comparisons_half(const half* x, unsigned char* y) { comparisons(x, y); }
extern "C" __global__ void comparisons_bfloat16(const bfloat16* x, unsigned char* y) { comparisons(x, y); }

template <class From, class To>
__device__ void convert(const From* x, To* y) {
    const int i = 3 * (blockIdx.x * blockDim.x + threadIdx.x);
    store(y + i, load<3>(x + i));
}
// In one macro: passed on to another one, a type that is itself a macro would be replaced in the names.
#define CONVERT_FROM(from)                                                                         \
    extern "C" __global__ void from##_to_float(const from* x, float* y) { convert(x, y); }         \
    extern "C" __global__ void from##_to_half(const from* x, half* y) { convert(x, y); }           \
    extern "C" __global__ void from##_to_bfloat16(const from* x, bfloat16* y) { convert(x, y); }   \
    extern "C" __global__ void from##_to_fp8_e4m3(const from* x, fp8_e4m3* y) { convert(x, y); }   \
    extern "C" __global__ void from##_to_fp8_e5m2(const from* x, fp8_e5m2* y) { convert(x, y); }
CONVERT_FROM(double)
CONVERT_FROM(float)
CONVERT_FROM(half)
CONVERT_FROM(bfloat16)
CONVERT_FROM(fp8_e4m3)
CONVERT_FROM(fp8_e5m2)
