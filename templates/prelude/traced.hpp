// traced<M>: a number whose type is chosen when the kernel runs. It is held as a double that takes only values of that
// type, because every operation rounds to the widest type of its operands and every assignment to the variable's own.
//
// It stands in for the precision parameters of a kernel (mptune/measure/instrument.py), so that one compilation gives the
// error of every choice of types. M is the set of what a value's type depends on: bit k for the k-th precision
// parameter, and a bit for each type that a template names itself. The type is the one that the rules of types.hpp
// promote all of these to; the parameters' own types are in `mptune_types`, which is set before a launch. What depends
// on it is compiled with MPTUNE_TRACED, the number of precision parameters.

#if defined(MPTUNE_HOST) && defined(MPTUNE_TRACED)

// Of every precision parameter its type as one of the bits below, of every policy parameter its policy.
__constant__ int mptune_types[MPTUNE_TRACED + 1];
__constant__ int mptune_policies[MPTUNE_TRACED_POLICIES + 1];

// What a source initialises outside its functions is rounded when it is loaded, so that the types are known before.
extern "C" char* getenv(const char*) noexcept;

// With MPTUNE_COUNTED, the number of different operations there is room for, operations are counted as they are executed
// (mptune/results/estimates.py): by kind, and by the set that their type depends on; for launches on one thread.
#if defined(MPTUNE_COUNTED)
struct mptune_count {
    unsigned long long of[2], from[2];  // sets, the lower half first; `from` of the operand of a conversion
    long long kind, number;             // the kind, and 16 times the policy of a function
};
__constant__ mptune_count mptune_counts[MPTUNE_COUNTED];
#endif

namespace mp {
namespace detail {

struct types_of_environment {
    types_of_environment() {
        const char* text = getenv("MPTUNE_TRACED_TYPES");
        for (int k = 0; text && *text && k < MPTUNE_TRACED; ++text)
            if (*text == ',') ++k;
            else mptune_types[k] = 10 * mptune_types[k] + (*text - '0');
    }
};
__attribute__((init_priority(101))) static types_of_environment known_types;

}  // namespace detail

using types = unsigned __int128;

namespace detail {

enum class counted { sum, product, fused, quotient, root, function, conversion, shuffle };
#if defined(MPTUNE_COUNTED)
static int counters;
// Of each different operation its place in `mptune_counts`, which it takes when it is first executed.
template <counted K, types M, types N, policy P>
static int place_of = -1;
template <counted K, types M, types N = 0, policy P = policy::accurate>
MPTUNE_INLINE void count() {
    int& place = place_of<K, M, N, P>;
    if (place < 0) {
        place = counters < MPTUNE_COUNTED - 1 ? counters++ : counters;
        mptune_counts[place] = {{static_cast<unsigned long long>(M), static_cast<unsigned long long>(M >> 64)},
                                {static_cast<unsigned long long>(N), static_cast<unsigned long long>(N >> 64)},
                                static_cast<long long>(K) + 16 * static_cast<long long>(P), mptune_counts[place].number};
    }
    ++mptune_counts[place].number;
}
#else
template <counted K, types M, types N = 0, policy P = policy::accurate>
MPTUNE_INLINE void count() {}
#endif

constexpr int bit_of_fp64 = 1, bit_of_fp32 = 2, bit_of_fp16 = 4, bit_of_bf16 = 8, bit_of_e4m3 = 16, bit_of_e5m2 = 32;
// There is no arithmetic in fp8: what is computed from it alone has this bit, too.
constexpr int bit_of_computed = 64;
constexpr int shift_of_bits = 120;

template <class T>
constexpr int bit_of = 0;
template <>
constexpr int bit_of<double> = bit_of_fp64;
template <>
constexpr int bit_of<float> = bit_of_fp32;
template <>
constexpr int bit_of<half> = bit_of_fp16;
template <>
constexpr int bit_of<bfloat16> = bit_of_bf16;
template <>
constexpr int bit_of<fp8_e4m3> = bit_of_e4m3;
template <>
constexpr int bit_of<fp8_e5m2> = bit_of_e5m2;
template <class T>
constexpr int bit_of<rounded<T>> = bit_of<T>;

// The bits of all types in a set.
template <types M>
MPTUNE_INLINE int bits_in() {
    int bits = static_cast<int>(M >> shift_of_bits);
    UNROLL(128)
    for (int k = 0; k < MPTUNE_TRACED; ++k)
        if (M >> k & 1) bits |= mptune_types[k];
    return bits;
}

// What the types of these bits are promoted to, as one bit.
MPTUNE_INLINE int promoted_bit(int bits) {
    constexpr int fp8 = bit_of_e4m3 | bit_of_e5m2;
    const int real = bits & ~bit_of_computed;
    const bool alone = (real & (real - 1)) == 0 && !(real & fp8 && bits & bit_of_computed);
    return bits & bit_of_fp64 ? bit_of_fp64 : alone ? real : bit_of_fp32;
}

// A type by its numbers, the fields of a double's exponent in place.
struct format {
    long long dropped;   // digits less than a double has
    long long smallest;  // exponent of the smallest normal number
    double largest, beyond;  // the largest number, and what a larger one becomes
};
constexpr long long exponent_field(int exponent) {
    return static_cast<long long>(exponent) << 52;
}
MPTUNE_INLINE format format_of(int bit) {
    const double infinity = __builtin_inf();
    switch (bit) {
        case bit_of_fp32: return {exponent_field(29), exponent_field(1023 - 126), 0x1.fffffep127, infinity};
        case bit_of_fp16: return {exponent_field(42), exponent_field(1023 - 14), 65504.0, infinity};
        case bit_of_bf16: return {exponent_field(45), exponent_field(1023 - 126), 0x1.fep127, infinity};
        case bit_of_e4m3: return {exponent_field(49), exponent_field(1023 - 6), 448.0, __builtin_nan("")};
        case bit_of_e5m2: return {exponent_field(50), exponent_field(1023 - 14), 57344.0, infinity};
        default: return {0, 0, infinity, infinity};
    }
}

// A double rounded to a type, to nearest even. Of a sum, product, quotient or root of two numbers of the type that is
// the one rounding there would be: a double has two digits more than twice as many (Figueroa 1995).
MPTUNE_INLINE double rounded_to(const format& f, double x) {
    const long long bits = bits_as<long long>(x);
    const long long exponent = bits & exponent_field(0x7ff);
    const long long from = exponent > f.smallest ? exponent : f.smallest;
    const long long bounded = from < exponent_field(1023 + 200) ? from : exponent_field(1023 + 200);
    // Added to a number so much larger, x loses what the type does not hold (as in local.hpp).
    const double magic = bits_as<double>(bounded + f.dropped + 0x8000000000000);
    const double nearest = (x + magic) - magic;
    const double finite = __builtin_fabs(nearest) > f.largest ? f.beyond : __builtin_fabs(nearest);
    return f.dropped ? __builtin_copysign(finite, x) : x;
}
template <types M>
MPTUNE_INLINE double rounded_to(double x) {
    return rounded_to(format_of(promoted_bit(bits_in<M>())), x);
}

}  // namespace detail

template <types M>
struct traced;

namespace detail {

template <class T>
constexpr types types_of = static_cast<types>(bit_of<T>) << shift_of_bits;
template <types M>
constexpr types types_of<traced<M>> = M;

// How a number is held: one of a template's own float as such, because its arrays are in memory.
template <types M>
using holding = choose_t<M == types_of<float>, float, double>;

}  // namespace detail

template <types M>
struct traced {
    using held_as = detail::holding<M>;
    held_as value;
    traced() = default;
    template <class T, class = detail::enable_if_t<detail::is_number<T> && !detail::is_traced<T>>>
    MPTUNE_INLINE traced(T x) : value(static_cast<held_as>(x)) {
        if constexpr (detail::same<T, bool>) return;
        // Every type has the small integers, which is known where they are literals.
        if constexpr (detail::is_integer<T>)
            if (__builtin_constant_p(x) && x <= T(8) && (T(-1) > T(0) || x >= T(-8))) return;
        if constexpr (detail::bit_of<T>) detail::count<detail::counted::conversion, M, detail::types_of<T>>();
        value = static_cast<held_as>(detail::rounded_to<M>(value));
    }
    // What depends on no more than this does has no wider type.
    template <types N, class = detail::enable_if_t<N != M>>
    MPTUNE_INLINE traced(traced<N> x) : value(static_cast<held_as>((N & ~M) == 0 ? x.value : detail::rounded_to<M>(x.value))) {
        detail::count<detail::counted::conversion, M, N>();
    }
    MPTUNE_INLINE operator double() const { return value; }
    static MPTUNE_INLINE traced held(double x) {
        traced result;
        result.value = static_cast<held_as>(x);
        return result;
    }
};

// A shuffle of a warp (warps.hpp).
template <types M>
MPTUNE_INLINE void count_exchange(const traced<M>&, int) {
    detail::count<detail::counted::shuffle, M>();
}

// What the k-th precision parameter and the k-th policy parameter are in a template.
template <int k>
using type_of_parameter = traced<static_cast<types>(1) << k>;
// The types that a template names itself, where their operations are counted.
using own_float = traced<detail::types_of<float>>;
using own_double = traced<detail::types_of<double>>;
template <int k>
constexpr policy policy_of_parameter = static_cast<policy>(8 + k);

namespace detail {

template <types M>
constexpr bool is_traced<traced<M>> = true;
template <types M>
constexpr kind kind_of<traced<M>> = kind::fp64;

// Of what may be fp8 nothing is computed in that.
constexpr types may_be_fp8 = static_cast<types>(MPTUNE_TRACED_FP8) | types_of<fp8_e4m3> | types_of<fp8_e5m2>;
template <types M>
using computed = traced<M & may_be_fp8 ? M | static_cast<types>(bit_of_computed) << shift_of_bits : M>;
// The type of the result of an operation on an A and a B, one of them traced; with a double everything is a double.
template <class A, class B>
using traced_result = choose_t<same<A, double> || same<B, double>, double, computed<types_of<A> | types_of<B>>>;

// An operand of an operation with a B: an integer or a literal may have more digits than the type of the result.
template <class B, class A>
MPTUNE_INLINE double operand(A a) {
    if constexpr (is_integer<A> || same<A, literal>) return static_cast<double>(traced_result<A, B>(a));
    else return static_cast<double>(a);
}
template <class B, class A>
MPTUNE_INLINE double compared(A a) {
    if constexpr (same<A, literal>) return operand<B>(a);
    else return static_cast<double>(a);
}
template <counted K, class A, class B>
MPTUNE_INLINE void count_operation() {
    constexpr types M = types_of<traced_result<A, B>>;
    count<K, M>();
    if constexpr ((is_traced<A> || same<A, double>) && types_of<A> != M) count<counted::conversion, M, types_of<A>>();
    if constexpr ((is_traced<B> || same<B, double>) && types_of<B> != M) count<counted::conversion, M, types_of<B>>();
}
template <counted K, class A, class B>
MPTUNE_INLINE traced_result<A, B> result_of(double x) {
    count_operation<K, A, B>();
    if constexpr (is_traced<traced_result<A, B>>) return traced_result<A, B>::held(rounded_to<types_of<traced_result<A, B>>>(x));
    else return x;
}

}  // namespace detail

// A function of two operands of which one is traced, or both are.
#define MPTUNE_TRACED_PAIR(name, result)                                                                    \
    template <types M, types N>                                                                             \
    MPTUNE_INLINE auto name(traced<M> a, traced<N> b) {                                                     \
        using A = traced<M>;                                                                                \
        using B = traced<N>;                                                                                \
        return result;                                                                                      \
    }                                                                                                       \
    template <types M, class B, class = detail::enable_if_t<detail::is_number<B>>>                          \
    MPTUNE_INLINE auto name(traced<M> a, B b) {                                                             \
        using A = traced<M>;                                                                                \
        return result;                                                                                      \
    }                                                                                                       \
    template <class A, types M, class = detail::enable_if_t<detail::is_number<A>>>                          \
    MPTUNE_INLINE auto name(A a, traced<M> b) {                                                             \
        using B = traced<M>;                                                                                \
        return result;                                                                                      \
    }
#define MPTUNE_TRACED_OPERATOR(op, kind)                                                                    \
    MPTUNE_TRACED_PAIR(                                                                                     \
        operator op,                                                                                        \
        (detail::result_of<detail::counted::kind, A, B>(detail::operand<B>(a) op detail::operand<A>(b))))   \
    template <types M, class B, class = detail::enable_if_t<detail::is_number<B> && !detail::same<B, literal>>> \
    MPTUNE_INLINE traced<M>& operator op##=(traced<M>& a, B b) {                                            \
        return a = traced<M>(a op b);                                                                       \
    }
#define MPTUNE_TRACED_COMPARISON(op)                                                                        \
    MPTUNE_TRACED_PAIR(operator op, (detail::count_operation<detail::counted::sum, A, B>(),                 \
                                     detail::compared<B>(a) op detail::compared<A>(b)))
MPTUNE_TRACED_OPERATOR(+, sum)
MPTUNE_TRACED_OPERATOR(-, sum)
MPTUNE_TRACED_OPERATOR(*, product)
MPTUNE_TRACED_OPERATOR(/, quotient)
MPTUNE_TRACED_COMPARISON(==)
MPTUNE_TRACED_COMPARISON(!=)
MPTUNE_TRACED_COMPARISON(<)
MPTUNE_TRACED_COMPARISON(<=)
MPTUNE_TRACED_COMPARISON(>)
MPTUNE_TRACED_COMPARISON(>=)
#undef MPTUNE_TRACED_COMPARISON
#undef MPTUNE_TRACED_OPERATOR
#undef MPTUNE_TRACED_PAIR

template <types M>
MPTUNE_INLINE traced<M> operator-(traced<M> a) {
    return traced<M>::held(-a.value);
}
template <types M>
MPTUNE_INLINE traced<M> operator+(traced<M> a) {
    return a;
}
template <types M>
MPTUNE_INLINE traced<M>& operator++(traced<M>& a) {
    return a += 1;
}
template <types M>
MPTUNE_INLINE traced<M>& operator--(traced<M>& a) {
    return a -= 1;
}

namespace detail {

// a * b + c to odd, so that rounding it once more gives the right number of any narrower type: the product of two floats
// is exact in double, and the error of the sum (Knuth's two-sum) tells on which side of the double it lies.
MPTUNE_INLINE double fused_to_odd(double a, double b, double c) {
    const double product = a * b;
    const double sum = product + c;
    const double without = sum - product;
    const double error = (product - (sum - without)) + (c - without);
    const long long bits = bits_as<long long>(sum);
    const long long truncated = bits + ((bits_as<long long>(error) ^ bits) >> 63);
    return (error < 0) | (error > 0) ? bits_as<double>(truncated | 1) : sum;
}

template <types M>
MPTUNE_INLINE traced<M> fused(traced<M> a, traced<M> b, traced<M> c) {
    count<counted::fused, M>();
    const int bit = promoted_bit(bits_in<M>());
    if (bit == bit_of_fp64) return traced<M>::held(__builtin_fma(a.value, b.value, c.value));
    return traced<M>::held(rounded_to(format_of(bit), fused_to_odd(a.value, b.value, c.value)));
}

template <policy P>
MPTUNE_INLINE policy chosen() {
    if constexpr (P < policy_of_parameter<0>) return P;
    else return static_cast<policy>(mptune_policies[P - policy_of_parameter<0>]);
}

// A function in the type of a bit and under a policy, by what computes it in that type anyway (math.hpp). It branches, so
// that no loop around it vectorises: a call of one function for all places keeps down what there is to compile.
template <class F>
__attribute__((noinline)) inline double function_of(int bit, policy p, double x) {
    const auto narrowly = [p](auto y) {
        using T = decltype(y);
        return static_cast<double>(p == policy::approx ? T(F::roughly(y)) : T(F::rounded_once(y)));
    };
    switch (bit) {
        case bit_of_fp64: return F::accurately(x);
        case bit_of_fp16: return narrowly(half(x));
        case bit_of_bf16: return narrowly(bfloat16(x));
        default: return p == policy::accurate ? F::accurately(static_cast<float>(x)) : F::quickly(static_cast<float>(x));
    }
}
template <class F>
__attribute__((noinline)) inline double function_of(int bit, policy p, double x, double y) {
    if (bit == bit_of_fp64) return F::accurately(x, y);
    const float a = static_cast<float>(x), b = static_cast<float>(y);
    return rounded_to(format_of(bit), p == policy::accurate ? F::accurately(a, b) : F::quickly(a, b));
}
struct sqrt_function;
struct rsqrt_function;
template <class F>
constexpr counted kind_of_function = same<F, sqrt_function> || same<F, rsqrt_function> ? counted::root : counted::function;
// Instructions of a GPU.
#define MPTUNE_TRACED_INSTRUCTION(name) \
    struct name##_function;             \
    template <>                         \
    constexpr counted kind_of_function<name##_function> = counted::sum;
MPTUNE_TRACED_INSTRUCTION(fabs)
MPTUNE_TRACED_INSTRUCTION(copysign)
MPTUNE_TRACED_INSTRUCTION(floor)
MPTUNE_TRACED_INSTRUCTION(ceil)
MPTUNE_TRACED_INSTRUCTION(trunc)
MPTUNE_TRACED_INSTRUCTION(rint)
MPTUNE_TRACED_INSTRUCTION(nearbyint)
#undef MPTUNE_TRACED_INSTRUCTION

template <class F, policy P, types M, class... X>
MPTUNE_INLINE traced<M> evaluate(traced<M> x, X... y) {
    count<kind_of_function<F>, M, 0, P>();
    return traced<M>::held(function_of<F>(promoted_bit(bits_in<M>()), chosen<P>(), x.value, y.value...));
}

}  // namespace detail
}  // namespace mp

#endif
