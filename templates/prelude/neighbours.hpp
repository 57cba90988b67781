// Neighbouring elements that a template computes side by side: single ones on the host, whose compiler makes vectors of the
// loop over them, and in OpenCL; with CUDA and HIP pairs where there is a type of 16 bits, of which a GPU computes two at
// a time.

namespace mp {
namespace detail {

template <class T, int N>
struct neighbours_type {
    using type = vec<T, N>;
};
template <class T>
struct neighbours_type<T, 1> {
    using type = T;
};

}  // namespace detail

// How many of `Elements` neighbours, whose types are these, to compute at a time.
#if defined(MPTUNE_GPU)
template <int Elements, class... T>
constexpr int abreast = Elements % 2 == 0 && (... || (sizeof(T) == 2)) ? 2 : 1;
#else
template <int Elements, class... T>
constexpr int abreast = 1;
#endif

// A T, or so many of them.
template <class T, int N>
using neighbours = typename detail::neighbours_type<T, N>::type;

// N neighbours from memory and to it, which is `aligned` for so many or else for one; what is written is converted.
template <int N, class T>
MPTUNE_INLINE neighbours<detail::bare_t<T>, N> get_neighbours(const T* pointer, bool aligned) {
    if constexpr (N == 1) {
        return *pointer;
    } else {
        if (aligned) return load<N>(pointer);
        vec<detail::bare_t<T>, N> result;
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) result.data[i] = pointer[i];
        return result;
    }
}
template <int N, class T, class V>
MPTUNE_INLINE void put_neighbours(T* pointer, const V& values, bool aligned) {
    if constexpr (N > 1) {
        if (aligned) return store(pointer, values);
    }
    MPTUNE_UNROLL
    for (int i = 0; i < N; ++i) pointer[i] = static_cast<detail::bare_t<T>>(detail::at(values, i));
}

// The i-th of some neighbours.
template <class V>
MPTUNE_INLINE auto nth(const V& values, int i) {
    return detail::at(values, i);
}

}  // namespace mp
