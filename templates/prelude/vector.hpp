// vec<T, N>: N elements, element-wise arithmetic, wide loads and stores.

namespace mp {
namespace detail {

// The widest power of two that divides the vector's size, up to the 16 bytes of the widest memory access: where
// N is a power of two, one load fetches it all.
template <class T, int N>
constexpr int vector_alignment = (N & -N) * sizeof(T) < 16 ? (N & -N) * sizeof(T) : 16;

}  // namespace detail

template <class T, int N>
struct alignas(detail::vector_alignment<T, N>) vec {
    static_assert(N >= 1, "a vec has one element or more");
    T data[N];

    vec() = default;
#if defined(MPTUNE_HOST) && !defined(__clang__)
    // Element by element, for the reason of MPTUNE_COPIED_BY_MEMBER.
    MPTUNE_INLINE vec(const vec& v) { *this = v; }
    MPTUNE_INLINE vec& operator=(const vec& v) {
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) data[i] = v.data[i];
        return *this;
    }
#endif

    // Every element the same.
    template <class U, class = detail::enable_if_t<detail::is_number<U>>>
    MPTUNE_INLINE vec(U x) {
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) data[i] = static_cast<T>(x);
    }
    // Element by element, from a vector of another type.
    template <class U, class = detail::enable_if_t<!detail::same<T, U>>>
    MPTUNE_INLINE vec(const vec<U, N>& v) {
        int done = 0;
#if defined(MPTUNE_CUDA)
        MPTUNE_UNROLL
        for (; done < N - 1; done += 2) detail::convert_two(&data[done], &v.data[done]);
#endif
        MPTUNE_UNROLL
        for (int i = done; i < N; ++i) data[i] = static_cast<T>(v.data[i]);
    }
    template <class U, class V, class... W, class = detail::enable_if_t<2 + sizeof...(W) == N && detail::is_number<U>>>
    MPTUNE_INLINE vec(U x, V y, W... rest) : data{static_cast<T>(x), static_cast<T>(y), static_cast<T>(rest)...} {}

    MPTUNE_INLINE T& operator[](int i) { return data[i]; }
    MPTUNE_INLINE const T& operator[](int i) const { return data[i]; }
};

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

// What one is computed with; on a GPU two as well, where the type has such arithmetic.
#define MPTUNE_OPERATION(name, op)               \
    struct name##_operation {                    \
        template <class T>                       \
        static MPTUNE_INLINE T apply(T a, T b) { \
            return a op b;                       \
        }                                        \
    };
MPTUNE_OPERATION(add, +)
MPTUNE_OPERATION(subtract, -)
MPTUNE_OPERATION(multiply, *)
MPTUNE_OPERATION(divide, /)
#undef MPTUNE_OPERATION
struct fused_operation {
    template <class T>
    static MPTUNE_INLINE T apply(T a, T b, T c) {
        return fused(a, b, c);
    }
};
#define MPTUNE_OPERATION(name)                   \
    struct name##_operation {                    \
        template <class T>                       \
        static MPTUNE_INLINE T apply(T a, T b) { \
            using mp::name;                      \
            return name(a, b);                   \
        }                                        \
    };
MPTUNE_OPERATION(min)
MPTUNE_OPERATION(max)
MPTUNE_OPERATION(fmin)
MPTUNE_OPERATION(fmax)
#undef MPTUNE_OPERATION

#if defined(MPTUNE_GPU)
// Two neighbouring elements of what an operation in R takes; in a vector of that type they stand side by side already.
template <class R, class A>
MPTUNE_INLINE two<R> two_at(const A& a, int i) {
    return both<R>(at(a, i), at(a, i + 1));
}
template <class R, int N>
MPTUNE_INLINE two<R> two_at(const vec<R, N>& v, int i) {
    two<R> result;
    MPTUNE_COPY(&result, &v.data[i], sizeof(result));
    return result;
}

template <class Operation, class T>
constexpr bool goes_in_pairs = computes_in_pairs<T>;
template <class T>
constexpr bool goes_in_pairs<divide_operation, T> = false;
template <class T>
constexpr bool goes_in_pairs<min_operation, T> = compares_in_pairs<T>;
template <class T>
constexpr bool goes_in_pairs<max_operation, T> = compares_in_pairs<T>;
template <class T>
constexpr bool goes_in_pairs<fmin_operation, T> = has_extrema_of_pairs<T>;
template <class T>
constexpr bool goes_in_pairs<fmax_operation, T> = has_extrema_of_pairs<T>;
#endif

// Element by element in type R, with vectors and scalars in any place.
template <class Operation, class R, int N, class... A>
MPTUNE_INLINE vec<R, N> combine(const A&... a) {
    vec<R, N> result;
    int done = 0;
#if defined(MPTUNE_GPU)
    if constexpr (goes_in_pairs<Operation, R>) {
        MPTUNE_UNROLL
        for (; done < N - 1; done += 2)
            unpack(&result.data[done], Operation::apply(two_at<R>(a, done)...));
    }
#endif
    MPTUNE_UNROLL
    for (int i = done; i < N; ++i) result.data[i] = Operation::apply(static_cast<R>(at(a, i))...);
    return result;
}

}  // namespace detail

#define MPTUNE_VECTOR_OPERATOR(op, name)                                                                  \
    template <class A, class B, int N>                                                                    \
    MPTUNE_INLINE vec<promoted<A, B>, N> operator op(const vec<A, N>& a, const vec<B, N>& b) {            \
        return detail::combine<detail::name##_operation, promoted<A, B>, N>(a, b);                        \
    }                                                                                                     \
    template <class A, class B, int N, class = detail::enable_if_t<detail::is_number<B>>>                 \
    MPTUNE_INLINE vec<promoted<A, B>, N> operator op(const vec<A, N>& a, B b) {                           \
        return detail::combine<detail::name##_operation, promoted<A, B>, N>(a, b);                        \
    }                                                                                                     \
    template <class A, class B, int N, class = detail::enable_if_t<detail::is_number<A>>>                 \
    MPTUNE_INLINE vec<promoted<A, B>, N> operator op(A a, const vec<B, N>& b) {                           \
        return detail::combine<detail::name##_operation, promoted<A, B>, N>(a, b);                        \
    }                                                                                                     \
    template <class A, class B, int N>                                                                    \
    MPTUNE_INLINE vec<A, N>& operator op##=(vec<A, N>& a, const B& b) {                                   \
        return a = vec<A, N>(a op b);                                                                     \
    }
MPTUNE_VECTOR_OPERATOR(+, add)
MPTUNE_VECTOR_OPERATOR(-, subtract)
MPTUNE_VECTOR_OPERATOR(*, multiply)
MPTUNE_VECTOR_OPERATOR(/, divide)
#undef MPTUNE_VECTOR_OPERATOR

template <class T, int N>
MPTUNE_INLINE vec<T, N> operator-(const vec<T, N>& a) {
    vec<T, N> result;
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) result.data[i] = -a.data[i];
    return result;
}

#define MPTUNE_VECTOR_EXTREMUM(name)                                                                      \
    template <class A, class B, int N>                                                                    \
    MPTUNE_INLINE vec<promoted<A, B>, N> name(const vec<A, N>& a, const vec<B, N>& b) {                   \
        return detail::combine<detail::name##_operation, promoted<A, B>, N>(a, b);                        \
    }                                                                                                     \
    template <class T, int N>                                                                             \
    MPTUNE_INLINE vec<T, N> name(const vec<T, N>& a, const vec<T, N>& b) {                                \
        return detail::combine<detail::name##_operation, T, N>(a, b);                                     \
    }
MPTUNE_VECTOR_EXTREMUM(min)
MPTUNE_VECTOR_EXTREMUM(max)
MPTUNE_VECTOR_EXTREMUM(fmin)
MPTUNE_VECTOR_EXTREMUM(fmax)
#undef MPTUNE_VECTOR_EXTREMUM

namespace detail {

template <class A, class B, class C>
using vector_fma_result =
    fma_result<typename element<bare_t<A>>::type, typename element<bare_t<B>>::type, typename element<bare_t<C>>::type>;

template <int N, class A, class B, class C>
MPTUNE_INLINE auto vector_fma(const A& a, const B& b, const C& c) {
    using R = vector_fma_result<A, B, C>;
    if constexpr (is_compound<R>) {
        // Whose factors need not be as wide.
        vec<R, N> result;
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) result.data[i] = mp::fma(at(a, i), at(b, i), at(c, i));
        return result;
    } else
        return combine<fused_operation, vector_fma_result<A, B, C>, N>(a, b, c);
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

// term(0) + ... + term(N - 1), added in pairs: each passes through log2 N roundings at most, rounded up, of N - 1 in a loop
// (Higham 1993).
template <int N, int First = 0, class F>
MPTUNE_INLINE auto pairwise(F term) {
    if constexpr (N == 1) return term(First);
    else return pairwise<N / 2, First>(term) + pairwise<N - N / 2, First + N / 2>(term);
}

template <class A, class B, int N>
MPTUNE_INLINE promoted<A, B> dot(const vec<A, N>& a, const vec<B, N>& b) {
    return sum(a * b);
}

namespace detail {

#if defined(MPTUNE_CUDA)
// The widest word a thread moves in one access, by the alignment of the vector.
template <int Alignment>
struct word;
template <> struct word<16> { using type = uint4; };
template <> struct word<8> { using type = uint2; };
template <> struct word<4> { using type = unsigned; };
template <> struct word<2> { using type = unsigned short; };
template <> struct word<1> { using type = unsigned char; };

template <class V>
MPTUNE_INLINE void move(V* to, const V* from) {
    using W = typename word<alignof(V)>::type;
    MPTUNE_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(W)); ++i)
        reinterpret_cast<W*>(to)[i] = reinterpret_cast<const W*>(from)[i];
}
#elif defined(MPTUNE_HIP)
// An element or two halves at a time, which the compiler joins to wide accesses; of a wide one it makes integers.
template <class T, int N>
MPTUNE_INLINE void move(vec<T, N>* to, const vec<T, N>* from) {
    constexpr int alignment = alignof(vec<T, N>);
    constexpr int step = sizeof(T) > 4 ? sizeof(T) : alignment < 4 ? alignment : 4;
    char* target = static_cast<char*>(__builtin_assume_aligned(to, alignment));
    const char* source = static_cast<const char*>(__builtin_assume_aligned(from, alignment));
    MPTUNE_UNROLL
    for (int i = 0; i < static_cast<int>(N * sizeof(T)); i += step) __builtin_memcpy(target + i, source + i, step);
}
#endif

}  // namespace detail

// N elements from memory aligned like a vec<T, N>; assigning them to a vec of another type converts.
template <int N, class T>
MPTUNE_INLINE vec<detail::bare_t<T>, N> load(const T* pointer) {
    using V = vec<detail::bare_t<T>, N>;
    V result;
#if defined(MPTUNE_GPU)
    detail::move(&result, reinterpret_cast<const V*>(pointer));
#else
    // Element by element: a vectorised loop of threads makes wide accesses of these by itself, but not of a block copy.
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) result.data[i] = pointer[i];
#endif
    return result;
}

// N elements to memory aligned like a vec<T, N>, converted to its type.
template <class T, class U, int N>
MPTUNE_INLINE void store(T* pointer, const vec<U, N>& v) {
#if defined(MPTUNE_GPU)
    const vec<detail::bare_t<T>, N> converted(v);
    detail::move(reinterpret_cast<vec<detail::bare_t<T>, N>*>(pointer), &converted);
#else
    // A converted vector in between would keep g++ from vectorising a loop of threads.
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) pointer[i] = static_cast<T>(v.data[i]);
#endif
}

}  // namespace mp

using mp::dot;
using mp::load;
using mp::store;
using mp::sum;
using mp::vec;
