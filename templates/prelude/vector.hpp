// vec<T, N>: one to eight elements, element-wise arithmetic, wide loads and stores.

namespace mp {
namespace detail {

// The widest power of two that divides the vector's size, up to the 16 bytes of the widest memory access: where
// N is a power of two, one load fetches it all.
constexpr int vector_alignment(int element_bytes, int n) {
    return (n & -n) * element_bytes < 16 ? (n & -n) * element_bytes : 16;
}

template <class T>
struct is_vec {
    static constexpr bool value = false;
};
template <class T, int N>
struct is_vec<vec<T, N>> {
    static constexpr bool value = true;
};

}  // namespace detail

template <class T, int N>
struct alignas(detail::vector_alignment(sizeof(T), N)) vec {
    static_assert(N >= 1 && N <= 8, "a vec has one to eight elements");
    static constexpr int size = N;
    T data[N];

    vec() = default;

    // Every element the same.
    template <class U, class = detail::enable_if_t<detail::is_number<U>>>
    MPTUNE_INLINE vec(U x) {
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) data[i] = static_cast<T>(x);
    }
    // Element by element, from a vector of another type.
    template <class U, class = detail::enable_if_t<!detail::same<T, U>::value>>
    MPTUNE_INLINE vec(const vec<U, N>& v) {
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) data[i] = static_cast<T>(v.data[i]);
    }
    template <class U, class V, class... W, class = detail::enable_if_t<2 + sizeof...(W) == N && detail::is_number<U>>>
    MPTUNE_INLINE vec(U x, V y, W... rest) : data{static_cast<T>(x), static_cast<T>(y), static_cast<T>(rest)...} {}

    MPTUNE_INLINE T& operator[](int i) { return data[i]; }
    MPTUNE_INLINE const T& operator[](int i) const { return data[i]; }
};

#define MPTUNE_VECTOR_OPERATOR(op)                                                                        \
    template <class A, class B, int N>                                                                    \
    MPTUNE_INLINE vec<promoted<A, B>, N> operator op(const vec<A, N>& a, const vec<B, N>& b) {            \
        using R = promoted<A, B>;                                                                         \
        vec<R, N> result;                                                                                 \
        MPTUNE_UNROLL                                                                                     \
        for (int i = 0; i < N; ++i) result.data[i] = static_cast<R>(a.data[i]) op static_cast<R>(b.data[i]); \
        return result;                                                                                    \
    }                                                                                                     \
    template <class A, class B, int N, class = detail::enable_if_t<detail::is_number<B>>>                 \
    MPTUNE_INLINE vec<promoted<A, B>, N> operator op(const vec<A, N>& a, B b) {                           \
        using R = promoted<A, B>;                                                                         \
        vec<R, N> result;                                                                                 \
        MPTUNE_UNROLL                                                                                     \
        for (int i = 0; i < N; ++i) result.data[i] = static_cast<R>(a.data[i]) op static_cast<R>(b);      \
        return result;                                                                                    \
    }                                                                                                     \
    template <class A, class B, int N, class = detail::enable_if_t<detail::is_number<A>>>                 \
    MPTUNE_INLINE vec<promoted<A, B>, N> operator op(A a, const vec<B, N>& b) {                           \
        using R = promoted<A, B>;                                                                         \
        vec<R, N> result;                                                                                 \
        MPTUNE_UNROLL                                                                                     \
        for (int i = 0; i < N; ++i) result.data[i] = static_cast<R>(a) op static_cast<R>(b.data[i]);      \
        return result;                                                                                    \
    }                                                                                                     \
    template <class A, class B, int N>                                                                    \
    MPTUNE_INLINE vec<A, N>& operator op##=(vec<A, N>& a, const B& b) {                                   \
        return a = vec<A, N>(a op b);                                                                     \
    }
MPTUNE_VECTOR_OPERATOR(+)
MPTUNE_VECTOR_OPERATOR(-)
MPTUNE_VECTOR_OPERATOR(*)
MPTUNE_VECTOR_OPERATOR(/)
#undef MPTUNE_VECTOR_OPERATOR

template <class T, int N>
MPTUNE_INLINE vec<T, N> operator-(const vec<T, N>& a) {
    vec<T, N> result;
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) result.data[i] = -a.data[i];
    return result;
}

namespace detail {

template <class T>
struct element {
    using type = T;
};
template <class T, int N>
struct element<vec<T, N>> {
    using type = T;
};
template <class T>
MPTUNE_INLINE T at(T x, int) {
    return x;
}
template <class T, int N>
MPTUNE_INLINE T at(const vec<T, N>& v, int i) {
    return v.data[i];
}
template <class A, class B, class C>
using vector_fma_result = fma_result<typename element<A>::type, typename element<B>::type, typename element<C>::type>;

template <int N, class A, class B, class C>
MPTUNE_INLINE vec<vector_fma_result<A, B, C>, N> vector_fma(const A& a, const B& b, const C& c) {
    vec<vector_fma_result<A, B, C>, N> result;
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) result.data[i] = mp::fma(at(a, i), at(b, i), at(c, i));
    return result;
}

}  // namespace detail

// fma with vectors and scalars in any place.
template <class A, class B, class C, int N>
MPTUNE_INLINE auto fma(const vec<A, N>& a, const B& b, const C& c) {
    return detail::vector_fma<N>(a, b, c);
}
template <class A, class B, class C, int N, class = detail::enable_if_t<detail::is_number<A>>>
MPTUNE_INLINE auto fma(A a, const vec<B, N>& b, const C& c) {
    return detail::vector_fma<N>(a, b, c);
}
template <class A, class B, class C, int N, class = detail::enable_if_t<detail::is_number<A> && detail::is_number<B>>>
MPTUNE_INLINE auto fma(A a, B b, const vec<C, N>& c) {
    return detail::vector_fma<N>(a, b, c);
}

// The sum of the elements, added in pairs.
template <class T>
MPTUNE_INLINE T sum(const vec<T, 1>& v) {
    return v.data[0];
}
template <class T, int N>
MPTUNE_INLINE T sum(const vec<T, N>& v) {
    vec<T, N / 2> low;
    vec<T, N - N / 2> high;
    MPTUNE_UNROLL
    for (int i = 0; i < N / 2; ++i) low.data[i] = v.data[i];
    MPTUNE_UNROLL
    for (int i = N / 2; i < N; ++i) high.data[i - N / 2] = v.data[i];
    return sum(low) + sum(high);
}

template <class A, class B, int N>
MPTUNE_INLINE promoted<A, B> dot(const vec<A, N>& a, const vec<B, N>& b) {
    return sum(a * b);
}

// N elements from memory aligned like a vec<T, N>; assigning them to a vec of another type converts.
template <int N, class T>
MPTUNE_INLINE vec<typename detail::bare<T>::type, N> load(const T* pointer) {
    using E = typename detail::bare<T>::type;
    vec<E, N> result;
#if defined(MPTUNE_HOST)
    // Element by element: a vectorised loop of threads makes wide loads of these by itself, but not of a block copy.
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) result.data[i] = pointer[i];
#else
    __builtin_memcpy(&result, __builtin_assume_aligned(pointer, alignof(vec<E, N>)), sizeof(E) * N);
#endif
    return result;
}

// N elements to memory aligned like a vec<T, N>, converted to its type.
template <class T, class U, int N>
MPTUNE_INLINE void store(T* pointer, const vec<U, N>& v) {
#if defined(MPTUNE_HOST)
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) pointer[i] = static_cast<T>(v.data[i]);
#else
    const vec<T, N> converted(v);
    __builtin_memcpy(__builtin_assume_aligned(pointer, alignof(vec<T, N>)), &converted, sizeof(T) * N);
#endif
}

}  // namespace mp

using mp::dot;
using mp::load;
using mp::store;
using mp::sum;
using mp::vec;
