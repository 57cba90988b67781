// CUDA's functions of bits and of one rounding, for the host: of templates, and of programs that run as they are. Sums,
// products and roots are rounded only to the nearest: who asks for another direction is told so when the program is read.

#if defined(MPTUNE_HOST)

#if !defined(MPTUNE_LAZY)
#define MPTUNE_LAZY
#endif

namespace mptune_cuda {

template <class To, class From>
MPTUNE_INLINE To bits_as(From from) {
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <int Bytes>
struct bits_of {
    using type = int;
};
template <>
struct bits_of<8> {
    using type = long long;
};
template <class T>
struct wider_than {
    using type = __int128;
};
template <>
struct wider_than<double> {
    using type = double;
};

// As GPUs convert: what is out of range becomes the nearest that is in it; what is no number 0, and if any of the types
// has 64 bits, the highest bit alone.
template <class R, class T>
MPTUNE_INLINE R to_integer(T x) {
    constexpr bool is_signed = static_cast<R>(-1) < static_cast<R>(0);
    constexpr R high = static_cast<R>(1ull << (8 * sizeof(R) - 1));
    constexpr R least = is_signed ? high : static_cast<R>(0), most = static_cast<R>(~least);
    constexpr T beyond = static_cast<T>(1ull << (8 * sizeof(R) - 1)) * (is_signed ? 1 : 2);
    constexpr T lowest = is_signed ? -beyond : 0;
    const R inside = static_cast<R>(((x > lowest) & (x < beyond)) ? x : T(0));
    const R none = sizeof(R) == 8 || sizeof(T) == 8 ? high : static_cast<R>(0);
    return x >= beyond ? most : x <= lowest ? least : x == x ? inside : none;
}

// A number to the nearest one of R towards zero (0), down (-1) or up (1). Its own type holds the nearest of R, or 128 bits.
template <class R, class T>
MPTUNE_INLINE R directed(T x, int direction) {
    using bits = typename bits_of<sizeof(R)>::type;
    const R near = static_cast<R>(x);
    const auto back = static_cast<typename wider_than<T>::type>(near);
    const bool lower = back > x && (direction < 0 || (direction == 0 && x > 0));
    const bool raise = back < x && (direction > 0 || (direction == 0 && x < 0));
    return lower || raise ? bits_as<R>(static_cast<bits>(bits_as<bits>(near) + (raise == (x > 0) ? 1 : -1))) : near;
}

}  // namespace mptune_cuda

MPTUNE_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
MPTUNE_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
MPTUNE_INLINE int __clz(int x) { return x ? __builtin_clz(x) : 32; }
MPTUNE_INLINE int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
MPTUNE_INLINE int __ffs(int x) { return __builtin_ffs(x); }
MPTUNE_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
MPTUNE_INLINE unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
MPTUNE_INLINE unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
MPTUNE_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned made = 0;
    for (int i = 0; i < 4; i++) made |= static_cast<unsigned>(bytes >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return made;
}
MPTUNE_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>(((static_cast<unsigned long long>(high) << 32 | low) << (by & 31)) >> 32);
}
MPTUNE_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (by & 31));
}
MPTUNE_INLINE int __mul24(int x, int y) {
    return static_cast<int>(static_cast<unsigned>(x << 8 >> 8) * static_cast<unsigned>(y << 8 >> 8));
}
MPTUNE_INLINE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
MPTUNE_INLINE int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
MPTUNE_INLINE unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
MPTUNE_INLINE long long __mul64hi(long long x, long long y) {
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
MPTUNE_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
MPTUNE_INLINE int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
MPTUNE_INLINE int __rhadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1); }
MPTUNE_INLINE unsigned __uhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
MPTUNE_INLINE unsigned __urhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}
MPTUNE_INLINE unsigned __sad(int x, int y, unsigned z) {
    return z + (x < y ? static_cast<unsigned>(y) - static_cast<unsigned>(x) : static_cast<unsigned>(x) - static_cast<unsigned>(y));
}

MPTUNE_INLINE unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x < y ? y - x : x - y); }

MPTUNE_LAZY MPTUNE_INLINE long long __double_as_longlong(double x) { return mptune_cuda::bits_as<long long>(x); }
MPTUNE_LAZY MPTUNE_INLINE double __longlong_as_double(long long x) { return mptune_cuda::bits_as<double>(x); }
MPTUNE_LAZY MPTUNE_INLINE int __float_as_int(float x) { return mptune_cuda::bits_as<int>(x); }
MPTUNE_LAZY MPTUNE_INLINE unsigned __float_as_uint(float x) { return mptune_cuda::bits_as<unsigned>(x); }
MPTUNE_LAZY MPTUNE_INLINE float __int_as_float(int x) { return mptune_cuda::bits_as<float>(x); }
MPTUNE_LAZY MPTUNE_INLINE float __uint_as_float(unsigned x) { return mptune_cuda::bits_as<float>(x); }
MPTUNE_LAZY MPTUNE_INLINE int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
MPTUNE_LAZY MPTUNE_INLINE int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
MPTUNE_LAZY MPTUNE_INLINE double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                                                       static_cast<unsigned>(low)));
}

#define MPTUNE_TO_INTEGER(from, T, to, R)                                                                     \
    MPTUNE_LAZY MPTUNE_INLINE R __##from##2##to##_rn(T x) { return mptune_cuda::to_integer<R>(static_cast<T>(__builtin_rint(x))); }  \
    MPTUNE_LAZY MPTUNE_INLINE R __##from##2##to##_rd(T x) { return mptune_cuda::to_integer<R>(static_cast<T>(__builtin_floor(x))); } \
    MPTUNE_LAZY MPTUNE_INLINE R __##from##2##to##_ru(T x) { return mptune_cuda::to_integer<R>(static_cast<T>(__builtin_ceil(x))); }  \
    MPTUNE_LAZY MPTUNE_INLINE R __##from##2##to##_rz(T x) { return mptune_cuda::to_integer<R>(x); }
MPTUNE_TO_INTEGER(double, double, int, int)
MPTUNE_TO_INTEGER(double, double, uint, unsigned)
MPTUNE_TO_INTEGER(double, double, ll, long long)
MPTUNE_TO_INTEGER(double, double, ull, unsigned long long)
MPTUNE_TO_INTEGER(float, float, int, int)
MPTUNE_TO_INTEGER(float, float, uint, unsigned)
MPTUNE_TO_INTEGER(float, float, ll, long long)
MPTUNE_TO_INTEGER(float, float, ull, unsigned long long)
#undef MPTUNE_TO_INTEGER

#define MPTUNE_TO_NUMBER(name, R, From)                                                                          \
    MPTUNE_INLINE R name##_rn(From x) { return static_cast<R>(x); }                                           \
    MPTUNE_LAZY MPTUNE_INLINE R name##_rd(From x) { return mptune_cuda::directed<R>(x, -1); }                             \
    MPTUNE_LAZY MPTUNE_INLINE R name##_ru(From x) { return mptune_cuda::directed<R>(x, 1); }                              \
    MPTUNE_LAZY MPTUNE_INLINE R name##_rz(From x) { return mptune_cuda::directed<R>(x, 0); }
MPTUNE_TO_NUMBER(__int2float, float, int)
MPTUNE_TO_NUMBER(__uint2float, float, unsigned)
MPTUNE_TO_NUMBER(__ll2float, float, long long)
MPTUNE_TO_NUMBER(__ull2float, float, unsigned long long)
MPTUNE_TO_NUMBER(__ll2double, double, long long)
MPTUNE_TO_NUMBER(__ull2double, double, unsigned long long)
MPTUNE_TO_NUMBER(__double2float, float, double)
#undef MPTUNE_TO_NUMBER
MPTUNE_INLINE double __int2double_rn(int x) { return x; }
MPTUNE_INLINE double __uint2double_rn(unsigned x) { return x; }

MPTUNE_INLINE float __fadd_rn(float x, float y) { return x + y; }
MPTUNE_INLINE float __fsub_rn(float x, float y) { return x - y; }
MPTUNE_INLINE float __fmul_rn(float x, float y) { return x * y; }
MPTUNE_INLINE float __fdiv_rn(float x, float y) { return x / y; }
MPTUNE_INLINE float __fdividef(float x, float y) { return x / y; }
MPTUNE_INLINE float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
MPTUNE_INLINE float __frcp_rn(float x) { return 1.0f / x; }
MPTUNE_INLINE float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
MPTUNE_INLINE float __frsqrt_rn(float x) { return static_cast<float>(1.0 / __builtin_sqrt(x)); }
MPTUNE_INLINE float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
MPTUNE_INLINE double __dadd_rn(double x, double y) { return x + y; }
MPTUNE_INLINE double __dsub_rn(double x, double y) { return x - y; }
MPTUNE_INLINE double __dmul_rn(double x, double y) { return x * y; }
MPTUNE_INLINE double __ddiv_rn(double x, double y) { return x / y; }
MPTUNE_INLINE double __drcp_rn(double x) { return 1.0 / x; }
MPTUNE_INLINE double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
MPTUNE_INLINE double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }

#endif  // MPTUNE_HOST
