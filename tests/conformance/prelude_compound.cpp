// Loops over the compound types (test_prelude_compound.py): sums, products, quotients and fused operations of doubles, which
// each operand takes the nearest value of, and the running scalar products of rows.

template <class T>
struct operations {
    using L = local<T>;
    static void arithmetic(const double* a, const double* b, const double* c, double* out, int n) {
        for (int i = 0; i < n; ++i) {
            const L x = a[i], y = b[i], z = c[i];
            out[6 * i] = double(x + y);
            out[6 * i + 1] = double(x - y);
            out[6 * i + 2] = double(x * y);
            out[6 * i + 3] = double(x / y);
            out[6 * i + 4] = double(fma(x, y, z));
            out[6 * i + 5] = (x < y) + 2 * (x == y) + 4 * (x <= y) + 8 * (x > y) + 16 * (x != y) + 32 * (x >= y);
        }
    }
    // Columns side by side, which a compiler makes vectors of.
    template <class From>
    static void dots(const From* a, const From* b, double* out, int columns, int n) {
        for (int i = 0; i < columns; i += 16) {
            L sum[16] = {};
            for (int k = 0; k < n; ++k) {
                VECTOR_LOOP
                for (int v = 0; v < 16; ++v) {
                    const mp::factor<T, From> x = a[k * columns + i + v], y = b[k * columns + i + v];
                    sum[v] = fma(x, y, sum[v]);
                }
            }
            for (int v = 0; v < 16; ++v) out[i + v] = double(sum[v]);
        }
    }
    static void sums(const float* a, double* out, int columns, int n) {
        for (int i = 0; i < columns; i += 16) {
            L sum[16] = {};
            for (int k = 0; k < n; ++k) {
                VECTOR_LOOP
                for (int v = 0; v < 16; ++v) sum[v] += a[k * columns + i + v];
            }
            for (int v = 0; v < 16; ++v) out[i + v] = double(sum[v]);
        }
    }
};

// In memory and back.
template <class T>
static void keep(const double* a, double* out, int n) {
    for (int i = 0; i < n; ++i) {
        const T stored = a[i];
        const local<T> used = stored;
        out[i] = double(T(used));
    }
}

#define OF(name)                                                                                                      \
    extern "C" void arithmetic_##name(const double* a, const double* b, const double* c, double* out, int n) {        \
        operations<mp::name>::arithmetic(a, b, c, out, n);                                                            \
    }                                                                                                                 \
    extern "C" void dots_##name(const float* a, const float* b, double* out, int columns, int n) {                    \
        operations<mp::name>::dots(a, b, out, columns, n);                                                            \
    }                                                                                                                 \
    extern "C" void wide_dots_##name(const double* a, const double* b, double* out, int columns, int n) {             \
        operations<mp::name>::dots(a, b, out, columns, n);                                                            \
    }                                                                                                                 \
    extern "C" void sums_##name(const float* a, double* out, int columns, int n) {                                    \
        operations<mp::name>::sums(a, out, columns, n);                                                               \
    }                                                                                                                 \
    extern "C" void keep_##name(const double* a, double* out, int n) { keep<mp::name>(a, out, n); }
OF(fp32x2)
OF(bf16x3)
OF(fp32_neumaier)
OF(fp64_neumaier)

// Four sums side by side, which g++ makes one vector of as wide as that of the doubles added to them.
extern "C" void distances_fp32x2(const double* __restrict__ a, double* __restrict__ out, int n) {
    const double x[2] = {a[0], a[1]}, y[2] = {a[2], a[3]};
    local<mp::fp32x2> sum[2][2] = {};
    for (int k = 0; k < n; ++k) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            const double dy = y[j] - a[2 * k + 1];
            VECTOR_LOOP
            for (int i = 0; i < 2; ++i) {
                const double dx = x[i] - a[2 * k];
                sum[j][i] += static_cast<local<mp::fp32x2>>(mp::sqrt<accurate>(fma(dx, dx, dy * dy)));
            }
        }
    }
    for (int v = 0; v < 4; ++v) out[v] = double(sum[v / 2][v % 2]);
}

// Types of results, and mixed operands.
static_assert(mp::detail::same<mp::promoted<mp::fp32x2, float>, local<mp::fp32x2>>);
static_assert(mp::detail::same<mp::promoted<double, mp::fp32x2>, double>);
static_assert(mp::detail::same<mp::promoted<half, mp::bf16x3>, local<mp::bf16x3>>);
static_assert(mp::detail::same<mp::promoted<mp::fp32_neumaier, local<mp::fp32x2>>, local<mp::fp32x2>>);
static_assert(mp::detail::same<mp::promoted<mp::fp64_neumaier, double>, local<mp::fp64_neumaier>>);
static_assert(mp::detail::same<mp::factor<mp::fp32x2, half>, float> && mp::detail::same<mp::factor<double, float>, double>);
static_assert(sizeof(mp::fp32x2) == 8 && sizeof(mp::bf16x3) == 4 && sizeof(mp::fp32_neumaier) == 4 && sizeof(mp::fp64_neumaier) == 8);
extern "C" double mixed(float a, double b, int c) {
    local<mp::fp32x2> x = a;
    x += 2;
    x = x * 0.1_num - half(0.5f);
    x -= c;
    x = mp::max(x, bfloat16(-3e4f));
    vec<local<mp::fp32x2>, 4> v = x;
    v += vec<float, 4>(a);
    v = fma(a, vec<float, 4>(1.0f), v);
    return b + double(sum(v)) + double(mp::abs(-x));
}
