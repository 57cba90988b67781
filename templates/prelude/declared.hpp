// Whether a parameter of a kernel's function can take what a definition declares for it; a source asserts it.

namespace mptune_declared {

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <class T>
constexpr bool real = same<T, double> || same<T, float> || same<T, half> || same<T, bfloat16> ||
                      same<T, fp8_e4m3> || same<T, fp8_e5m2>;

// An element declared as D and given as G: a class that is no floating-point type may be a vector of it, an integer of
// its size its bits, and void anything.
template <class D, class G>
constexpr bool plain = same<D, G> || (!real<G> && (__is_class(G) || sizeof(D) == sizeof(G)));
template <class D>
constexpr bool plain<D, void> = true;
template <class D, class G, decltype(sizeof(0)) n>
constexpr bool plain<D, G[n]> = plain<D, G>;
template <class D, class T>
constexpr bool plain<D, mp::vec2<T>> = plain<D, T>;
template <class D, class T>
constexpr bool plain<D, mp::vec3<T>> = plain<D, T>;
template <class D, class T>
constexpr bool plain<D, mp::vec4<T>> = plain<D, T>;

template <bool buffer, class D, class G>
constexpr bool fits = !buffer && plain<D, G>;
template <class D, class G>
constexpr bool fits<true, D, G*> = plain<D, mp::detail::bare_t<G>>;

template <class A>
struct element {
    using type = A;
};
template <class A, decltype(sizeof(0)) n>
struct element<A[n]> : element<A> {};

// Whether an array of type A is n elements declared as D.
template <class D, decltype(sizeof(0)) n, class A>
constexpr bool holds = plain<D, mp::detail::bare_t<typename element<A>::type>> && sizeof(A) == n * sizeof(D);

// Whether it begins with that many.
template <class D, decltype(sizeof(0)) n, class A>
constexpr bool begins = plain<D, mp::detail::bare_t<typename element<A>::type>> && sizeof(A) >= n * sizeof(D);

#if defined(MPTUNE_OPENCL)
// The type of a parameter by its name: there are no pointers to functions, which have it elsewhere.
template <class T>
T value(T);
#else
template <unsigned i, class F>
struct parameter;
template <unsigned i, class P, class... R>
struct parameter<i, void (*)(P, R...)> : parameter<i - 1, void (*)(R...)> {};
template <class P, class... R>
struct parameter<0, void (*)(P, R...)> {
    using type = P;
};
#endif

}  // namespace mptune_declared
