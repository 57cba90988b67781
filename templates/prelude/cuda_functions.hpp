// What kernels of CUDA programs use besides: vectors of every type, integers by their size, memory, limits, questions
// about types. The host has none of it; the runtime compilers have most of it built in, but nothing of the C++ library.

// A list of initial values may hold wider types once those of a program change.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wc++11-narrowing"
#endif

#if !defined(MPTUNE_HIP)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#endif
#if !defined(assert)
#define assert(...) static_cast<void>(0)
#endif

#if defined(MPTUNE_HOST)

typedef decltype(sizeof(0)) size_t;
typedef decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr)) ptrdiff_t;
#if !defined(_STRING_H)
extern "C" void* memcpy(void*, const void*, size_t) noexcept;
extern "C" void* memmove(void*, const void*, size_t) noexcept;
extern "C" void* memset(void*, int, size_t) noexcept;
#endif
#if !defined(_STDIO_H)
extern "C" int printf(const char*, ...);
#endif

#define MPTUNE_VECTORS_OF(T, name)                                                                  \
    struct name##1 {                                                                                \
        T x;                                                                                        \
    };                                                                                              \
    using name##2 = mp::vec2<T>;                                                                    \
    using name##3 = mp::vec3<T>;                                                                    \
    using name##4 = mp::vec4<T>;                                                                    \
    MPTUNE_INLINE name##1 make_##name##1(T x) { return {x}; }                                       \
    MPTUNE_LAZY MPTUNE_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                               \
    MPTUNE_LAZY MPTUNE_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                       \
    MPTUNE_LAZY MPTUNE_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
MPTUNE_VECTORS_OF(signed char, char)
MPTUNE_VECTORS_OF(unsigned char, uchar)
MPTUNE_VECTORS_OF(short, short)
MPTUNE_VECTORS_OF(unsigned short, ushort)
MPTUNE_VECTORS_OF(int, int)
MPTUNE_VECTORS_OF(unsigned, uint)
MPTUNE_VECTORS_OF(long, long)
MPTUNE_VECTORS_OF(unsigned long, ulong)
MPTUNE_VECTORS_OF(long long, longlong)
MPTUNE_VECTORS_OF(unsigned long long, ulonglong)
MPTUNE_VECTORS_OF(float, float)
MPTUNE_VECTORS_OF(double, double)
#if defined(MPTUNE_COUNTED)
using mp::own_double;
using mp::own_float;
MPTUNE_VECTORS_OF(mp::own_float, own_float)
MPTUNE_VECTORS_OF(mp::own_double, own_double)
#endif
#undef MPTUNE_VECTORS_OF

template <class T>
MPTUNE_INLINE T __ldca(const T* p) {
    return *p;
}
template <class T>
MPTUNE_INLINE T __ldcg(const T* p) {
    return *p;
}
template <class T>
MPTUNE_INLINE T __ldcs(const T* p) {
    return *p;
}


// Rarer functions, as the C library computes them. In a namespace, since programs have things of these names.
namespace mptune_c {
MPTUNE_INLINE long labs(long x) { return x < 0 ? -x : x; }
MPTUNE_INLINE long long llabs(long long x) { return x < 0 ? -x : x; }
MPTUNE_INLINE double nan(const char*) { return __builtin_nan(""); }
MPTUNE_INLINE float nanf(const char*) { return __builtin_nanf(""); }
// (clang has no builtins for all of them.)
#define MPTUNE_C_FUNCTION(R, S, name, parameters, f_parameters, arguments)                 \
    extern "C" R mptune_c_##name parameters noexcept __asm__(#name);                       \
    extern "C" S mptune_c_##name##f f_parameters noexcept __asm__(#name "f");              \
    MPTUNE_INLINE R name parameters { return mptune_c_##name arguments; }                  \
    MPTUNE_INLINE S name##f f_parameters { return mptune_c_##name##f arguments; }
MPTUNE_C_FUNCTION(double, float, j0, (double x), (float x), (x))
MPTUNE_C_FUNCTION(double, float, j1, (double x), (float x), (x))
MPTUNE_C_FUNCTION(double, float, jn, (int n, double x), (int n, float x), (n, x))
MPTUNE_C_FUNCTION(double, float, y0, (double x), (float x), (x))
MPTUNE_C_FUNCTION(double, float, y1, (double x), (float x), (x))
MPTUNE_C_FUNCTION(double, float, yn, (int n, double x), (int n, float x), (n, x))
#undef MPTUNE_C_FUNCTION
template <class A, class B, class R = mp::detail::math_type2<A, B>>
MPTUNE_INLINE R nextafter(A a, B b) {
    if constexpr (sizeof(R) == 8) return __builtin_nextafter(static_cast<double>(a), static_cast<double>(b));
    else return static_cast<R>(__builtin_nextafterf(static_cast<float>(a), static_cast<float>(b)));
}
template <class A>
MPTUNE_INLINE mp::detail::math_type<A> logb(A a) {
    return static_cast<mp::detail::math_type<A>>(__builtin_logb(static_cast<double>(a)));
}
template <class A>
MPTUNE_INLINE int ilogb(A a) {
    return __builtin_ilogb(static_cast<double>(a));
}
MPTUNE_INLINE float nextafterf(float a, float b) { return __builtin_nextafterf(a, b); }
MPTUNE_INLINE float logbf(float a) { return __builtin_logbf(a); }
MPTUNE_INLINE int ilogbf(float a) { return __builtin_ilogbf(a); }
// Functions of fp32 that are given wider numbers: sqrtf(x) of a double.
#define MPTUNE_OF_FLOAT(name)                                                             \
    template <class A>                                                                    \
    MPTUNE_INLINE float name##f(A a) {                                                    \
        return static_cast<float>(mp::name(static_cast<float>(a)));                       \
    }
#define MPTUNE_OF_FLOATS(name)                                                            \
    template <class A, class B>                                                           \
    MPTUNE_INLINE float name##f(A a, B b) {                                               \
        return static_cast<float>(mp::name(static_cast<float>(a), static_cast<float>(b))); \
    }
#define MPTUNE_FAST(name)                                                                 \
    template <class... A>                                                                 \
    MPTUNE_INLINE float __##name##f(A... a) {                                             \
        return static_cast<float>(mp::name(static_cast<float>(a)...));                    \
    }
MPTUNE_ALL_MATH(MPTUNE_OF_FLOAT, MPTUNE_OF_FLOATS)
MPTUNE_OF_FLOATS(fmin)
MPTUNE_OF_FLOATS(fmax)
MPTUNE_FAST(exp)
MPTUNE_FAST(exp10)
MPTUNE_FAST(log)
MPTUNE_FAST(log2)
MPTUNE_FAST(log10)
MPTUNE_FAST(sin)
MPTUNE_FAST(cos)
MPTUNE_FAST(tan)
MPTUNE_FAST(pow)
template <class A, class B, class C>
MPTUNE_INLINE float fmaf(A a, B b, C c) {
    return __builtin_fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
}
#undef MPTUNE_FAST
#undef MPTUNE_OF_FLOATS
#undef MPTUNE_OF_FLOAT
using mp::norm4d;
using mp::rnorm3d;
using mp::rnorm4d;
template <class T>
MPTUNE_INLINE T norm(int n, const T* p) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += static_cast<double>(p[i]) * static_cast<double>(p[i]);
    return static_cast<T>(__builtin_sqrt(sum));
}
MPTUNE_INLINE float normf(int n, const float* p) { return norm(n, p); }
MPTUNE_INLINE float norm4df(float x, float y, float z, float w) { return norm4d(x, y, z, w); }
MPTUNE_INLINE float rnorm3df(float x, float y, float z) { return rnorm3d(x, y, z); }
MPTUNE_INLINE float rnorm4df(float x, float y, float z, float w) { return rnorm4d(x, y, z, w); }
}  // namespace mptune_c

#endif  // MPTUNE_HOST

#if defined(MPTUNE_HOST) || defined(MPTUNE_HIP)
namespace mptune_c {
template <class T>
MPTUNE_INLINE T __ldlu(const T* p) {
    return *p;
}
template <class T>
MPTUNE_INLINE T __ldcv(const T* p) {
    return *p;
}
template <class T, class V>
MPTUNE_INLINE void __stwb(T* p, V value) {
    *p = value;
}
template <class T, class V>
MPTUNE_INLINE void __stwt(T* p, V value) {
    *p = value;
}
MPTUNE_INLINE void __brkpt() {}
MPTUNE_INLINE void __prof_trigger(int) {}
MPTUNE_INLINE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
MPTUNE_INLINE unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
MPTUNE_INLINE long long llmin(long long a, long long b) { return a < b ? a : b; }
MPTUNE_INLINE long long llmax(long long a, long long b) { return a > b ? a : b; }
}  // namespace mptune_c
using namespace mptune_c;
#endif

#if !defined(MPTUNE_CUDA)
template <class T, class V>
MPTUNE_INLINE void __stcg(T* p, V value) {
    *p = value;
}
template <class T, class V>
MPTUNE_INLINE void __stcs(T* p, V value) {
    *p = value;
}
#endif

namespace mp {

// What std::numeric_limits says of integers, float and double.
template <class T>
struct numeric_limits {
    static constexpr bool is_signed = T(-1) < T(0), is_integer = true;
    static constexpr int digits = 8 * static_cast<int>(sizeof(T)) - is_signed;
    static constexpr MPTUNE_INLINE T max() { return static_cast<T>(~0ull >> (64 - digits)); }
    static constexpr MPTUNE_INLINE T min() { return is_signed ? static_cast<T>(-max() - 1) : T(0); }
    static constexpr MPTUNE_INLINE T lowest() { return min(); }
    static constexpr MPTUNE_INLINE T epsilon() { return T(0); }
};
template <>
struct numeric_limits<bool> {
    static constexpr MPTUNE_INLINE bool max() { return true; }
    static constexpr MPTUNE_INLINE bool min() { return false; }
    static constexpr MPTUNE_INLINE bool lowest() { return false; }
};
// NVRTC has no __builtin_inf and __builtin_nan, and in OpenCL a string is in an address space of its own.
#if defined(MPTUNE_CUDA) || defined(MPTUNE_OPENCL)
#define MPTUNE_SPECIAL(T, name, bits) __builtin_bit_cast(T, bits)
#else
#define MPTUNE_SPECIAL(T, name, bits) __builtin_##name
#endif
#define MPTUNE_LIMITS(T, suffix, bits, largest, smallest, step, tiny, inf_bits, nan_bits) \
    template <>                                                                           \
    struct numeric_limits<T> {                                                            \
        static constexpr bool is_signed = true, is_integer = false, has_infinity = true;  \
        static constexpr int digits = bits;                                               \
        static constexpr MPTUNE_INLINE T max() { return largest; }                        \
        static constexpr MPTUNE_INLINE T min() { return smallest; }                       \
        static constexpr MPTUNE_INLINE T lowest() { return -largest; }                    \
        static constexpr MPTUNE_INLINE T epsilon() { return step; }                       \
        static constexpr MPTUNE_INLINE T denorm_min() { return tiny; }                    \
        static constexpr MPTUNE_INLINE T round_error() { return T(0.5f); }                \
        static constexpr MPTUNE_INLINE T infinity() { return MPTUNE_SPECIAL(T, inf##suffix(), inf_bits); } \
        static constexpr MPTUNE_INLINE T quiet_NaN() { return MPTUNE_SPECIAL(T, nan##suffix(""), nan_bits); } \
    };
MPTUNE_LIMITS(float, f, 24, 0x1.fffffep127f, 0x1p-126f, 0x1p-23f, 0x1p-149f, 0x7f800000u, 0x7fc00000u)
MPTUNE_LIMITS(double, , 53, 0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-52, 0x1p-1074, 0x7ff0000000000000ull,
              0x7ff8000000000000ull)
#undef MPTUNE_LIMITS
#undef MPTUNE_SPECIAL

template <class A, class B>
constexpr bool is_same_v = detail::same<A, B>;
template <class T>
constexpr bool is_integral_v = detail::is_integer<detail::bare_t<T>>;
template <class T>
constexpr bool is_arithmetic_v = detail::is_number<detail::bare_t<T>>;
template <class T>
constexpr bool is_floating_point_v = is_arithmetic_v<T> && !is_integral_v<T>;
template <bool Condition>
struct known {
    static constexpr bool value = Condition;
    constexpr MPTUNE_INLINE operator bool() const { return Condition; }
};
template <class A, class B>
struct is_same : known<is_same_v<A, B>> {};
template <class T>
struct is_integral : known<is_integral_v<T>> {};
template <class T>
struct is_arithmetic : known<is_arithmetic_v<T>> {};
template <class T>
struct is_floating_point : known<is_floating_point_v<T>> {};
using detail::enable_if;
using detail::enable_if_t;
template <bool Condition, class A, class B>
using conditional = detail::choose<Condition, A, B>;
template <bool Condition, class A, class B>
using conditional_t = detail::choose_t<Condition, A, B>;

template <class T>
struct remove_reference {
    using type = T;
};
template <class T>
struct remove_reference<T&> {
    using type = T;
};
template <class T>
struct remove_reference<T&&> {
    using type = T;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
using decay_t = detail::bare_t<remove_reference_t<T>>;
template <class T>
MPTUNE_INLINE T&& declval();
template <class T>
constexpr MPTUNE_INLINE T&& forward(remove_reference_t<T>& x) {
    return static_cast<T&&>(x);
}
template <class T>
constexpr MPTUNE_INLINE remove_reference_t<T>&& move(T&& x) {
    return static_cast<remove_reference_t<T>&&>(x);
}
template <class A, class B>
struct common_type {
    using type = decay_t<decltype(true ? declval<decay_t<A>>() : declval<decay_t<B>>())>;
};
template <class A, class B>
using common_type_t = typename common_type<A, B>::type;

template <class T>
MPTUNE_INLINE void swap(T& a, T& b) {
    const T kept = a;
    a = b;
    b = kept;
}
template <class T, class Low, class High>
MPTUNE_INLINE T clamp(T x, Low low, High high) {
    return x < low ? static_cast<T>(low) : high < x ? static_cast<T>(high) : x;
}
template <class X, class Y>
MPTUNE_INLINE auto fdivide(X x, Y y) {
    return x / y;
}
template <class T>
MPTUNE_INLINE T saturate(T x) {
    return x > T(0) ? x < T(1) ? static_cast<T>(x) : T(1) : T(0);
}

}  // namespace mp

#if !defined(MPTUNE_OPENCL)
namespace mp {
using ::__hadd;  // of whole numbers
}

// Complex numbers of cuComplex.h: vectors of two of any type, in a namespace, since programs may include CUDA's own.
namespace mptune_complex {
typedef mp::vec2<float> cuComplex;
typedef mp::vec2<float> cuFloatComplex;
typedef mp::vec2<double> cuDoubleComplex;
template <class T>
MPTUNE_INLINE mp::vec2<T> of(T x, T y) {
    return mp::vec2<T>(x, y);
}
MPTUNE_INLINE cuFloatComplex make_cuComplex(float x, float y) { return of(x, y); }
MPTUNE_INLINE cuFloatComplex make_cuFloatComplex(float x, float y) { return of(x, y); }
MPTUNE_INLINE cuDoubleComplex make_cuDoubleComplex(double x, double y) { return of(x, y); }
#define MPTUNE_COMPLEX(real, imaginary, conj, add, sub, mul, div, abs, fma)                        \
    template <class A>                                                                             \
    MPTUNE_INLINE A real(mp::vec2<A> z) { return z.x; }                                            \
    template <class A>                                                                             \
    MPTUNE_INLINE A imaginary(mp::vec2<A> z) { return z.y; }                                       \
    template <class A>                                                                             \
    MPTUNE_INLINE auto conj(mp::vec2<A> z) { return of(z.x, A(-z.y)); }                            \
    template <class A>                                                                             \
    MPTUNE_INLINE auto abs(mp::vec2<A> z) { return mp::hypot(z.x, z.y); }                          \
    template <class A, class B>                                                                    \
    MPTUNE_INLINE auto add(mp::vec2<A> a, mp::vec2<B> b) { return of(a.x + b.x, a.y + b.y); }      \
    template <class A, class B>                                                                    \
    MPTUNE_INLINE auto sub(mp::vec2<A> a, mp::vec2<B> b) { return of(a.x - b.x, a.y - b.y); }      \
    template <class A, class B>                                                                    \
    MPTUNE_INLINE auto mul(mp::vec2<A> a, mp::vec2<B> b) {                                         \
        return of(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);                                   \
    }                                                                                              \
    template <class A, class B>                                                                    \
    MPTUNE_INLINE auto div(mp::vec2<A> a, mp::vec2<B> b) {                                         \
        const B size = B(b.x < B(0) ? B(-b.x) : b.x) + B(b.y < B(0) ? B(-b.y) : b.y), scale = B(1) / size; \
        const auto c = of(A(a.x * scale), A(a.y * scale));                                         \
        const auto d = of(B(b.x * scale), B(b.y * scale));                                         \
        const B inverse = B(1) / (d.x * d.x + d.y * d.y);                                          \
        return of((c.x * d.x + c.y * d.y) * inverse, (c.y * d.x - c.x * d.y) * inverse);           \
    }                                                                                              \
    template <class A, class B, class C>                                                           \
    MPTUNE_INLINE auto fma(mp::vec2<A> a, mp::vec2<B> b, mp::vec2<C> c) { return add(mul(a, b), c); }
MPTUNE_COMPLEX(cuCreal, cuCimag, cuConj, cuCadd, cuCsub, cuCmul, cuCdiv, cuCabs, cuCfma)
MPTUNE_COMPLEX(cuCrealf, cuCimagf, cuConjf, cuCaddf, cuCsubf, cuCmulf, cuCdivf, cuCabsf, cuCfmaf)
#undef MPTUNE_COMPLEX
}  // namespace mptune_complex
using namespace mptune_complex;
#endif
