// Everything the prelude offers, instantiated for a GPU; test_prelude_gpu.py compiles it behind the prelude.

template <class T>
__device__ T every_function(T x, T y) {
#define ALL_POLICIES(name) x = x + mp::name<mp::accurate>(y) + mp::name<fast>(y) + mp::name<approx>(y) + name(x);
    ALL_POLICIES(exp) ALL_POLICIES(exp2) ALL_POLICIES(log) ALL_POLICIES(log2) ALL_POLICIES(log10)
    ALL_POLICIES(sin) ALL_POLICIES(cos) ALL_POLICIES(tan) ALL_POLICIES(asin) ALL_POLICIES(acos) ALL_POLICIES(atan)
    ALL_POLICIES(sinh) ALL_POLICIES(cosh) ALL_POLICIES(tanh) ALL_POLICIES(sqrt) ALL_POLICIES(rsqrt) ALL_POLICIES(cbrt)
    ALL_POLICIES(erf) ALL_POLICIES(erfc) ALL_POLICIES(fabs) ALL_POLICIES(floor) ALL_POLICIES(ceil)
    ALL_POLICIES(round) ALL_POLICIES(rint) ALL_POLICIES(trunc) ALL_POLICIES(nearbyint)
    ALL_POLICIES(exp10) ALL_POLICIES(expm1) ALL_POLICIES(log1p) ALL_POLICIES(sinpi) ALL_POLICIES(cospi)
    ALL_POLICIES(asinh) ALL_POLICIES(acosh) ALL_POLICIES(atanh) ALL_POLICIES(rcbrt) ALL_POLICIES(normcdf)
    ALL_POLICIES(tgamma) ALL_POLICIES(lgamma)
    x = x + mp::pow<mp::fast>(x, y) + mp::atan2(x, y) + mp::hypot(x, y) + mp::fmod(x, y) + mp::rhypot<fast>(x, y);
    x = x + mp::remainder(x, y) + mp::fdim(x, y) + mp::copysign(x, y) + mp::norm3d<fast>(x, y, x) + mp::rnorm4d(x, y, y, x);
    T s, c, w;
    mp::sincos<fast>(x, &s, &c);
    mp::sincospi(y, &x, &y);
    mp::sincos_bounded(x, &s, &y);
    vec<T, 3> sines, cosines;
    mp::sincospi(vec<T, 3>(x, y, s), &sines, &cosines);
    mp::sincospi<approx>(sines, &sines, &cosines);
    x = sum(sines) + sum(cosines);
    x = mp::modf(x, &w) + w + s + c + mp::ldexp(y, mp::lround(x)) + mp::signbit(y) + mp::scalbn(x, 3);
    x = x + fmin(x, y) + fmax(x, y) + min(x, y) + max(x, y) + mp::abs(x);
    return isnan(x) || isinf(x) || !isfinite(x) ? T(0) : x;
}

template <class A, class X, class Y>
__device__ void mixed(A a, X x, Y& y) {
    y = a * x + y;
    y = fma(a, x, y);
    y += x;
    y -= a;
    if (a < x || x == y || a >= y) y = -x / a;
}
template <class A, class X>
__device__ void mixed(A a, X x, double* d, float* f, half* h, bfloat16* b, fp8_e4m3* e, fp8_e5m2* g) {
    mixed(a, x, *d);
    mixed(a, x, *f);
    mixed(a, x, *h);
    mixed(a, x, *b);
    *e = a * x;
    *g = a + x;
}

extern "C" __global__ void functions(double* d, float* f, half* h, bfloat16* b) {
    const int i = threadIdx.x;
    d[i] = every_function(d[i], d[i + 1]);
    f[i] = every_function(f[i], f[i + 1]);
    h[i] = every_function(h[i], h[i + 1]);
    b[i] = every_function(b[i], b[i + 1]);
}

extern "C" __global__ void types(double* d, float* f, half* h, bfloat16* b, fp8_e4m3* e, fp8_e5m2* g, int n) {
    __shared__ half tile[64];
    tile[threadIdx.x] = n;
    __syncthreads();
    const float value = f[1];
#define WITH(x)                        \
    mixed(1.5, x, d, f, h, b, e, g);   \
    mixed(value, x, d, f, h, b, e, g); \
    mixed(h[1], x, d, f, h, b, e, g);  \
    mixed(b[1], x, d, f, h, b, e, g);
    WITH(d[1]) WITH(f[1]) WITH(tile[n]) WITH(b[2]) WITH(e[1]) WITH(g[2])
    mixed(n, h[1], d, f, h, b, e, g);
    atomicAdd(h, half(1));
    atomicAdd(b, bfloat16(2));
}

extern "C" __global__ void vectors(float* f, half* h, bfloat16* b, fp8_e4m3* e, fp8_e5m2* g) {
    const vec<float, 4> v = load<4>(f);
    const vec<half, 3> odd = load<3>(h);
    vec<bfloat16, 6> six = load<6>(b);
    six = fma(six, bfloat16(2), six) * 3 + mp::exp<mp::approx>(six);
    store(e, v / 2);
    store(b, six - odd[0]);
    store(h, fmin(min(odd, max(odd, load<3>(h + 3))), fmax(odd, odd)) / odd);
    store(g, v);
    store(f, vec<float, 4>(sum(odd), dot(odd, odd), 1, v[0]) + load<4>(e));
}

// What test_prelude_gpu.py looks for in the assembly.
extern "C" __global__ void wide(const half* __restrict__ x, half* __restrict__ y) {
    const vec<half, 8> v = load<8>(x + 8 * threadIdx.x);
    store(y + 8 * threadIdx.x, fma(v, v, v));
}
extern "C" __global__ void rough(half* x, float* y) {
    x[0] = mp::exp2<mp::approx>(x[0]);
    y[0] = mp::sin<mp::fast>(y[0]);
}
