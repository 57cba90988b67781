// The vectors of Kernel Float (Heldens and van Werkhoven 2025) over the prelude, written from its documentation.
//
// A source that includes kernel_float.h has this text behind the prelude instead. Types promote as everywhere in the prelude.

namespace kernel_float {

using extent_t = decltype(sizeof(0));

template <class T, extent_t N>
struct vec;
template <class T, extent_t N, class U>
struct vec_ref;

struct accurate_policy {};
struct fast_policy {};
template <int Degree = -1>
struct approx_policy {};
#if defined(KERNEL_FLOAT_FAST_MATH) && KERNEL_FLOAT_FAST_MATH
using default_policy = fast_policy;
#else
using default_policy = accurate_policy;
#endif

namespace detail {

using mp::detail::bare_t;
using mp::detail::enable_if_t;
using mp::detail::is_number;
using mp::detail::same;

template <class Accuracy>
constexpr mp::policy policy_of = mp::policy::approx;
template <>
constexpr mp::policy policy_of<accurate_policy> = mp::policy::accurate;
template <>
constexpr mp::policy policy_of<fast_policy> = mp::policy::fast;

// The elements of an operand: of a vector, of one in memory, or of a number, which counts as one element.
template <class V>
constexpr int count_of = is_number<V> ? 1 : 0;
template <class T, extent_t N>
constexpr int count_of<vec<T, N>> = static_cast<int>(N);
template <class T, extent_t N, class U>
constexpr int count_of<vec_ref<T, N, U>> = static_cast<int>(N);
template <class V>
constexpr int length_of = count_of<bare_t<V>>;
template <class... V>
constexpr bool are_operands = ((length_of<V> > 0) && ...);
template <class... V>
constexpr bool have_vector = are_operands<V...> && (!is_number<bare_t<V>> || ...);
template <class... V>
constexpr int longest_of = 1;
template <class V, class... W>
constexpr int longest_of<V, W...> = length_of<V> > longest_of<W...> ? length_of<V> : longest_of<W...>;

template <class T, class = enable_if_t<is_number<T>>>
MPTUNE_INLINE vec<T, 1> stored(T x) {
    return vec<T, 1>(x);
}
template <class T, extent_t N>
MPTUNE_INLINE const vec<T, N>& stored(const vec<T, N>& v) {
    return v;
}
template <class T, extent_t N, class U>
MPTUNE_INLINE vec<bare_t<T>, N> stored(const vec_ref<T, N, U>& v) {
    return v.get();
}
// As the prelude's operators take it: a number where there is one element.
template <class V>
MPTUNE_INLINE auto plain(V v) {
    if constexpr (length_of<V> == 1) return stored(v).elements.data[0];
    else return stored(v).elements;
}
template <class T, int N>
MPTUNE_INLINE vec<T, N> wrapped(const mp::vec<T, N>& v) {
    return vec<T, N>(v);
}
template <class T, class = enable_if_t<is_number<T>>>
MPTUNE_INLINE vec<T, 1> wrapped(T x) {
    return vec<T, 1>(x);
}
// A vector if one of the operands is one, else its only element.
template <class... V, class T, extent_t N>
MPTUNE_INLINE auto like(const vec<T, N>& result) {
    if constexpr (have_vector<V...>) return vec<T, N>(result);
    else return T(result.elements.data[0]);
}

template <class T, class = enable_if_t<is_number<T>>>
MPTUNE_INLINE T at(T x, int) {
    return x;
}
template <class T, extent_t N>
MPTUNE_INLINE T at(const vec<T, N>& v, int i) {
    return v.elements.data[N == 1 ? 0 : i];
}
template <int N, class F, class... V>
MPTUNE_INLINE auto mapped(F f, V... v) {
    vec<bare_t<decltype(f(at(v, 0)...))>, N> result;
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) result.elements.data[i] = f(at(v, i)...);
    return result;
}

template <class... T>
struct common;
template <class T>
struct common<T> {
    using type = T;
};
template <class T, class... U>
struct common<T, U...> {
    using other = typename common<U...>::type;
    using type = typename mp::detail::choose_t<same<T, other>, common<T>, common<mp::promoted<T, other>>>::type;
};

}  // namespace detail

template <class T, extent_t N>
struct vec {
    using value_type = T;
    mp::vec<T, static_cast<int>(N)> elements;

    vec() = default;
    MPTUNE_INLINE explicit vec(const mp::vec<T, static_cast<int>(N)>& v) : elements(v) {}
    template <class U, class = detail::enable_if_t<detail::is_number<U>>>
    MPTUNE_INLINE vec(U x) : elements(x) {}
    template <class U, extent_t M,
              class = detail::enable_if_t<(M == N && !detail::same<T, U>) || (M == 1 && N != 1)>>
    MPTUNE_INLINE vec(const vec<U, M>& v) : elements(detail::plain(v)) {}
    template <class U, class V, class... W,
              class = detail::enable_if_t<2 + sizeof...(W) == N && detail::is_number<U>>>
    MPTUNE_INLINE vec(U x, V y, W... rest) : elements(x, y, rest...) {}

    MPTUNE_INLINE T& operator[](extent_t i) { return elements.data[i]; }
    MPTUNE_INLINE const T& operator[](extent_t i) const { return elements.data[i]; }
    MPTUNE_INLINE T& at(extent_t i) { return elements.data[i]; }
    MPTUNE_INLINE T get(extent_t i) const { return elements.data[i]; }
    MPTUNE_INLINE void set(extent_t i, T value) { elements.data[i] = value; }
    MPTUNE_INLINE T* data() { return elements.data; }
    MPTUNE_INLINE const T* data() const { return elements.data; }
    MPTUNE_INLINE T* begin() { return elements.data; }
    MPTUNE_INLINE const T* begin() const { return elements.data; }
    MPTUNE_INLINE T* end() { return elements.data + N; }
    MPTUNE_INLINE const T* end() const { return elements.data + N; }
    static constexpr MPTUNE_INLINE extent_t size() { return N; }
    template <extent_t M = N, class = detail::enable_if_t<M == 1>>
    MPTUNE_INLINE operator T() const {
        return elements.data[0];
    }
};

template <class T>
using scalar = vec<T, 1>;
#define MPTUNE_ALIAS(n) \
    template <class T>  \
    using vec##n = vec<T, n>;
MPTUNE_ALIAS(1) MPTUNE_ALIAS(2) MPTUNE_ALIAS(3) MPTUNE_ALIAS(4)
MPTUNE_ALIAS(5) MPTUNE_ALIAS(6) MPTUNE_ALIAS(7) MPTUNE_ALIAS(8)
#undef MPTUNE_ALIAS

// -- operators: of vectors of one length, or of one element, and numbers -----------------------------------------------

#define MPTUNE_OPERANDS class L, class R, class = detail::enable_if_t<detail::have_vector<L, R>>
#define MPTUNE_OPERATOR(op)                                                            \
    template <MPTUNE_OPERANDS>                                                         \
    MPTUNE_INLINE auto operator op(L l, R r) {                           \
        return detail::wrapped(detail::plain(l) op detail::plain(r));                  \
    }                                                                                  \
    template <class T, extent_t N, class R>                                            \
    MPTUNE_INLINE vec<T, N>& operator op##=(vec<T, N>& l, R r) {                \
        return l = vec<T, N>(l op r);                                                  \
    }
MPTUNE_OPERATOR(+)
MPTUNE_OPERATOR(-)
MPTUNE_OPERATOR(*)
MPTUNE_OPERATOR(/)
#undef MPTUNE_OPERATOR
// Element by element; of bits for integers, else logical.
namespace detail {

template <class A, class B>
constexpr bool are_integers = mp::detail::is_integer<A> && mp::detail::is_integer<B>;
template <class A, class B>
MPTUNE_INLINE auto remainder(A a, B b) {
    if constexpr (are_integers<A, B>) return a % b;
    else return mp::fmod(a, b);
}
#define MPTUNE_OPERATOR(name, op)                                                              \
    template <class A, class B>                                                                \
    MPTUNE_INLINE auto name(A a, B b) {                                                        \
        if constexpr (same<A, bool> || !are_integers<A, B>) return bool((a != A(0)) op (b != B(0))); \
        else return a op b;                                                                    \
    }
MPTUNE_OPERATOR(both, &)
MPTUNE_OPERATOR(either, |)
MPTUNE_OPERATOR(one, ^)
#undef MPTUNE_OPERATOR

}  // namespace detail

#define MPTUNE_OPERATOR(op, expression)                                                        \
    template <MPTUNE_OPERANDS>                                                                 \
    MPTUNE_INLINE auto operator op(L l, R r) {                                   \
        return detail::mapped<detail::longest_of<L, R>>(                                       \
            [](auto x, auto y) { return expression; }, detail::stored(l), detail::stored(r));  \
    }
MPTUNE_OPERATOR(%, detail::remainder(x, y))
MPTUNE_OPERATOR(==, x == y)
MPTUNE_OPERATOR(!=, x != y)
MPTUNE_OPERATOR(<, x < y)
MPTUNE_OPERATOR(<=, x <= y)
MPTUNE_OPERATOR(>, x > y)
MPTUNE_OPERATOR(>=, x >= y)
MPTUNE_OPERATOR(&, detail::both(x, y))
MPTUNE_OPERATOR(|, detail::either(x, y))
MPTUNE_OPERATOR(^, detail::one(x, y))
#undef MPTUNE_OPERATOR
#undef MPTUNE_OPERANDS

#define MPTUNE_VECTOR class V, class = detail::enable_if_t<detail::have_vector<V>>
template <MPTUNE_VECTOR>
MPTUNE_INLINE auto operator-(V v) {
    return detail::wrapped(-detail::plain(v));
}
template <MPTUNE_VECTOR>
MPTUNE_INLINE auto operator!(V v) {
    return detail::mapped<detail::length_of<V>>([](auto x) { return !bool(x); }, detail::stored(v));
}

// -- functions -----------------------------------------------------------------------------------------------------

// Of each element. With an accuracy of a number, too; without one a number has the prelude's function.
#define MPTUNE_FUNCTION(name)                                                                  \
    using mp::name;                                                                            \
    template <class Accuracy = default_policy, MPTUNE_VECTOR>                                  \
    MPTUNE_INLINE auto name(V v) {                                                      \
        return detail::wrapped(mp::name<detail::policy_of<Accuracy>>(detail::plain(v)));       \
    }                                                                                          \
    template <class Accuracy, class T, detail::enable_if_t<detail::is_number<T>, int> = 0>     \
    MPTUNE_INLINE auto name(T x) {                                                             \
        return mp::name<detail::policy_of<Accuracy>>(x);                                       \
    }                                                                                          \
    namespace fast {                                                                           \
    template <class V>                                                                         \
    MPTUNE_INLINE auto name(V v) {                                                      \
        return kernel_float::name<fast_policy>(v);                                             \
    }                                                                                          \
    }                                                                                          \
    namespace approx {                                                                         \
    template <class V>                                                                         \
    MPTUNE_INLINE auto name(V v) {                                                      \
        return kernel_float::name<approx_policy<>>(v);                                         \
    }                                                                                          \
    }
#define MPTUNE_FUNCTION2(name)                                                                 \
    template <class Accuracy = default_policy, class L, class R, class = detail::enable_if_t<detail::are_operands<L, R>>> \
    MPTUNE_INLINE auto name(L l, R r) {                                          \
        return detail::like<L, R>(detail::mapped<detail::longest_of<L, R>>(                    \
            [](auto x, auto y) { return mp::name<detail::policy_of<Accuracy>>(x, y); }, detail::stored(l), detail::stored(r))); \
    }
MPTUNE_ALL_MATH(MPTUNE_FUNCTION, MPTUNE_FUNCTION2)
#undef MPTUNE_FUNCTION
#undef MPTUNE_FUNCTION2
#define MPTUNE_FUNCTION(name)                                                                  \
    template <class V, class = detail::enable_if_t<detail::are_operands<V>>>                   \
    MPTUNE_INLINE auto name(V v) {                                                      \
        return detail::like<V>(detail::mapped<detail::length_of<V>>([](auto x) { return mp::name(x); }, detail::stored(v))); \
    }
MPTUNE_FUNCTION(abs)
MPTUNE_FUNCTION(isnan)
MPTUNE_FUNCTION(isinf)
MPTUNE_FUNCTION(isfinite)
MPTUNE_FUNCTION(signbit)
#undef MPTUNE_FUNCTION
#define MPTUNE_FUNCTION(name)                                                                  \
    template <class L, class R, class = detail::enable_if_t<detail::are_operands<L, R>>>       \
    MPTUNE_INLINE auto name(L l, R r) {                                          \
        return detail::like<L, R>(detail::mapped<detail::longest_of<L, R>>(                    \
            [](auto x, auto y) { return mp::name(x, y); }, detail::stored(l), detail::stored(r))); \
    }
MPTUNE_FUNCTION(min)
MPTUNE_FUNCTION(max)
#undef MPTUNE_FUNCTION
#define MPTUNE_FUNCTION(name, op)                                                              \
    template <class L, class R, class = detail::enable_if_t<detail::are_operands<L, R>>>       \
    MPTUNE_INLINE auto name(L l, R r) {                                          \
        return l op r;                                                                         \
    }
MPTUNE_FUNCTION(add, +)
MPTUNE_FUNCTION(subtract, -)
MPTUNE_FUNCTION(multiply, *)
MPTUNE_FUNCTION(divide, /)
MPTUNE_FUNCTION(equal_to, ==)
MPTUNE_FUNCTION(not_equal_to, !=)
MPTUNE_FUNCTION(less, <)
MPTUNE_FUNCTION(less_equal, <=)
MPTUNE_FUNCTION(greater, >)
MPTUNE_FUNCTION(greater_equal, >=)
MPTUNE_FUNCTION(bit_and, &)
MPTUNE_FUNCTION(bit_or, |)
MPTUNE_FUNCTION(bit_xor, ^)
#undef MPTUNE_FUNCTION
template <class V>
MPTUNE_INLINE auto negate(V v) {
    return -v;
}
template <class V>
MPTUNE_INLINE auto logical_not(V v) {
    return !v;
}
template <class V>
MPTUNE_INLINE auto rcp(V v) {
    return mp::literal(1) / v;
}
template <class A, class B, class C, class = detail::enable_if_t<detail::are_operands<A, B, C>>>
MPTUNE_INLINE auto fma(A a, B b, C c) {
    return detail::like<A, B, C>(detail::wrapped(mp::fma(detail::plain(a), detail::plain(b), detail::plain(c))));
}

// -- making and changing vectors -----------------------------------------------------------------------------------

// A number that takes the type of what it meets.
template <class T = double>
using constant = mp::literal;
template <class T>
constexpr MPTUNE_INLINE mp::literal make_constant(T x) {
    return mp::literal(x);
}

template <class T, class V>
MPTUNE_INLINE auto cast(V v) {
    if constexpr (detail::is_number<detail::bare_t<V>>) return static_cast<T>(v);
    else return vec<T, detail::length_of<V>>(detail::stored(v));
}
template <class V>
MPTUNE_INLINE auto into_vec(V v) {
    return detail::bare_t<decltype(detail::wrapped(detail::plain(v)))>(detail::stored(v));
}
template <class V>
MPTUNE_INLINE auto into_vector(V v) {
    return into_vec(v);
}
template <class T, extent_t N, class V>
MPTUNE_INLINE vec<T, N> convert(V v) {
    return vec<T, N>(detail::stored(v));
}
template <extent_t N, class V>
MPTUNE_INLINE auto broadcast(V v) {
    return vec<typename decltype(into_vec(v))::value_type, N>(detail::stored(v));
}
template <class... T>
MPTUNE_INLINE vec<typename detail::common<T...>::type, sizeof...(T)> make_vec(T... x) {
    return {x...};
}
template <class T, extent_t N>
MPTUNE_INLINE vec<T, N> range() {
    vec<T, N> result;
    MPTUNE_UNROLL
    for (int i = 0; i < static_cast<int>(N); ++i) result.elements.data[i] = static_cast<T>(i);
    return result;
}
template <class V>
MPTUNE_INLINE auto range_like(V v) {
    return range<typename decltype(into_vec(v))::value_type, detail::length_of<V>>();
}
template <extent_t N, class T>
MPTUNE_INLINE vec<T, N> fill(T x) {
    return vec<T, N>(x);
}
template <class V, class T>
MPTUNE_INLINE auto fill_like(V v, T x) {
    return decltype(into_vec(v))(x);
}
#define MPTUNE_FILLED(name, number)                     \
    template <class T, extent_t N>                      \
    MPTUNE_INLINE vec<T, N> name() {                    \
        return vec<T, N>(number);                       \
    }                                                   \
    template <class V>                                  \
    MPTUNE_INLINE auto name##_like(V v) {        \
        return decltype(into_vec(v))(number);           \
    }
MPTUNE_FILLED(zeros, 0)
MPTUNE_FILLED(ones, 1)
#undef MPTUNE_FILLED
template <class A, class B>
MPTUNE_INLINE auto concat(A a, B b) {
    using T = typename detail::common<typename decltype(into_vec(a))::value_type, typename decltype(into_vec(b))::value_type>::type;
    constexpr int first = detail::length_of<A>, second = detail::length_of<B>;
    vec<T, first + second> result;
    MPTUNE_UNROLL
    for (int i = 0; i < first; ++i) result.elements.data[i] = static_cast<T>(detail::at(detail::stored(a), i));
    MPTUNE_UNROLL
    for (int i = 0; i < second; ++i) result.elements.data[first + i] = static_cast<T>(detail::at(detail::stored(b), i));
    return result;
}
template <class A, class B, class C, class... V>
MPTUNE_INLINE auto concat(A a, B b, C c, V... v) {
    return concat(concat(a, b), c, v...);
}
template <MPTUNE_VECTOR, class... I>
MPTUNE_INLINE auto select(V v, I... index) {
    return make_vec(detail::at(detail::stored(v), static_cast<int>(index))...);
}
template <class C, class L, class R>
MPTUNE_INLINE auto where(C condition, L l, R r) {
    return detail::like<C, L, R>(detail::mapped<detail::longest_of<C, L, R>>(
        [](auto c, auto x, auto y) {
            using T = typename detail::common<decltype(x), decltype(y)>::type;
            return bool(c) ? static_cast<T>(x) : static_cast<T>(y);
        },
        detail::stored(condition), detail::stored(l), detail::stored(r)));
}
template <class C, class L>
MPTUNE_INLINE auto where(C condition, L l) {
    return where(condition, l, zeros_like(l));
}

// -- functions of the caller, and reductions -----------------------------------------------------------------------

template <class F, class... V>
MPTUNE_INLINE auto map(F f, V... v) {
    return detail::mapped<detail::longest_of<V...>>(f, detail::stored(v)...);
}
template <class F, class L, class R>
MPTUNE_INLINE auto zip(F f, L l, R r) {
    return map(f, l, r);
}
template <class F, class L, class R>
MPTUNE_INLINE auto zip_common(F f, L l, R r) {
    return map([&](auto x, auto y) { return f(mp::promoted<decltype(x), decltype(y)>(x), mp::promoted<decltype(x), decltype(y)>(y)); }, l, r);
}
template <class V, class F>
MPTUNE_INLINE void for_each(V v, F f) {
    const auto elements = into_vec(v);
    MPTUNE_UNROLL
    for (int i = 0; i < detail::length_of<V>; ++i) f(detail::at(elements, i));
}
template <class T, extent_t N, class F>
MPTUNE_INLINE void for_each(vec<T, N>& v, F f) {
    MPTUNE_UNROLL
    for (int i = 0; i < static_cast<int>(N); ++i) f(v.elements.data[i]);
}
template <class F, class V>
MPTUNE_INLINE auto reduce(F f, V v) {
    const auto elements = into_vec(v);
    auto result = detail::at(elements, 0);
    MPTUNE_UNROLL
    for (int i = 1; i < detail::length_of<V>; ++i) result = f(result, detail::at(elements, i));
    return result;
}
template <MPTUNE_VECTOR>
MPTUNE_INLINE auto sum(V v) {
    return mp::sum(into_vec(v).elements);
}
#define MPTUNE_REDUCTION(name, expression)                                                     \
    template <MPTUNE_VECTOR>                                                                   \
    MPTUNE_INLINE auto name(V v) {                                                      \
        return reduce([](auto x, auto y) { return static_cast<decltype(x)>(expression); }, v); \
    }
MPTUNE_REDUCTION(product, x * y)
MPTUNE_REDUCTION(min, mp::min(x, y))
MPTUNE_REDUCTION(max, mp::max(x, y))
#undef MPTUNE_REDUCTION
template <class V>
MPTUNE_INLINE int count(V v) {
    int found = 0;
    for_each(into_vec(v), [&](auto x) { found += bool(x); });
    return found;
}
template <class V>
MPTUNE_INLINE bool all(V v) {
    return count(v) == detail::length_of<V>;
}
template <class V>
MPTUNE_INLINE bool any(V v) {
    return count(v) > 0;
}
template <class L, class R>
MPTUNE_INLINE auto dot(L l, R r) {
    return sum(l * r);
}
#undef MPTUNE_VECTOR

// -- memory --------------------------------------------------------------------------------------------------------

// A hint for NVIDIA's caches, which nothing here follows.
enum class cache_modifier {
    normal, cache_all, cache_global, streaming, uncached, last_use,
    ca = cache_all, wb = cache_all, cg = cache_global, cs = streaming, cv = uncached, wt = uncached, lu = last_use
};

template <extent_t N, cache_modifier = cache_modifier::normal, class T>
MPTUNE_INLINE auto read_aligned(const T* pointer) {
    return vec<detail::bare_t<T>, N>(mp::load<static_cast<int>(N)>(pointer));
}
template <extent_t N, cache_modifier = cache_modifier::normal, class T, class V>
MPTUNE_INLINE void write_aligned(T* pointer, V v) {
    mp::store(pointer, vec<detail::bare_t<T>, N>(detail::stored(v)).elements);
}
template <class T, class I>
MPTUNE_INLINE auto read(const T* pointer, I indices) {
    return map([&](auto i) { return detail::bare_t<T>(pointer[i]); }, indices);
}
template <class T, class I, class M>
MPTUNE_INLINE auto read(const T* pointer, I indices, M mask) {
    return map([&](auto i, auto m) { return bool(m) ? detail::bare_t<T>(pointer[i]) : detail::bare_t<T>(0); }, indices, mask);
}
template <class T, class I, class V, class M = bool>
MPTUNE_INLINE void write(T* pointer, I indices, V v, M mask = true) {
    map([&](auto i, auto x, auto m) {
        if (bool(m)) pointer[i] = static_cast<detail::bare_t<T>>(x);
        return true;
    }, indices, v, mask);
}

// N elements in memory, which are of type U there and of type T for who reads them.
template <class T, extent_t N, class U = T>
struct vec_ref {
    U* pointer;

    MPTUNE_INLINE vec<detail::bare_t<T>, N> get() const { return read_aligned<N>(pointer); }
    template <class V, extent_t M, class = detail::enable_if_t<M == N>>
    MPTUNE_INLINE operator vec<V, M>() const {
        return vec<V, M>(get().elements);
    }
    template <class V>
    MPTUNE_INLINE const vec_ref& operator=(V v) const {
        write_aligned<N>(pointer, v);
        return *this;
    }
    MPTUNE_INLINE const vec_ref& operator=(const vec_ref& v) const {
        write_aligned<N>(pointer, v);
        return *this;
    }
    vec_ref(const vec_ref&) = default;
    MPTUNE_INLINE explicit vec_ref(U* p) : pointer(p) {}
    MPTUNE_INLINE U& operator[](extent_t i) const { return pointer[i]; }
#define MPTUNE_OPERATOR(op)                                      \
    template <class V>                                           \
    MPTUNE_INLINE const vec_ref& operator op##=(V v) const { \
        return *this = get() op v;                               \
    }
    MPTUNE_OPERATOR(+)
    MPTUNE_OPERATOR(-)
    MPTUNE_OPERATOR(*)
    MPTUNE_OPERATOR(/)
#undef MPTUNE_OPERATOR
};

// A pointer whose i-th element is a vec<T, N>, aligned as one.
template <class T, extent_t N, class U = T>
struct vec_ptr {
    U* pointer;
    // Of the type of most indices: no loop of threads becomes vectors where an index is made unsigned.
    static constexpr int count = static_cast<int>(N);

    vec_ptr() = default;
    MPTUNE_INLINE vec_ptr(U* p) : pointer(p) {}
    template <class V, class W, class = detail::enable_if_t<detail::same<const W, U> || detail::same<W, U>>>
    MPTUNE_INLINE vec_ptr(const vec_ptr<V, N, W>& other) : pointer(other.pointer) {}
    MPTUNE_INLINE U* get() const { return pointer; }
    template <class I>
    MPTUNE_INLINE auto at(I i) const {
        using R = vec_ref<T, N, U>;
        if constexpr (detail::same<T, const T> || detail::same<U, const U>) return R(pointer + i * count).get();
        else return R(pointer + i * count);
    }
    template <class I>
    MPTUNE_INLINE auto operator[](I i) const {
        return at(i);
    }
    MPTUNE_INLINE auto operator*() const { return at(0); }
    template <class I>
    MPTUNE_INLINE vec_ptr operator+(I i) const {
        return vec_ptr(pointer + i * count);
    }
    template <class I>
    MPTUNE_INLINE auto read(I i) const {
        return vec_ref<T, N, U>(pointer + i * count).get();
    }
    template <class I, class V>
    MPTUNE_INLINE void write(I i, V v) const {
        write_aligned<N>(pointer + i * count, v);
    }
};
template <cache_modifier M, class T, extent_t N>
using cache_vec_ptr = vec_ptr<T, N>;
template <extent_t N, class T>
MPTUNE_INLINE vec_ptr<T, N> make_vec_ptr(T* pointer) {
    return vec_ptr<T, N>(pointer);
}

// What a kernel is passed for a buffer, for a parameter of any of these types.
template <class T>
struct passed {
    T* pointer;
    MPTUNE_INLINE explicit passed(T* p) : pointer(p) {}
    template <class P>
    MPTUNE_INLINE operator P*() const {
        return (P*)pointer;
    }
    template <class V, extent_t N, class U>
    MPTUNE_INLINE operator vec_ptr<V, N, U>() const {
        return vec_ptr<V, N, U>((U*)pointer);
    }
};
template <class T>
MPTUNE_INLINE passed<T> pass(T* pointer) {
    return passed<T>(pointer);
}

}  // namespace kernel_float
