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
