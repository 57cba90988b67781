// Which compiler reads this, and the few language helpers the rest of the prelude needs.
//
// One rendered source goes through NVRTC, hiprtc, an OpenCL driver's C++ for OpenCL and an ordinary C++17 compiler.
// Nothing here includes a header: the runtime compilers have none, and on the host headers are most of the compile time.

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define MPTUNE_CUDA 1
#elif defined(__HIPCC_RTC__) || defined(__HIPCC__) || defined(__HIP__)
#define MPTUNE_HIP 1
#elif defined(__OPENCL_CPP_VERSION__)
#define MPTUNE_OPENCL 1
#else
#define MPTUNE_HOST 1
#endif
// MPTUNE_GPU: a vendor's own dialect, with the vendor's intrinsics.
#if defined(MPTUNE_CUDA) || defined(MPTUNE_HIP)
#define MPTUNE_GPU 1
#endif

// A variable in the device's memory that is set and read from outside, as an array in constant memory is.
#if defined(MPTUNE_GPU)
#define MPTUNE_VARIABLE __device__
#endif

#if defined(MPTUNE_CUDA)
#define MPTUNE_INLINE __device__ __forceinline__
#elif defined(MPTUNE_HIP)
#define MPTUNE_INLINE __device__ inline __attribute__((always_inline))
#else
#define MPTUNE_INLINE inline __attribute__((always_inline))
#endif

// Before a function that calls templates. g++ instantiates what a function calls in every source that has the function,
// also where it was read from a precompiled prelude; what a template calls only where the template is called.
#if defined(MPTUNE_HOST) && !defined(__clang__)
#define MPTUNE_LAZY template <int = 0>
#else
#define MPTUNE_LAZY
#endif

// MPTUNE_CALLED: a rounding, which uses what it is given more than once. Intel's compiler for processors looks for
// recurrences along every path through a loop, and a chain of roundings has exponentially many; it looks into no call.
#if defined(MPTUNE_CALLS_ROUNDINGS)
#define MPTUNE_CALLED inline __attribute__((noinline))
#else
#define MPTUNE_CALLED MPTUNE_INLINE
#endif

// A C library function by name, without its header.
#if defined(MPTUNE_HOST)
#define MPTUNE_BUILTIN(name) __builtin_##name
#elif defined(MPTUNE_OPENCL)
#define MPTUNE_BUILTIN(name) ::mptune_opencl::name
#else
#define MPTUNE_BUILTIN(name) ::name
#endif
#if defined(MPTUNE_CUDA)
#define MPTUNE_COPY(to, from, bytes) ::memcpy(to, from, bytes)
#else
#define MPTUNE_COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#endif

#if defined(__clang__) || defined(MPTUNE_CUDA)
#define MPTUNE_UNROLL _Pragma("unroll")
#else
#define MPTUNE_UNROLL _Pragma("GCC unroll 8")
#endif

// In a template that calls a library: USES_LIBRARY(cub); puts cub.hpp before it.
#define USES_LIBRARY(name) static_assert(true)

// VECTOR_LOOP stands before an innermost loop over neighbouring elements. A GPU unrolls it, which keeps the arrays it
// indexes in registers. g++ would unroll it too, but before its vectoriser comes, and then finds little to vectorise.
#if defined(MPTUNE_HOST) && !defined(__clang__)
#define VECTOR_LOOP _Pragma("GCC unroll 1")
#else
#define VECTOR_LOOP _Pragma("unroll")
#endif

// UNROLL(n) stands before a loop that every compiler is to unroll n times.
#define MPTUNE_PRAGMA(text) _Pragma(#text)
#if defined(MPTUNE_HOST) && !defined(__clang__)
#define UNROLL(n) MPTUNE_PRAGMA(GCC unroll n)
#else
#define UNROLL(n) MPTUNE_PRAGMA(unroll n)
#endif

// MPTUNE_HALF_ARITHMETIC: the compiler computes in fp16. MPTUNE_NATIVE_HALF: and a half is held as a _Float16.
//
// g++ holds a half as its bits, and converts them to float with integer operations: before version 13 it vectorises no
// loop that converts a _Float16, and for vectors made of single _Float16 it may write instructions that its assembler
// does not know ("vinsert<i128vldq>"). Operations on _Float16 themselves it vectorises.
#if defined(MPTUNE_HIP)
#define MPTUNE_NATIVE_HALF 1
// hiprtc brings its own half, without mixed arithmetic.
#define half mptune_half
#elif defined(MPTUNE_OPENCL)
#if defined(cl_khr_fp16)
#define MPTUNE_NATIVE_HALF 1
#endif
#elif defined(MPTUNE_HOST) && defined(__clang__)
// clang++ before 15 has no _Float16 on x86 without AVX512-FP16.
#if defined(__AVX512FP16__) || (defined(__FLT16_MANT_DIG__) && \
                                (defined(__F16C__) || defined(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC)))
#define MPTUNE_NATIVE_HALF 1
#endif
#elif defined(MPTUNE_HOST) && defined(__AVX512FP16__)
#define MPTUNE_HALF_ARITHMETIC 1
#endif
#if defined(MPTUNE_NATIVE_HALF)
#define MPTUNE_HALF_ARITHMETIC 1
#endif
// MPTUNE_HALF_VECTORS: a host whose processor computes in vectors of fp16.
#if defined(MPTUNE_HOST) && defined(__AVX512FP16__)
#define MPTUNE_HALF_VECTORS 1
#endif

namespace mp {

struct half;
struct bfloat16;
struct fp8_e4m3;
struct fp8_e5m2;
struct literal;
struct two_floats;
struct split_float;
template <class T>
struct compensated;
template <class T, class Held>
struct stored;
template <class T, int N>
struct vec;

// Which implementation of a transcendental function (Heldens 2026, Sec. IV): the best there is in the type; fp32
// intrinsics or shorter polynomials; a rough answer in fp16 and bf16.
enum policy : int { accurate, fast, approx };

namespace detail {

template <bool Condition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
    using type = T;
};
template <bool Condition, class T = void>
using enable_if_t = typename enable_if<Condition, T>::type;

template <bool Condition, class A, class B>
struct choose {
    using type = A;
};
template <class A, class B>
struct choose<false, A, B> {
    using type = B;
};
template <bool Condition, class A, class B>
using choose_t = typename choose<Condition, A, B>::type;

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <class T>
struct bare {
    using type = T;
};
template <class T>
struct bare<const T> {
    using type = T;
};
template <class T>
struct bare<volatile T> {
    using type = T;
};
template <class T>
struct bare<const volatile T> {
    using type = T;
};
#if defined(MPTUNE_OPENCL)
// There an element that a pointer leads to has the address space in its type.
#define MPTUNE_BARE(space)            \
    template <class T>                \
    struct bare<space T> {            \
        using type = T;               \
    };                                \
    template <class T>                \
    struct bare<const space T> {      \
        using type = T;               \
    };                                \
    template <class T>                \
    struct bare<volatile space T> {   \
        using type = T;               \
    };
MPTUNE_BARE(__generic)
MPTUNE_BARE(__global)
MPTUNE_BARE(__local)
MPTUNE_BARE(__private)
#undef MPTUNE_BARE
#endif
template <class T>
using bare_t = typename bare<T>::type;

enum class kind { none, integer, literal, fp8, fp16, bf16, fp32, fp64, compound };

template <class T>
constexpr kind kind_of = kind::none;
#define MPTUNE_KIND(type, k) \
    template <>              \
    constexpr kind kind_of<type> = kind::k;
MPTUNE_KIND(bool, integer)
MPTUNE_KIND(char, integer)
MPTUNE_KIND(signed char, integer)
MPTUNE_KIND(unsigned char, integer)
MPTUNE_KIND(short, integer)
MPTUNE_KIND(unsigned short, integer)
MPTUNE_KIND(int, integer)
MPTUNE_KIND(unsigned, integer)
MPTUNE_KIND(long, integer)
MPTUNE_KIND(unsigned long, integer)
#if !defined(MPTUNE_OPENCL)  // which has no type between long and 128 bits
MPTUNE_KIND(long long, integer)
MPTUNE_KIND(unsigned long long, integer)
#endif
MPTUNE_KIND(literal, literal)
MPTUNE_KIND(fp8_e4m3, fp8)
MPTUNE_KIND(fp8_e5m2, fp8)
MPTUNE_KIND(half, fp16)
MPTUNE_KIND(bfloat16, bf16)
MPTUNE_KIND(float, fp32)
MPTUNE_KIND(double, fp64)
MPTUNE_KIND(two_floats, compound)
MPTUNE_KIND(split_float, compound)
template <class T>
constexpr kind kind_of<compensated<T>> = kind::compound;
template <class T, class Held>
constexpr kind kind_of<stored<T, Held>> = kind::compound;
#undef MPTUNE_KIND
#if defined(MPTUNE_OPENCL)
template <class T>
constexpr kind kind_of<__generic T> = kind_of<T>;
template <class T>
constexpr kind kind_of<__global T> = kind_of<T>;
template <class T>
constexpr kind kind_of<__local T> = kind_of<T>;
template <class T>
constexpr kind kind_of<__private T> = kind_of<T>;
#endif

template <class T>
constexpr bool is_number = kind_of<T> != kind::none;
template <class T>
constexpr bool is_integer = kind_of<T> == kind::integer;
// A type that is chosen when the kernel runs (traced.hpp).
template <class T>
constexpr bool is_traced = false;
// Made of several numbers of a narrower type (compound.hpp).
template <class T>
constexpr bool is_compound = kind_of<T> == kind::compound;
template <class T>
constexpr bool is_own = kind_of<T> == kind::fp8 || kind_of<T> == kind::fp16 || kind_of<T> == kind::bf16;
template <class T>
constexpr bool is_built_in = is_integer<T> || (!__is_class(T) && (kind_of<T> == kind::fp32 || kind_of<T> == kind::fp64));

// memcpy is the one way to reinterpret bits that every compiler and standard version here agrees on.
template <class To, class From>
MPTUNE_INLINE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits_as needs types of one size");
    To to;
    MPTUNE_COPY(&to, &from, sizeof(To));
    return to;
}

}  // namespace detail
}  // namespace mp

using mp::accurate;
using mp::approx;
using mp::fast;
