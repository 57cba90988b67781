// mptune_wide: a type wider than fp64, on a host whose processor has one, or whose compiler makes up for it.
//
// It is there for the reference of an application (reference="wide"), whose sources have it in place of all other types:
// nothing here mixes it with them. What depends on it is compiled with MPTUNE_WIDE, the digits it is to have.

#if defined(MPTUNE_HOST) && defined(MPTUNE_WIDE)

using mptune_wide = long double;
static_assert(__LDBL_MANT_DIG__ == MPTUNE_WIDE, "long double is another type to the compiler than to NumPy");

namespace mp {

using ::mptune_wide;

namespace detail {

template <>
constexpr kind kind_of<mptune_wide> = kind::fp64;

// Rounded twice: fmal computes with integers, which takes hundreds of times as long.
MPTUNE_INLINE mptune_wide fused(mptune_wide a, mptune_wide b, mptune_wide c) {
    return a * b + c;
}

// Under every policy a function is that of the C library, or follows from one.
#define __builtin_rsqrtl(x) (1 / __builtin_sqrtl(x))
#define __builtin_rcbrtl(x) (1 / __builtin_cbrtl(x))
#define __builtin_rhypotl(x, y) (1 / __builtin_hypotl(x, y))
#define __builtin_normcdfl(x) (__builtin_erfcl(-(x) / __builtin_sqrtl(2)) / 2)
// Of angles from -pi to pi, whose zeros are exact.
#define __builtin_sinpil(x) __builtin_sinl(MPTUNE_WIDE_PI * (x - 2 * __builtin_rintl(x / 2)))
#define __builtin_cospil(x) __builtin_sinl(MPTUNE_WIDE_PI * (0.5L - __builtin_fabsl(x - 2 * __builtin_rintl(x / 2))))
#define MPTUNE_WIDE_PI 0xc.90fdaa22168c234c4c6628b80dc1cd1p-2L
template <class F>
struct widely;
#define MPTUNE_WIDELY(name)                                                                                     \
    template <>                                                                                                 \
    struct widely<name##_function> {                                                                            \
        static MPTUNE_INLINE mptune_wide of(mptune_wide x) { return __builtin_##name##l(x); }                   \
    };
#define MPTUNE_WIDELY2(name)                                                                                    \
    template <>                                                                                                 \
    struct widely<name##_function> {                                                                            \
        static MPTUNE_INLINE mptune_wide of(mptune_wide x, mptune_wide y) { return __builtin_##name##l(x, y); } \
    };

template <class F, policy P>
MPTUNE_INLINE mptune_wide evaluate(mptune_wide x) {
    return widely<F>::of(x);
}
template <class F, policy P>
MPTUNE_INLINE mptune_wide evaluate(mptune_wide x, mptune_wide y) {
    return widely<F>::of(x, y);
}

}  // namespace detail
}  // namespace mp

#endif

namespace mp {
namespace detail {

#if defined(MPTUNE_WIDE)
using widest = mptune_wide;
#else
using widest = double;
#endif

}  // namespace detail
}  // namespace mp
