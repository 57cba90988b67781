// Checks of local<T> on the host, compiled behind the prelude: what operations give, stored as a T.

using mp::detail::same;

template <class T>
constexpr bool keeps_its_rules =
    same<decltype(local<T>() * T()), local<T>> && same<decltype(2 * local<T>()), local<T>> &&
    same<decltype(local<T>() + 1.0f), float> && same<decltype(fma(T(), local<T>(), 1.0)), double> &&
    same<decltype(mp::exp<approx>(local<T>())), local<T>> &&
    same<decltype(vec<local<T>, 4>() * vec<T, 4>()), vec<local<T>, 4>>;
static_assert(keeps_its_rules<half> && keeps_its_rules<bfloat16>, "the wider type, held like a variable");
static_assert(same<decltype(local<half>() * local<bfloat16>()), float>, "neither contains the other");
static_assert(same<local<float>, float> && same<local<double>, double> && same<local<fp8_e4m3>, fp8_e4m3>, "itself");

template <class T, class From>
__attribute__((noinline)) void convert(const From* __restrict__ x, T* __restrict__ y, long n) {
    for (long i = 0; i < n; ++i) {
        const local<T> value = x[i];
        y[i] = value;
    }
}

// V is T or local<T>.
template <class V, class T>
__attribute__((noinline)) void arithmetic(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
                                          T* __restrict__ r, long n) {
    for (long i = 0; i < n; ++i) {
        const V x = a[i], y = b[i], z = c[i];
        r[i] = x + y;
        r[n + i] = x - y;
        r[2 * n + i] = x * y;
        r[3 * n + i] = x / y;
        r[4 * n + i] = fma(x, y, z);
        r[5 * n + i] = -x;
        r[6 * n + i] = mp::min(x, y);
        r[7 * n + i] = mp::exp(x);
        r[8 * n + i] = mp::fmin(x, y);
    }
}

#define CHECKS(T)                                                                                       \
    extern "C" void convert_float_##T(const float* x, T* y, long n) { convert(x, y, n); }               \
    extern "C" void convert_double_##T(const double* x, T* y, long n) { convert(x, y, n); }             \
    extern "C" void convert_##T##_##T(const T* x, T* y, long n) { convert(x, y, n); }                   \
    extern "C" void as_itself_##T(const T* a, const T* b, const T* c, T* r, long n) {                   \
        arithmetic<T>(a, b, c, r, n);                                                                   \
    }                                                                                                   \
    extern "C" void as_local_##T(const T* a, const T* b, const T* c, T* r, long n) {                    \
        arithmetic<local<T>>(a, b, c, r, n);                                                            \
    }
CHECKS(half)
CHECKS(bfloat16)
