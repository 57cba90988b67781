// What 0.5_num means beside every type, called from test_prelude_literal.py; the prelude stands before this text.

#if defined(MPTUNE_HOST)
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

template <class A, class B>
constexpr bool same = mp::detail::same<A, B>;
using mp::literal;

// It takes the type of what it meets, on either side.
#define TAKES_THE_TYPE_OF(type, result)                                                                             \
    static_assert(same<decltype(type() * 0.5_num), result> && same<decltype(0.5_num - type()), result>, "operators"); \
    static_assert(same<decltype(mp::pow(type(), 2.5_num)), result>, "functions");                                   \
    static_assert(same<decltype(mp::pow<mp::fast>(2.5_num, type())), result>, "functions");                         \
    static_assert(same<decltype(mp::max(0.0_num, type())), result> && same<decltype(mp::min(type(), 1_num)), result>, "extrema"); \
    static_assert(same<decltype(mp::fma(type(), 0.5_num, type())), result>, "fma");                                     \
    static_assert(same<decltype(mp::fma(0.5_num, type(), 2.5_num)), result>, "fma");                                    \
    static_assert(same<decltype(type() < 0.5_num), bool> && same<decltype(0.5_num == type()), bool>, "comparisons");
#define IS_CHOSEN_WITH(type) \
    static_assert(same<decltype(true ? type() : 0.5_num), type> && same<decltype(true ? -0.5_num : type()), type>, "?:");
TAKES_THE_TYPE_OF(double, double)
TAKES_THE_TYPE_OF(float, float)
TAKES_THE_TYPE_OF(half, half)
TAKES_THE_TYPE_OF(bfloat16, bfloat16)
TAKES_THE_TYPE_OF(local<half>, local<half>)
TAKES_THE_TYPE_OF(local<bfloat16>, local<bfloat16>)
TAKES_THE_TYPE_OF(fp8_e4m3, float)
TAKES_THE_TYPE_OF(fp8_e5m2, float)
TAKES_THE_TYPE_OF(int, literal)
TAKES_THE_TYPE_OF(unsigned, literal)
TAKES_THE_TYPE_OF(literal, literal)
IS_CHOSEN_WITH(double)
IS_CHOSEN_WITH(float)
IS_CHOSEN_WITH(half)
IS_CHOSEN_WITH(bfloat16)
IS_CHOSEN_WITH(local<half>)
IS_CHOSEN_WITH(local<bfloat16>)
IS_CHOSEN_WITH(fp8_e5m2)
IS_CHOSEN_WITH(literal)
static_assert(same<decltype(vec<float, 4>() * 0.5_num), vec<float, 4>>, "vectors");
static_assert(same<decltype(mp::exp(0.5_num)), literal> && same<decltype(mp::sqrt<fast>(2_num)), literal>, "functions");
static_assert(same<decltype(CHOICE(true, half(), 1.0)), double> && same<decltype(CHOICE(true, 0, half())), half>, "CHOICE");
static_assert(same<decltype(CHOICE(true, 0.5_num, 0)), literal> && same<decltype(CHOICE(true, 1, 2)), int>, "CHOICE");
#define TENTH 0.1
#define COUNT 3
static_assert(same<decltype(mp::number(TENTH)), literal> && same<decltype(mp::number(COUNT)), int>, "macros");
static_assert(same<decltype(mp::number(half())), half>, "what has a type keeps it");

// All of it at compile time.
constexpr literal third = 1.0_num / 3;
static_assert(third == 1.0 / 3.0 && -third + 1 < 0.67_num && static_cast<float>(third) == 1.0f / 3.0f, "constants");
static_assert(0.1_num == 0.1 && mp::number(TENTH) == 0.1_num && 3_num > 2 && 2 != 3.0_num, "constants");
static_assert(1.5f * 2.0_num == 3.0f && static_cast<int>(2.75_num) == 2, "constants");

// A body as programs have it, in type T with variables of type L.
template <class T, class L>
__device__ void body(const T* x, T* y, int n, int i) {
    L value = 0.25_num, sum = 0.0_num;
    const L table[3] = {0.25_num, 0.5_num, 0.25_num};
    for (int k = 0; k < 3; ++k) sum += table[k] * x[i + k];
    sum *= 2.0_num;
    sum -= 0.1_num;
    sum /= 3.0_num;
    value = i > 0 ? x[i] : 0.0_num;
    if (value > 0.75_num) value = 0.75_num;
    const literal step = 1.0_num / n;
    value = mp::max(value, 0.0_num) + mp::fma(sum, 0.5_num, step) - third * value;
    y[i] = -value * 1.0e-1_num + CHOICE(value < 0, 0.5_num, value);
}

}  // namespace

#if defined(MPTUNE_HOST)
#define BODY(type)                                                        \
    EXPORT void body_##type(const type* x, type* y, int n) {              \
        for (int i = 0; i < n; ++i) body<type, local<type>>(x, y, n, i);  \
    }                                                                     \
    EXPORT void convert_##type(double x, type* y, bool* same) {           \
        *y = literal(x);                                                  \
        same[0] = *y == literal(x);                                       \
        same[1] = literal(x) >= *y && *y <= literal(x);                   \
        same[2] = !(*y != literal(x)) && !(literal(x) < *y) && !(*y > literal(x)); \
    }
BODY(double)
BODY(float)
BODY(half)
BODY(bfloat16)
EXPORT int integers(int n) {
    int i = 0.5_num * n;
    i += 2.5_num;
    return i > 3.5_num ? i : -1;
}

// What a hand would write, and the same with literals: test_prelude_literal.py compares their machine code.
EXPORT __attribute__((noinline)) void by_hand(const float* __restrict__ x, float* __restrict__ y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (x[i] > 0.5f ? x[i] * 0.1f : 0.25f) + 3.0f;
}
EXPORT __attribute__((noinline)) void by_literal(const float* __restrict__ x, float* __restrict__ y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (x[i] > 0.5_num ? x[i] * 0.1_num : 0.25_num) + 3.0_num;
}
#else
#define BODY(type)                                                                \
    extern "C" __global__ void body_##type(const type* x, type* y, int n) {       \
        body<type, local<type>>(x, y, n, blockIdx.x * blockDim.x + threadIdx.x);  \
    }
BODY(double)
BODY(float)
BODY(half)
BODY(bfloat16)
extern "C" __global__ void by_hand(const float* x, float* y) {
    const int i = threadIdx.x;
    y[i] = (x[i] > 0.5f ? x[i] * 0.1f : 0.25f) + 3.0f;
}
extern "C" __global__ void by_literal(const float* x, float* y) {
    const int i = threadIdx.x;
    y[i] = (x[i] > 0.5_num ? x[i] * 0.1_num : 0.25_num) + 3.0_num;
}
#endif
