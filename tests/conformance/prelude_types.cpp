// Loops over the prelude's types, called from test_prelude_types.py; the prelude stands before this text.

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

template <class A, class B>
constexpr bool same = mp::detail::same<A, B>;

static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2 && sizeof(fp8_e4m3) == 1 && sizeof(fp8_e5m2) == 1, "sizes");
// For g++ they copy their member, so that it does not copy structures; only a GPU has arguments moved for it.
#if defined(__clang__)
static_assert(__is_trivially_copyable(half) && __is_trivially_copyable(vec<bfloat16, 3>), "can be kernel arguments");
#endif

// The rules of mixed operands.
static_assert(same<decltype(half() * half()), half> && same<decltype(half() + 1), half>, "half with integers");
static_assert(same<decltype(bfloat16() - 1), bfloat16> && same<decltype(true * bfloat16()), bfloat16>, "bfloat16");
static_assert(same<decltype(half() * bfloat16()), float>, "neither contains the other");
static_assert(same<decltype(half() * 1.0f), float> && same<decltype(1.0 / bfloat16()), double>, "the wider wins");
static_assert(same<decltype(fp8_e4m3() * fp8_e4m3()), float>, "fp8 is for storage");
static_assert(same<decltype(fp8_e5m2() * half()), float> && same<decltype(fp8_e4m3() + 1), float>, "fp8 is for storage");
static_assert(same<decltype(fp8_e5m2() * 1.0), double>, "fp8 with double");
static_assert(same<decltype(fma(half(), half(), 1.0f)), float>, "fma in the widest");
static_assert(same<decltype(fma(1.0f, 2.0, half())), double>, "fma in the widest");
static_assert(same<decltype(vec<half, 4>() * vec<float, 4>()), vec<float, 4>>, "vectors like elements");
static_assert(same<decltype(2 * vec<half, 4>()), vec<half, 4>>, "vectors with scalars");
static_assert(same<decltype(fma(half(), vec<half, 2>(), vec<double, 2>())), vec<double, 2>>, "fma of vectors");
static_assert(same<decltype(load<4>(static_cast<const half*>(nullptr))), vec<half, 4>>, "load");

// One aligned access where the number of elements is a power of two, never more than 16 bytes.
static_assert(alignof(vec<float, 4>) == 16 && alignof(vec<double, 8>) == 16 && alignof(vec<half, 8>) == 16, "aligned");
static_assert(alignof(vec<half, 2>) == 4 && alignof(vec<half, 6>) == 4 && alignof(vec<float, 3>) == 4, "aligned");
static_assert(sizeof(vec<float, 3>) == 12 && sizeof(vec<half, 5>) == 10 && sizeof(vec<fp8_e4m3, 7>) == 7, "no padding");

template <class From, class To>
__attribute__((noinline)) void convert(const From* __restrict__ x, To* __restrict__ y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i];
}

template <class T>
__attribute__((noinline)) void arithmetic(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ r, long n) {
    for (long i = 0; i < n; ++i) {
        r[i] = a[i] + b[i];
        r[n + i] = a[i] - b[i];
        r[2 * n + i] = a[i] * b[i];
        r[3 * n + i] = a[i] / b[i];
        r[4 * n + i] = -a[i];
    }
}

template <class T>
__attribute__((noinline)) void fused(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, long n) {
    for (long i = 0; i < n; ++i) c[i] = fma(a[i], b[i], c[i]);
}

template <class T>
void compare(const T* a, const T* b, unsigned char* r, long n) {
    for (long i = 0; i < n; ++i)
        r[i] = static_cast<unsigned char>((a[i] < b[i]) | (a[i] <= b[i]) << 1 | (a[i] == b[i]) << 2 | (a[i] != b[i]) << 3 |
                                          (a[i] > b[i]) << 4 | (a[i] >= b[i]) << 5);
}

// One element each: loops over 256 combinations would take the compiler long.
template <class T, class A, class X, class Y>
void axpy(const void* a, const void* x, void* y, long i) {
    T alpha = *static_cast<const A*>(a), value = static_cast<const X*>(x)[i], sum = static_cast<Y*>(y)[i];
    sum += alpha * value;
    static_cast<Y*>(y)[i] = sum;
}
// Without any conversion spelled out, as a template in the CUDA dialect has it.
template <class A, class X, class Y>
void plain_axpy(const void* a, const void* x, void* y, long i) {
    static_cast<Y*>(y)[i] = *static_cast<const A*>(a) * static_cast<const X*>(x)[i] + static_cast<Y*>(y)[i];
}

using axpy_function = void (*)(const void*, const void*, void*, long);

template <class T, class A, class X>
axpy_function with_y(int y) {
    const axpy_function by_type[] = {axpy<T, A, X, double>, axpy<T, A, X, float>, axpy<T, A, X, half>, axpy<T, A, X, bfloat16>};
    return by_type[y];
}
template <class T, class A>
axpy_function with_x(int x, int y) {
    using choice = axpy_function (*)(int);
    const choice by_type[] = {with_y<T, A, double>, with_y<T, A, float>, with_y<T, A, half>, with_y<T, A, bfloat16>};
    return by_type[x](y);
}
template <class T>
axpy_function with_a(int a, int x, int y) {
    using choice = axpy_function (*)(int, int);
    const choice by_type[] = {with_x<T, double>, with_x<T, float>, with_x<T, half>, with_x<T, bfloat16>};
    return by_type[a](x, y);
}
template <class A, class X>
axpy_function plain_y(int y) {
    const axpy_function by_type[] = {plain_axpy<A, X, double>, plain_axpy<A, X, float>, plain_axpy<A, X, half>, plain_axpy<A, X, bfloat16>};
    return by_type[y];
}
template <class A>
axpy_function plain_x(int x, int y) {
    using choice = axpy_function (*)(int);
    const choice by_type[] = {plain_y<A, double>, plain_y<A, float>, plain_y<A, half>, plain_y<A, bfloat16>};
    return by_type[x](y);
}

// y = 3 * y + x, squared, through loads, stores and arithmetic of vectors.
template <class X, class Y, int N>
void vector_step(const void* from, void* to, long n) {
    const X* x = static_cast<const X*>(from);
    Y* y = static_cast<Y*>(to);
    for (long i = 0; i + N <= n; i += N) {
        const vec<float, N> xv = load<N>(x + i);
        vec<float, N> yv = load<N>(y + i);
        yv *= 3;
        yv += xv;
        store(y + i, yv * yv);
    }
}
template <class X, class Y>
void vector_steps(int width, const void* x, void* y, long n) {
    using step = void (*)(const void*, void*, long);
    const step by_width[] = {vector_step<X, Y, 1>, vector_step<X, Y, 2>, vector_step<X, Y, 3>, vector_step<X, Y, 4>,
                             vector_step<X, Y, 5>, vector_step<X, Y, 6>, vector_step<X, Y, 7>, vector_step<X, Y, 8>};
    by_width[width - 1](x, y, n);
}

}  // namespace

#define CONVERT_TO(to, from) \
    EXPORT void convert_##from##_##to(const from* x, to* y, long n) { convert(x, y, n); }
#define CONVERT_FROM(from)                                                                       \
    CONVERT_TO(double, from) CONVERT_TO(float, from) CONVERT_TO(half, from) CONVERT_TO(bfloat16, from) \
    CONVERT_TO(fp8_e4m3, from) CONVERT_TO(fp8_e5m2, from)
CONVERT_FROM(double)
CONVERT_FROM(float)
CONVERT_FROM(half)
CONVERT_FROM(bfloat16)
CONVERT_FROM(fp8_e4m3)
CONVERT_FROM(fp8_e5m2)
using int32 = int;
using int64 = long;
using uint64 = unsigned long;
#define CONVERT_INTEGER(from) \
    CONVERT_TO(half, from) CONVERT_TO(bfloat16, from) CONVERT_TO(fp8_e4m3, from) CONVERT_TO(fp8_e5m2, from)
CONVERT_INTEGER(int32)
CONVERT_INTEGER(int64)
CONVERT_INTEGER(uint64)

#define ARITHMETIC(type)                                                                                      \
    EXPORT void arithmetic_##type(const type* a, const type* b, type* r, long n) { arithmetic(a, b, r, n); }   \
    EXPORT void fma_##type(const type* a, const type* b, type* c, long n) { fused(a, b, c, n); }               \
    EXPORT void compare_##type(const type* a, const type* b, unsigned char* r, long n) { compare(a, b, r, n); }
ARITHMETIC(half)
ARITHMETIC(bfloat16)

EXPORT void axpy_in(int t, int a, int x, int y, const void* alpha, const void* source, void* target, long n) {
    using choice = axpy_function (*)(int, int, int);
    const choice by_type[] = {with_a<double>, with_a<float>, with_a<half>};
    const axpy_function step = by_type[t](a, x, y);
    for (long i = 0; i < n; ++i) step(alpha, source, target, i);
}
EXPORT void axpy_plain(int a, int x, int y, const void* alpha, const void* source, void* target, long n) {
    using choice = axpy_function (*)(int, int);
    const choice by_type[] = {plain_x<double>, plain_x<float>, plain_x<half>, plain_x<bfloat16>};
    const axpy_function step = by_type[a](x, y);
    for (long i = 0; i < n; ++i) step(alpha, source, target, i);
}
EXPORT void vectors(int pair, int width, const void* x, void* y, long n) {
    using steps = void (*)(int, const void*, void*, long);
    const steps by_pair[] = {vector_steps<half, float>, vector_steps<bfloat16, half>, vector_steps<fp8_e4m3, bfloat16>,
                             vector_steps<double, double>};
    by_pair[pair](width, x, y, n);
}
EXPORT void sums(const half* x, half* total, float* product) {
    const vec<half, 7> v = load<7>(x);
    *total = sum(v);
    *product = dot(v, vec<float, 7>(v));
    vec<half, 2> pair(v[0], 2.0);
    pair -= 1;
    ++pair[1];
    --pair[1];
    *product += fma(2.0f, -pair, vec<half, 2>(1))[1];
}
