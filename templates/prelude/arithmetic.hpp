// Operators of the prelude's types; the rules of mixed operands stand at the head of types.hpp.

namespace mp {
namespace detail {

template <class A, class B, kind K>
constexpr bool either_is = kind_of<A> == K || kind_of<B> == K;

template <class A, class B>
constexpr bool both_halves = either_is<A, B, kind::fp16> && either_is<A, B, kind::bf16>;
template <class A, class B>
constexpr bool in_float = either_is<A, B, kind::fp32> || either_is<A, B, kind::fp8> || both_halves<A, B>;

template <class A, class B>
struct promote {
    using narrow = choose_t<either_is<A, B, kind::fp16>, half, bfloat16>;
    using held = choose_t<is_rounded<A> || is_rounded<B>, local<narrow>, narrow>;
    using type = choose_t<either_is<A, B, kind::fp64>, double, choose_t<in_float<A, B>, float, held>>;
};
// A traced number and a compound one have operators of their own.
template <class T>
constexpr bool is_plain = is_number<T> && !is_traced<T> && !is_compound<T>;
// Numbers of which at least one is of the prelude's own types.
template <class A, class B>
constexpr bool has_own = is_plain<A> && is_plain<B> && (is_own<A> || is_own<B>);
// Two built-in types: whatever C++ says.
template <class A, class B, bool BuiltIn>
struct promote_or_native : promote<A, B> {};
template <class A, class B>
struct promote_or_native<A, B, true> {
    using type = decltype(A() + B());
};

}  // namespace detail

// The type of the result of an operation on an A and a B.
template <class A, class B>
using promoted = typename detail::promote_or_native<A, B, !detail::has_own<A, B>>::type;

namespace detail {

// Types for which the mixed operators exist: numbers, at least one of them the prelude's own, unless both are half
// or both bfloat16, which have operators of their own.
template <class A, class B>
constexpr bool is_mixed = has_own<A, B> && !(same<A, B> && kind_of<A> != kind::fp8);

template <class A, class B>
using mixed_result = typename enable_if<is_mixed<A, B>, promote<A, B>>::type::type;

template <class A, class B>
constexpr bool is_comparable = has_own<A, B> && !has_literal<A, B>;
template <class A, class B>
using comparison_type = choose_t<either_is<A, B, kind::fp64>, double, float>;

#if !defined(MPTUNE_CUDA)
#if defined(MPTUNE_HALF_ARITHMETIC)
#define MPTUNE_HALF_OPERATOR(name, op)                                            \
    MPTUNE_INLINE half name(half a, half b) {                                     \
        return half::from_native(a.native() op b.native());                       \
    }
#else
// Rounding the float result is exact for + - * /: 24 bits are at least twice 11 and two more.
#define MPTUNE_HALF_OPERATOR(name, op)                                            \
    MPTUNE_INLINE half name(half a, half b) {                                     \
        return half(static_cast<float>(a) op static_cast<float>(b));              \
    }
#endif
MPTUNE_HALF_OPERATOR(add, +)
MPTUNE_HALF_OPERATOR(subtract, -)
MPTUNE_HALF_OPERATOR(multiply, *)
#if !defined(MPTUNE_GPU)
MPTUNE_HALF_OPERATOR(divide, /)
#endif
#undef MPTUNE_HALF_OPERATOR
#endif

#if defined(MPTUNE_GPU)
MPTUNE_INLINE float quick_reciprocal(float x) {
#if defined(MPTUNE_CUDA)
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return __builtin_amdgcn_rcpf(x);
#endif
}
// In float, whose own division is long for the sake of numbers that no half comes near, and whose reciprocal may be off
// by its last bit, which is too much. Where nothing is left to correct the quotient by, or it is infinite, it is right.
MPTUNE_INLINE half divide(half a, half b) {
    const float x = a, y = b;
    const float reciprocal = quick_reciprocal(y);
    const float quotient = x * reciprocal;
    const float remainder = ::fmaf(-quotient, y, x);
    const float corrected = ::fmaf(remainder, reciprocal, quotient);
    return half(absolute(remainder) > 0.0f ? corrected : quotient);
}
#endif

#if !defined(MPTUNE_CUDA) || __CUDA_ARCH__ < 800
#define MPTUNE_BFLOAT16_OPERATOR(name, op)                                        \
    MPTUNE_INLINE bfloat16 name(bfloat16 a, bfloat16 b) {                         \
        return bfloat16(static_cast<float>(a) op static_cast<float>(b));          \
    }
MPTUNE_BFLOAT16_OPERATOR(add, +)
MPTUNE_BFLOAT16_OPERATOR(subtract, -)
MPTUNE_BFLOAT16_OPERATOR(multiply, *)
MPTUNE_BFLOAT16_OPERATOR(divide, /)
#undef MPTUNE_BFLOAT16_OPERATOR
#endif

}  // namespace detail

#define MPTUNE_OPERATOR(op, name)                                                      \
    MPTUNE_INLINE half operator op(half a, half b) { return detail::name(a, b); }      \
    MPTUNE_INLINE bfloat16 operator op(bfloat16 a, bfloat16 b) { return detail::name(a, b); } \
    template <class A, class B, class R = detail::mixed_result<A, B>>                  \
    MPTUNE_INLINE R operator op(A a, B b) {                                            \
        return static_cast<R>(a) op static_cast<R>(b);                                 \
    }                                                                                  \
    template <class A, class B, class = detail::enable_if_t<detail::is_own<A> && detail::is_number<B>>> \
    MPTUNE_INLINE A& operator op##=(A& a, B b) {                                       \
        a = static_cast<detail::bare_t<A>>(a op b);                                                    \
        return a;                                                                                      \
    }
MPTUNE_OPERATOR(+, add)
MPTUNE_OPERATOR(-, subtract)
MPTUNE_OPERATOR(*, multiply)
MPTUNE_OPERATOR(/, divide)
#undef MPTUNE_OPERATOR

#if defined(MPTUNE_HALF_VECTORS)
#define MPTUNE_HALF_COMPARISON(op) \
    MPTUNE_INLINE bool operator op(half a, half b) { return a.native() op b.native(); }
#else
#define MPTUNE_HALF_COMPARISON(op)
#endif
#define MPTUNE_COMPARISON(op)                                                                     \
    MPTUNE_HALF_COMPARISON(op)                                                                    \
    template <class A, class B, class = detail::enable_if_t<detail::is_comparable<A, B>>>         \
    MPTUNE_INLINE bool operator op(A a, B b) {                                                    \
        using C = detail::comparison_type<A, B>;                                                  \
        return static_cast<C>(a) op static_cast<C>(b);                                            \
    }
MPTUNE_COMPARISON(==)
MPTUNE_COMPARISON(!=)
MPTUNE_COMPARISON(<)
MPTUNE_COMPARISON(<=)
MPTUNE_COMPARISON(>)
MPTUNE_COMPARISON(>=)
#undef MPTUNE_COMPARISON
#undef MPTUNE_HALF_COMPARISON

MPTUNE_INLINE half operator-(half a) {
    return half::from_bits(static_cast<unsigned short>(a.to_bits() ^ 0x8000));
}
MPTUNE_INLINE bfloat16 operator-(bfloat16 a) {
    return bfloat16::from_bits(static_cast<unsigned short>(a.bits ^ 0x8000));
}
MPTUNE_INLINE fp8_e4m3 operator-(fp8_e4m3 a) {
    return fp8_e4m3::from_bits(static_cast<unsigned char>(a.bits ^ 0x80));
}
MPTUNE_INLINE fp8_e5m2 operator-(fp8_e5m2 a) {
    return fp8_e5m2::from_bits(static_cast<unsigned char>(a.bits ^ 0x80));
}
template <class A, class = detail::enable_if_t<detail::is_own<A>>>
MPTUNE_INLINE A operator+(A a) {
    return a;
}
template <class A, class = detail::enable_if_t<detail::is_own<A>>>
MPTUNE_INLINE A& operator++(A& a) {
    a = static_cast<detail::bare_t<A>>(a + 1);
    return a;
}
template <class A, class = detail::enable_if_t<detail::is_own<A>>>
MPTUNE_INLINE A& operator--(A& a) {
    a = static_cast<detail::bare_t<A>>(a - 1);
    return a;
}

namespace detail {

#if defined(MPTUNE_HIP) || defined(MPTUNE_HALF_VECTORS) || (defined(MPTUNE_OPENCL) && defined(MPTUNE_NATIVE_HALF))
MPTUNE_INLINE half fused(half a, half b, half c) {
    return half::from_native(__builtin_fmaf16(a.native(), b.native(), c.native()));
}
#elif !defined(MPTUNE_GPU)
MPTUNE_INLINE half fused(half a, half b, half c) {
    return half(sum_to_odd(static_cast<float>(a) * static_cast<float>(b), static_cast<float>(c)));
}
#endif
#if !defined(MPTUNE_CUDA) || __CUDA_ARCH__ < 800
MPTUNE_INLINE bfloat16 fused(bfloat16 a, bfloat16 b, bfloat16 c) {
    return bfloat16(sum_to_odd(static_cast<float>(a) * static_cast<float>(b), static_cast<float>(c)));
}
#endif

template <class A, class B, class C>
using fma_result = promoted<promoted<A, B>, C>;

}  // namespace detail

// a * b + c rounded once, in the widest type of the three.
template <class A, class B, class C, class = detail::enable_if_t<detail::is_number<A> && detail::is_number<B> && detail::is_number<C>>>
MPTUNE_INLINE detail::fma_result<A, B, C> fma(A a, B b, C c) {
    using R = detail::fma_result<A, B, C>;
    static_assert(!detail::is_integer<R>, "fma is for floating-point operands");
    if constexpr (detail::is_compound<R>) return detail::fused(detail::as_factor<R>(a), detail::as_factor<R>(b), static_cast<R>(c));
    else return detail::fused(static_cast<R>(a), static_cast<R>(b), static_cast<R>(c));
}

}  // namespace mp

// hiprtc has its own for mixed built-in types; with one of the prelude's types this one is found by its arguments.
#if !defined(MPTUNE_HIP)
using mp::fma;
#endif
