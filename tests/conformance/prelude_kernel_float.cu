// Kernel Float's vectors over the prelude; test_prelude_kernel_float.py compiles it on every backend and runs it.
#include "kernel_float.h"
namespace kf = kernel_float;

template <class A, class B>
constexpr bool same = mp::detail::same<A, B>;
using h4 = kf::vec<half, 4>;
static_assert(same<decltype(h4() * 2), h4> && same<decltype(h4() + kf::vec<bfloat16, 4>()), kf::vec<float, 4>>);
static_assert(same<decltype(h4() * 0.5), kf::vec<double, 4>> && same<decltype(h4() * kf::make_constant(0.5)), h4>);
static_assert(same<decltype(kf::make_vec(1, 2.0f)), kf::vec<float, 2>> && same<decltype(kf::vec<int, 3>() < 1), kf::vec<bool, 3>>);
static_assert(sizeof(kf::vec<double, 3>) == 24 && alignof(h4) == 8 && sizeof(kf::vec<float, 16>) == 64);

static constexpr auto PI = kf::make_constant(3.14159265358979);

// Sixteen elements of 4 numbers each: what a thread with the pointers to its own does.
template <class T>
__device__ void compute(kf::vec_ptr<T, 4> out, kf::vec_ptr<const T, 4> in, const kf::vec<T, 2>* pairs, int i) {
    const kf::vec<T, 4> x = in[i];
    kf::vec<T, 4> y = kf::fma(x, PI, T(1)) - x / 2;
    y[0] = y[0] + kf::sum(x) + kf::dot(x, x) + kf::product(x) + kf::min(x) * kf::max(x);
    y[1] = y[1] + T(kf::count(x > T(0.5)) + 10 * kf::any(x > T(2)) + 100 * kf::all((x >= T(0)) & (x < T(1))));
    out[8 * i] = y;
    out[8 * i + 1] = kf::exp(in[i]) + kf::fast::cos(x) + kf::approx::sin(x) + kf::sqrt<kf::fast_policy>(x);
    out[8 * i + 2] = kf::where(x < T(0.5), kf::pow(x, T(2)), kf::max(x, T(0.75))) + kf::abs(-x) % T(0.25);
    const kf::vec<int, 4> index = kf::range<int, 4>() * 2 + 1;
    out[8 * i + 3] = kf::cast<T>(index % 4) + kf::zeros<T, 4>() + kf::ones_like(x) + kf::fill<4>(T(3));
    out[8 * i + 3] *= kf::broadcast<4>(x[2]);
    out[8 * i + 4] = kf::concat(pairs[2 * i + 1], kf::select(x, 3, 0));
    out[8 * i + 5] = kf::map([](auto a, auto b) { return a * b + a; }, x, kf::range_like(x));
    T total = 0;
    kf::for_each(x, [&](auto a) { total = total + a; });
    out[8 * i + 6] = kf::vec<T, 4>{total, kf::reduce([](auto a, auto b) { return a > b ? a : b; }, x), x.get(3), x.data()[1]};
    kf::write_aligned<4>(out.get() + (8 * i + 7) * 4, kf::read_aligned<4>(in.get() + i * 4));
    kf::write(out.get() + (8 * i + 7) * 4, kf::make_vec(3, 0), kf::read(in.get() + i * 4, kf::make_vec(0, 3)), kf::make_vec(true, i % 2 == 0));
}

#define COMPUTE(name, T)                                                                                            \
    extern "C" __global__ void name(T* out, const T* in, int n) {                                                   \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                                        \
        if (i < n) compute<T>(kernel_float::pass(out), kernel_float::pass(in), kernel_float::pass(in), i);          \
    }
COMPUTE(in_double, double)
COMPUTE(in_float, float)
COMPUTE(in_half, half)
COMPUTE(in_bfloat16, bfloat16)
