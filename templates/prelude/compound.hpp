// Arithmetic made of several numbers of a narrower type, for sums that lose too many digits in that type alone.
//
//   fp32x2         two floats, whose sum is the value: 46 digits or more, 44 of a quotient, range of float (Dekker 1971;
//                  Joldes et al. 2017)
//   fp32_neumaier  a float and what its roundings lost, so that a sum of n errs by u + n^2 u^2 and no longer by n u (Neumaier
//   fp64_neumaier  1974, without its branch: Ogita et al. 2005); products are rounded to float or double as ever
//   bf16x3         a float whose products are sums of six products of bfloat16, three for each factor: what matrix units
//                  of bfloat16 multiply floats with (Henry et al. 2019)
//
// In memory they are the nearest double (fp32x2, fp64_neumaier) or float. `local<T>` computes. `factor<S>` is the type of
// numbers that are multiplied and added to sums of type S, `factor<S, From>` where they come from memory of type From.
//
// Each operation stands where no compiler reorders or contracts it, whatever its flags. Infinities and NaN go where they would
// go if each operation were one of the narrower type's, and the second part of such a number says nothing: so a product that is
// too large and an infinity of the other sign make NaN, in `fma`, too. Signs of zeros are not kept.

namespace mp {
namespace detail {

// What rounding lost can only be computed if every operation is done as it is written.
#if defined(MPTUNE_CUDA)
MPTUNE_INLINE float plus(float a, float b) { return ::__fadd_rn(a, b); }
MPTUNE_INLINE double plus(double a, double b) { return ::__dadd_rn(a, b); }
MPTUNE_INLINE float times(float a, float b) { return ::__fmul_rn(a, b); }
MPTUNE_INLINE double times(double a, double b) { return ::__dmul_rn(a, b); }
// With a flag for it `/` is 0 by what is above 2^126.
MPTUNE_INLINE float over(float a, float b) { return ::__fdiv_rn(a, b); }
#else
// The result of an operation, with which no compiler computes as if it were the expression.
template <class T>
MPTUNE_INLINE T as_written(T x) {
#if defined(__HIP_DEVICE_COMPILE__)
    asm("" : "+v"(x));
#elif defined(MPTUNE_OPENCL) && (defined(__FAST_RELAXED_MATH__) || defined(MPTUNE_RELAXED))
    // All of its bits as they are, which no compiler knows: there is no fence. None of its pragmas reaches Intel's back end.
    const int none = static_cast<int>(get_global_offset(0) >> 63);
    if constexpr (sizeof(T) == 4) return bits_as<T>(bits_as<int>(x) ^ none);
    else return bits_as<T>(bits_as<long long>(x) ^ none);
#elif defined(MPTUNE_OPENCL) || (defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && !defined(__ASSOCIATIVE_MATH__))
    // Without such flags nothing reorders.
#elif defined(__clang__) && __clang_major__ >= 14 && defined(__x86_64__)
    return __arithmetic_fence(x);
#elif defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#else
    asm("" : "+m"(x));
#endif
    return x;
}
template <class T>
MPTUNE_INLINE T plus(T a, T b) {
    return as_written(a + b);
}
// With a zero added: no product that a compiler would contract with a sum.
template <class T>
MPTUNE_INLINE T times(T a, T b) {
    return as_written(fused(a, b, T(0)));
}
MPTUNE_INLINE float over(float a, float b) {
    return as_written(a / b);
}
#endif
template <class T>
MPTUNE_INLINE T minus(T a, T b) {
    return plus(a, -b);
}

// Whether every number of a type is a float.
template <class T>
constexpr bool fits_float = kind_of<T> == kind::fp32 || is_own<T> || (is_integer<T> && sizeof(T) <= 2);

// Bits of which no compiler knows that they are a number's: with -ffinite-math-only that would be a finite one.
template <class T>
MPTUNE_INLINE T any_bits(T bits) {
#if defined(__clang__) && __clang_major__ >= 15 && __FINITE_MATH_ONLY__ && defined(MPTUNE_HOST)
    asm("" : "+r"(bits));
#endif
    return bits;
}

template <class T>
MPTUNE_INLINE T finite_or_zero(T x) {
    if constexpr (sizeof(T) == 4) {
        const int bits = any_bits(bits_as<int>(x));
        return bits_as<T>(bits & -static_cast<int>((bits & 0x7f800000) != 0x7f800000));
    } else {
        const long long bits = any_bits(bits_as<long long>(x)), exponent = 0x7ffll << 52;
        return bits_as<T>(bits & -static_cast<long long>((bits & exponent) != exponent));
    }
}

// The nearest number of 24 binary digits, which is the nearest float where that is a normal one. Of (double)(float)x
// compilers make x: g++ 12 in vectors of as many floats as doubles, others where a flag lets them.
MPTUNE_INLINE double to_digits_of_float(double x) {
    const long long bits = bits_as<long long>(x), half = (1ll << 28) - 1, odd = (bits >> 29) & 1;
    return bits_as<double>((bits + half + odd) & ~((1ll << 29) - 1));
}

// A number and what rounding it to that lost.
template <class T>
struct exactly {
    T rounded, lost;
};
// a + b (Knuth 1969).
template <class T>
MPTUNE_INLINE exactly<T> two_sum(T a, T b) {
    const T sum = plus(a, b);
    const T of_b = minus(sum, a);
    return {sum, plus(minus(a, minus(sum, of_b)), minus(b, of_b))};
}
// a + b where a is not the smaller one (Dekker 1971).
template <class T>
MPTUNE_INLINE exactly<T> quick_two_sum(T a, T b) {
    const T sum = plus(a, b);
    return {sum, minus(b, minus(sum, a))};
}
template <class T>
MPTUNE_INLINE exactly<T> two_product(T a, T b) {
    const T product = times(a, b);
    return {product, fused(a, b, -product)};
}

}  // namespace detail

// fp32x2 as it is computed with. The second part is at most half a unit in the last place of the first.
struct two_floats {
    float high, low;
    two_floats() = default;
    MPTUNE_COPIED_BY_MEMBERS(two_floats, high, low)
    template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::same<T, two_floats>>>
    MPTUNE_INLINE two_floats(T x) {
        if constexpr (detail::fits_float<T>) {
            high = static_cast<float>(x);
            low = 0;
        } else {
            const double whole = static_cast<double>(x);
            high = static_cast<float>(whole);
            low = detail::finite_or_zero(static_cast<float>(detail::minus(whole, detail::to_digits_of_float(whole))));
        }
    }
    MPTUNE_INLINE operator double() const { return static_cast<double>(high) + detail::finite_or_zero(low); }
    static MPTUNE_INLINE two_floats of(detail::exactly<float> x) {
        two_floats result;
        result.high = x.rounded;
        result.low = x.lost;
        return result;
    }
};

// fp32_neumaier and fp64_neumaier.
template <class T>
struct compensated {
    T rounded, lost;
    compensated() = default;
    MPTUNE_COPIED_BY_MEMBERS(compensated, rounded, lost)
    template <class U, class = detail::enable_if_t<detail::is_number<U> && !detail::same<U, compensated>>>
    MPTUNE_INLINE compensated(U x) : rounded(static_cast<T>(x)), lost(0) {}
    MPTUNE_INLINE operator T() const { return rounded + detail::finite_or_zero(lost); }
    static MPTUNE_INLINE compensated of(T rounded, T lost) {
        compensated result;
        result.rounded = rounded;
        result.lost = lost;
        return result;
    }
};

// bf16x3.
struct split_float {
    float value;
    split_float() = default;
    MPTUNE_COPIED_BY_MEMBER(split_float, value)
    template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::same<T, split_float>>>
    MPTUNE_INLINE split_float(T x) : value(static_cast<float>(x)) {}
    MPTUNE_INLINE operator float() const { return value; }
};

// What of a compound type T lies in memory.
template <class T, class Held>
struct stored {
    Held value;
    stored() = default;
    MPTUNE_COPIED_BY_MEMBER(stored, value)
    template <class U, class = detail::enable_if_t<detail::is_number<U> && !detail::same<U, stored>>>
    MPTUNE_INLINE stored(U x) : value(static_cast<Held>(x)) {}
    MPTUNE_INLINE operator Held() const { return value; }
};

namespace detail {

template <class T, class Held>
struct local_type<stored<T, Held>> {
    using type = T;
};

// How many digits a type keeps, and which of two that keep as many is the more accurate.
template <class T>
constexpr int rank_of = kind_of<T> == kind::fp64 ? 4 : 0;
template <>
constexpr int rank_of<split_float> = 1;
template <class T>
constexpr int rank_of<compensated<T>> = sizeof(T) == 4 ? 2 : 5;
template <>
constexpr int rank_of<two_floats> = 3;

// The type of the result of an operation, at least one operand of which is compound.
template <class A, class B>
using compound_result = choose_t<(rank_of<local<A>> >= rank_of<local<B>>), local<A>, local<B>>;
template <class A, class B>
using if_compound = enable_if_t<is_number<A> && is_number<B> && (is_compound<A> || is_compound<B>), int>;

// What is multiplied and added to an S: no wider than it has to be.
template <class S, class From>
struct factor_type {
    using type = S;
};
template <class T, class From>
struct factor_type<compensated<T>, From> {
    using type = T;
};
template <class From>
struct factor_type<split_float, From> {
    using type = float;
};
template <class From>
struct factor_type<two_floats, From> {
    using type = choose_t<fits_float<From>, float, two_floats>;
};

template <class T>
MPTUNE_INLINE compensated<T> add(compensated<T> a, T b) {
    const exactly<T> sum = two_sum(a.rounded, b);
    return compensated<T>::of(sum.rounded, plus(a.lost, sum.lost));
}
template <class T>
MPTUNE_INLINE compensated<T> add(compensated<T> a, compensated<T> b) {
    const exactly<T> sum = two_sum(a.rounded, b.rounded);
    return compensated<T>::of(sum.rounded, plus(plus(a.lost, b.lost), sum.lost));
}
template <class T>
MPTUNE_INLINE compensated<T> fused(T a, T b, compensated<T> c) {
    return add(c, times(a, b));
}

// The algorithms' numbers are those of Joldes, Muller & Popescu (2017); u is 2^-24.
MPTUNE_INLINE two_floats joined_floats(float high, float low) {
    return two_floats::of(quick_two_sum(high, finite_or_zero(low)));
}
// AccurateDWPlusDW: error at most 3 u^2 of the result.
MPTUNE_INLINE two_floats add(two_floats a, two_floats b) {
    const exactly<float> high = two_sum(a.high, b.high), low = two_sum(a.low, b.low);
    const two_floats sum = joined_floats(high.rounded, plus(high.lost, low.rounded));
    return joined_floats(sum.high, plus(low.lost, sum.low));
}
// DWPlusFP: 2 u^2.
MPTUNE_INLINE two_floats add(two_floats a, float b) {
    const exactly<float> high = two_sum(a.high, b);
    return joined_floats(high.rounded, plus(a.low, high.lost));
}
// DWTimesDW3: 4 u^2.
MPTUNE_INLINE two_floats multiply(two_floats a, two_floats b) {
    const exactly<float> high = two_product(a.high, b.high);
    const float low = fused(a.low, b.high, fused(a.high, b.low, times(a.low, b.low)));
    return joined_floats(high.rounded, plus(high.lost, low));
}
// DWTimesFP3: 2 u^2.
MPTUNE_INLINE two_floats multiply(two_floats a, float b) {
    const exactly<float> high = two_product(a.high, b);
    return joined_floats(high.rounded, fused(a.low, b, high.lost));
}
// As DWDivDW2, with what is left of the numerator by one fused operation, which cannot overflow: 15 u^2.
MPTUNE_INLINE two_floats divide(two_floats a, two_floats b) {
    const float quotient = over(a.high, b.high);
    const float left = plus(fused(-quotient, b.high, a.high), minus(a.low, times(quotient, b.low)));
    return joined_floats(quotient, over(left, b.high));
}
// SloppyDWPlusDW with the exact product: error at most 5 u^2 (|a b| + |c|), as a sum's is relative to its largest part.
MPTUNE_INLINE two_floats add_product(two_floats product, two_floats c) {
    const exactly<float> high = two_sum(c.high, product.high);
    return joined_floats(high.rounded, plus(high.lost, plus(c.low, product.low)));
}
MPTUNE_INLINE two_floats fused(float a, float b, two_floats c) {
    return add_product(two_floats::of(two_product(a, b)), c);
}
template <class A, class B, class = enable_if_t<same<A, two_floats> || same<B, two_floats>>>
MPTUNE_INLINE two_floats fused(A a, B b, two_floats c) {
    if constexpr (same<A, float>) return add_product(multiply(b, a), c);
    else return add_product(multiply(a, b), c);
}

// The three bfloat16 whose sum is a float.
struct three_parts {
    float high, middle, low;
    MPTUNE_INLINE three_parts(float x) {
        high = float_of_bfloat16_bits(bfloat16_bits_of(x));
        const float rest = minus(x, high);
        middle = float_of_bfloat16_bits(bfloat16_bits_of(rest));
        low = minus(rest, middle);
    }
};
// The six largest of nine products, from the smallest on: error at most 2 u of the product, a float's being one, and 2^-141
// of either factor, since bfloat16 has fewer digits of what is smaller. It ends before float does, on either side: where a
// part makes no number of a product, it is what floats make of it.
MPTUNE_INLINE float multiply_split(float x, float y) {
    const three_parts a = x, b = y;
    float small = times(a.low, b.high);
    small = fused(a.middle, b.middle, small);
    small = fused(a.high, b.low, small);
    small = fused(a.middle, b.high, small);
    small = fused(a.high, b.middle, small);
    const int product = any_bits(bits_as<int>(fused(a.high, b.high, small)));
    return bits_as<float>(select((product & 0x7f800000) != 0x7f800000, product, bits_as<int>(times(x, y))));
}
MPTUNE_INLINE split_float add(split_float a, float b) {
    return plus(a.value, b);
}
MPTUNE_INLINE split_float fused(float a, float b, split_float c) {
    return plus(multiply_split(a, b), c.value);
}

// One of two operands of an operation in R.
template <class R, class T>
MPTUNE_INLINE typename factor_type<R, T>::type as_factor(T x) {
    return static_cast<typename factor_type<R, T>::type>(x);
}
// One operand of a sum in R, whose other is an R: a compensated one keeps what it lost.
template <class R, class T>
MPTUNE_INLINE auto addend(T x) {
    if constexpr (same<local<T>, R>) return static_cast<R>(x);
    else return as_factor<R>(x);
}

template <class R, class A, class B>
MPTUNE_INLINE R compound_add(A a, B b) {
    if constexpr (is_built_in<R>) return static_cast<R>(a) + static_cast<R>(b);
    else if constexpr (same<local<A>, R>) return add(static_cast<R>(a), addend<R>(b));
    else return add(static_cast<R>(b), addend<R>(a));
}
template <class R, class A, class B>
MPTUNE_INLINE R compound_multiply(A a, B b) {
    if constexpr (is_built_in<R>) return static_cast<R>(a) * static_cast<R>(b);
    else if constexpr (same<R, split_float>) return multiply_split(as_factor<R>(a), as_factor<R>(b));
    else if constexpr (!same<R, two_floats>) return times(as_factor<R>(a), as_factor<R>(b));
    else if constexpr (same<local<A>, two_floats>) return multiply(static_cast<R>(a), as_factor<R>(b));
    else return multiply(static_cast<R>(b), as_factor<R>(a));
}
template <class R, class A, class B>
MPTUNE_INLINE R compound_divide(A a, B b) {
    if constexpr (is_built_in<R>) return static_cast<R>(a) / static_cast<R>(b);
    else if constexpr (same<R, two_floats>) return divide(static_cast<R>(a), static_cast<R>(b));
    else return as_factor<R>(a) / as_factor<R>(b);
}

// Equal and less, infinities and NaN as in double.
MPTUNE_INLINE bool equals(two_floats a, two_floats b) {
    return (a.high == b.high) & (finite_or_zero(a.low) == finite_or_zero(b.low));
}
MPTUNE_INLINE bool is_less(two_floats a, two_floats b) {
    return (a.high < b.high) | ((a.high == b.high) & (finite_or_zero(a.low) < finite_or_zero(b.low)));
}
// What is compared of two operands.
template <class R>
using operand_of = choose_t<same<R, two_floats> || is_built_in<R>, R, typename factor_type<R, R>::type>;
template <class R, class A, class B>
MPTUNE_INLINE bool compound_equals(A a, B b) {
    const operand_of<R> x = static_cast<operand_of<R>>(a), y = static_cast<operand_of<R>>(b);
    if constexpr (same<R, two_floats>) return equals(x, y);
    else return x == y;
}
template <class R, class A, class B>
MPTUNE_INLINE bool compound_less(A a, B b) {
    const operand_of<R> x = static_cast<operand_of<R>>(a), y = static_cast<operand_of<R>>(b);
    if constexpr (same<R, two_floats>) return is_less(x, y);
    else return x < y;
}

}  // namespace detail

template <class S, class From = S>
using factor = typename detail::factor_type<local<S>, detail::bare_t<From>>::type;

using fp32x2 = stored<two_floats, double>;
using bf16x3 = stored<split_float, float>;
using fp32_neumaier = stored<compensated<float>, float>;
using fp64_neumaier = stored<compensated<double>, double>;
// Whole before any kernel: one in C++ for OpenCL takes no parameter of a template that nothing has used yet.
static_assert(sizeof(fp32x2) == sizeof(double) && sizeof(fp64_neumaier) == sizeof(double));
static_assert(sizeof(bf16x3) == sizeof(float) && sizeof(fp32_neumaier) == sizeof(float));

template <class A, detail::enable_if_t<detail::is_compound<A>, int> = 0>
MPTUNE_INLINE local<A> operator-(A a) {
    local<A> result = a;
    if constexpr (detail::same<local<A>, two_floats>) {
        result.high = -result.high;
        result.low = -result.low;
    } else if constexpr (detail::same<local<A>, split_float>) {
        result.value = -result.value;
    } else {
        result.rounded = -result.rounded;
        result.lost = -result.lost;
    }
    return result;
}
template <class A, detail::enable_if_t<detail::is_compound<A>, int> = 0>
MPTUNE_INLINE local<A> operator+(A a) {
    return a;
}
template <class A, class B, detail::if_compound<A, B> = 0>
MPTUNE_INLINE detail::compound_result<A, B> operator+(A a, B b) {
    using R = detail::compound_result<A, B>;
    return detail::compound_add<R>(a, b);
}
template <class A, class B, detail::if_compound<A, B> = 0>
MPTUNE_INLINE detail::compound_result<A, B> operator-(A a, B b) {
    using R = detail::compound_result<A, B>;
    if constexpr (detail::is_integer<B>) return detail::compound_add<R>(a, -static_cast<R>(b));
    else return detail::compound_add<R>(a, -b);
}
template <class A, class B, detail::if_compound<A, B> = 0>
MPTUNE_INLINE detail::compound_result<A, B> operator*(A a, B b) {
    using R = detail::compound_result<A, B>;
    return detail::compound_multiply<R>(a, b);
}
template <class A, class B, detail::if_compound<A, B> = 0>
MPTUNE_INLINE detail::compound_result<A, B> operator/(A a, B b) {
    using R = detail::compound_result<A, B>;
    return detail::compound_divide<R>(a, b);
}
#define MPTUNE_COMPOUND_COMPARISON(op, result)                        \
    template <class A, class B, detail::if_compound<A, B> = 0>        \
    MPTUNE_INLINE bool operator op(A a, B b) {                        \
        using R = detail::compound_result<A, B>;                      \
        return result;                                                \
    }
MPTUNE_COMPOUND_COMPARISON(==, detail::compound_equals<R>(a, b))
MPTUNE_COMPOUND_COMPARISON(!=, !detail::compound_equals<R>(a, b))
MPTUNE_COMPOUND_COMPARISON(<, detail::compound_less<R>(a, b))
MPTUNE_COMPOUND_COMPARISON(>, detail::compound_less<R>(b, a))
MPTUNE_COMPOUND_COMPARISON(<=, (detail::compound_less<R>(a, b) || detail::compound_equals<R>(a, b)))
MPTUNE_COMPOUND_COMPARISON(>=, (detail::compound_less<R>(b, a) || detail::compound_equals<R>(a, b)))
#undef MPTUNE_COMPOUND_COMPARISON
#define MPTUNE_COMPOUND_ASSIGNMENT(op)                                                                        \
    template <class A, class B, detail::enable_if_t<detail::is_compound<A> && detail::is_number<B>, int> = 0> \
    MPTUNE_INLINE A& operator op##=(A& a, B b) {                                                              \
        a = static_cast<detail::bare_t<A>>(a op b);                                                           \
        return a;                                                                                             \
    }
MPTUNE_COMPOUND_ASSIGNMENT(+)
MPTUNE_COMPOUND_ASSIGNMENT(-)
MPTUNE_COMPOUND_ASSIGNMENT(*)
MPTUNE_COMPOUND_ASSIGNMENT(/)
#undef MPTUNE_COMPOUND_ASSIGNMENT

}  // namespace mp
