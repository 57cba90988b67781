// Vectors with members as programs use them; test_prelude_vectors.py compiles it behind the prelude.

template <class A, class B>
constexpr bool same = mp::detail::same<A, B>;
using mp::vec2;
using mp::vec3;
using mp::vec4;

// As they lie in memory, and CUDA's alignment.
static_assert(sizeof(vec3<double>) == 24 && alignof(vec3<double>) == 8 && sizeof(vec3<half>) == 6 && alignof(vec3<half>) == 2);
static_assert(sizeof(vec4<float>) == 16 && alignof(vec4<float>) == 16 && alignof(vec2<float>) == 8);
static_assert(sizeof(vec4<double>) == 32 && alignof(vec2<double>) == 16 && sizeof(vec2<int>) == 8);
static_assert(same<local<vec3<float>>, vec3<float>> && same<local<vec4<half>>, vec4<local<half>>>);
static_assert(mptune_declared::fits<true, float, vec3<float>*> && !mptune_declared::fits<true, float, const vec3<double>*>);
// A list of one number is a vector, the number itself none.
__device__ vec2<double> scaled(double by, vec2<double> v);
__device__ int scaled(vec2<double> a, vec2<double> b);
static_assert(same<decltype(scaled(0.5_num / 4, vec2<float>{0.5_num})), vec2<double>>);
static_assert(same<decltype(scaled(half(2), vec2<float>{1, 2})), vec2<double>>);

struct body {
    vec3<float> place;
    float mass;
};
static_assert(sizeof(body) == 16);

// A program's own operator.
template <class T>
__device__ vec3<T> operator-(vec3<T> a, vec3<T> b) {
    return {a.x - b.x, a.y - b.y, a.z - b.z};
}

template <class T, class V>
__device__ void turn(const vec3<T>* places, vec3<V>* turned, vec4<T> by, int i) {
    local<vec3<T>> p = places[i];
    p = p - mp::make_vec3<local<T>>(0.5_num, 1, 0.25f);
    const local<vec3<V>> back = {-p.y, p.x * 2.0_num};
    turned[i] = i % 2 ? back : local<vec3<V>>(p);
    turned[i].z += by.w;
}

#define TURN(name, T, V)                                                                                           \
    extern "C" __global__ void name(const vec3<T>* places, vec3<V>* turned, vec4<T> by, int n) {                   \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                                       \
        if (i < n) turn(places, turned, by, i);                                                                    \
    }
#if defined(MPTUNE_HOST)
#define KERNEL(name, T, V) \
    TURN(name##_kernel, T, V) \
    extern "C" __attribute__((visibility("default"))) void name(const vec3<T>* p, vec3<V>* t, const vec4<T>* by, int n) { \
        for (int i = 0; i < n; ++i) turn(p, t, *by, i); \
    }
#else
#define KERNEL(name, T, V) TURN(name, T, V)
#endif
KERNEL(double_float, double, float)
KERNEL(float_float, float, float)
KERNEL(half_double, half, double)
KERNEL(bfloat16_half, bfloat16, half)

extern "C" __global__ void shared(vec4<float>* x) {
    __shared__ vec4<float> tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
