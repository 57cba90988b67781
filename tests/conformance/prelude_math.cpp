// Loops over the prelude's mathematical functions, called from test_prelude_math.py; the prelude stands before this.

#define EXPORT extern "C" __attribute__((visibility("default")))

#if defined(MPTUNE_HALF_VECTORS)
extern "C" { __attribute__((visibility("default"))) int computes_in_half = 1; }
#else
extern "C" { __attribute__((visibility("default"))) int computes_in_half = 0; }
#endif

#define LOOP(name, policy, type)                                                                      \
    EXPORT void name##_##policy##_##type(const type* __restrict__ x, type* __restrict__ y, long n) {  \
        for (long i = 0; i < n; ++i) y[i] = mp::name<mp::policy>(x[i]);                               \
    }
#define LOOP2(name, policy, type)                                                                     \
    EXPORT void name##_##policy##_##type(const type* __restrict__ x, const type* __restrict__ y,      \
                                         type* __restrict__ z, long n) {                              \
        for (long i = 0; i < n; ++i) z[i] = mp::name<mp::policy>(x[i], y[i]);                         \
    }
#define POLICIES(define, name)                                                                        \
    define(name, accurate, double) define(name, accurate, float) define(name, fast, float)            \
    define(name, accurate, half) define(name, approx, half)                                           \
    define(name, accurate, bfloat16) define(name, approx, bfloat16)
#define EXACT(name) LOOP(name, accurate, double) LOOP(name, accurate, float) LOOP(name, accurate, half)

POLICIES(LOOP, exp)
POLICIES(LOOP, exp2)
POLICIES(LOOP, log)
POLICIES(LOOP, log2)
POLICIES(LOOP, log10)
POLICIES(LOOP, sin)
POLICIES(LOOP, cos)
POLICIES(LOOP, tan)
POLICIES(LOOP, asin)
POLICIES(LOOP, acos)
POLICIES(LOOP, atan)
POLICIES(LOOP, sinh)
POLICIES(LOOP, cosh)
POLICIES(LOOP, tanh)
POLICIES(LOOP, sqrt)
POLICIES(LOOP, rsqrt)
POLICIES(LOOP, cbrt)
POLICIES(LOOP, erf)
POLICIES(LOOP, erfc)
POLICIES(LOOP, exp10)
POLICIES(LOOP, expm1)
POLICIES(LOOP, log1p)
POLICIES(LOOP, sinpi)
POLICIES(LOOP, cospi)
POLICIES(LOOP, asinh)
POLICIES(LOOP, acosh)
POLICIES(LOOP, atanh)
POLICIES(LOOP, rcbrt)
POLICIES(LOOP, normcdf)
POLICIES(LOOP, tgamma)
POLICIES(LOOP, lgamma)
POLICIES(LOOP2, pow)
POLICIES(LOOP2, atan2)
POLICIES(LOOP2, hypot)
POLICIES(LOOP2, rhypot)
#define EXACT2(name) LOOP2(name, accurate, double) LOOP2(name, accurate, float) LOOP2(name, accurate, half)
EXACT2(fmod)
EXACT2(remainder)
EXACT2(fdim)
EXACT2(copysign)
EXACT(fabs)
EXACT(floor)
EXACT(ceil)
EXACT(round)
EXACT(rint)
EXACT(nearbyint)
EXACT(trunc)

static_assert(mp::detail::same<decltype(exp(1)), double>, "integers in double");
static_assert(mp::detail::same<decltype(mp::exp<fast>(fp8_e4m3())), float>, "fp8 in float");
static_assert(mp::detail::same<decltype(exp<approx>(bfloat16())), bfloat16>, "others in their own type");
static_assert(mp::detail::same<decltype(pow(half(), 2)), half>, "integers do not widen");
static_assert(mp::detail::same<decltype(pow(half(), 0.5f)), float>, "the wider of the two");
static_assert(mp::detail::same<decltype(mp::exp<fast>(vec<float, 4>())), vec<float, 4>>, "by element");
static_assert(mp::detail::same<decltype(min(1, 2.0)), double>, "the wider of the two");
static_assert(mp::detail::same<decltype(mp::fmin(1, 2)), double> && mp::detail::same<decltype(mp::fmin(half(), 2)), half>,
              "as every function of two numbers");

#define EXTREMA(type)                                                                      \
    EXPORT void extrema_##type(const type* x, const type* y, type* r, long n) {            \
        for (long i = 0; i < n; ++i) {                                                     \
            const local<type> a = x[i], b = y[i];                                          \
            const vec<type, 2> u(type(1), x[i]), v(type(2), y[i]);                         \
            r[i] = min(x[i], y[i]);                                                        \
            r[n + i] = max(x[i], y[i]);                                                    \
            r[2 * n + i] = abs(x[i]);                                                      \
            r[3 * n + i] = isnan(x[i]) + 2 * isinf(x[i]) + 4 * isfinite(x[i]);             \
            r[4 * n + i] = fmin(x[i], y[i]);                                               \
            r[5 * n + i] = mp::fmin(a, b);                                                 \
            r[6 * n + i] = mp::fmin(u, v)[1];                                              \
            r[7 * n + i] = fmax(x[i], y[i]);                                               \
            r[8 * n + i] = mp::fmax(a, b);                                                 \
            r[9 * n + i] = mp::fmax(u, v)[1];                                              \
            r[10 * n + i] = mp::fmin(mp::fmax(a, 0.0_num), 2);                             \
        }                                                                                  \
    }
EXTREMA(double)
EXTREMA(float)
EXTREMA(half)
EXTREMA(bfloat16)
#define PARTS(type)                                                                        \
    EXPORT void parts_##type(const type* x, double* r, long n) {                           \
        for (long i = 0; i < n; ++i) {                                                     \
            type whole, sine, cosine;                                                      \
            r[i] = mp::modf(x[i], &whole);                                                 \
            r[n + i] = whole;                                                              \
            r[2 * n + i] = signbit(x[i]);                                                  \
            r[3 * n + i] = mp::ldexp(x[i], -7);                                            \
            mp::sincos(x[i], &sine, &cosine);                                              \
            r[4 * n + i] = sine == mp::sin(x[i]) && cosine == mp::cos(x[i]);               \
            const type small = mp::fmod(x[i], type(64));                                   \
            r[5 * n + i] = mp::lround(small);                                              \
            r[6 * n + i] = mp::llrint(small);                                              \
            r[7 * n + i] = mp::norm3d(small, type(3), type(-4));                           \
            r[8 * n + i] = mp::rnorm4d(type(3), small, type(4), type(1));                  \
        }                                                                                  \
    }
PARTS(double)
PARTS(float)
PARTS(half)
#define BOUNDED(type)                                                                                     \
    EXPORT void bounded_##type(const type* x, type* sine, type* cosine, long n) {                         \
        for (long i = 0; i < n; ++i) mp::sincos_bounded(x[i], &sine[i], &cosine[i]);                      \
    }
BOUNDED(double)
BOUNDED(float)
BOUNDED(half)
BOUNDED(bfloat16)
EXPORT void of_vectors(const float* x, float* y) {
    const vec<float, 4> v = load<4>(x);
    store(y, mp::pow<mp::fast>(mp::sqrt(v), 2) + max(v, -v) + mp::hypot(v, v));
}
