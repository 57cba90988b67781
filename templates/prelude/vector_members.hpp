// vec2<T>, vec3<T>, vec4<T>: vectors with members x, y, z, w of any type, as CUDA's double3 and float4.
//
// In memory they are T[2], T[3] and T[4], so that a buffer of them has the shape (n, 3), with the alignment CUDA gives them.
// As in CUDA there are no operators: programs bring their own.

namespace mp {
namespace detail {

// The only number of a list. A number alone becomes no vector, as in CUDA: so a program's operator* of a number and a
// vector is chosen for 0.5 * v, not its other one of two vectors.
template <class T>
struct listed {
    T value;
    template <class X, class = enable_if_t<is_number<X>>>
    MPTUNE_INLINE listed(X x) : value(static_cast<T>(x)) {}
};

}  // namespace detail

#define MPTUNE_TAKE(member) member = static_cast<T>(v.member);
// g++ copies a structure as a whole, and vectorises no loop where it does (see MPTUNE_COPIED_BY_MEMBER).
#if defined(MPTUNE_HOST) && !defined(__clang__)
#define MPTUNE_COPIES(name, each)                                 \
    MPTUNE_INLINE name(const name& v) { each(MPTUNE_TAKE) }       \
    MPTUNE_INLINE name& operator=(const name& v) {                \
        each(MPTUNE_TAKE)                                         \
        return *this;                                             \
    }
#else
#define MPTUNE_COPIES(name, each)
#endif
#define MPTUNE_VECTOR(name, each)                                               \
    name() = default;                                                           \
    MPTUNE_INLINE name(detail::listed<T> first) : name(first.value, 0) {}       \
    MPTUNE_COPIES(name, each)                                                   \
    template <class U, class = detail::enable_if_t<!detail::same<T, U>>>        \
    MPTUNE_INLINE name(const name<U>& v) {                                      \
        each(MPTUNE_TAKE)                                                       \
    }
#define MPTUNE_MEMBERS2(each) each(x) each(y)
#define MPTUNE_MEMBERS3(each) each(x) each(y) each(z)
#define MPTUNE_MEMBERS4(each) each(x) each(y) each(z) each(w)

// Of numbers they are made as of a list of initial values: those that are left out are zero.
template <class T>
struct alignas(detail::vector_alignment<T, 2>) vec2 {
    T x, y;
    MPTUNE_VECTOR(vec2, MPTUNE_MEMBERS2)
    template <class X, class Y, class = detail::enable_if_t<detail::is_number<X>>>
    MPTUNE_INLINE vec2(X x, Y y) : x(static_cast<T>(x)), y(static_cast<T>(y)) {}
};
template <class T>
struct alignas(detail::vector_alignment<T, 3>) vec3 {
    T x, y, z;
    MPTUNE_VECTOR(vec3, MPTUNE_MEMBERS3)
    template <class X, class Y, class Z = int, class = detail::enable_if_t<detail::is_number<X>>>
    MPTUNE_INLINE vec3(X x, Y y, Z z = 0) : x(static_cast<T>(x)), y(static_cast<T>(y)), z(static_cast<T>(z)) {}
};
template <class T>
struct alignas(detail::vector_alignment<T, 4>) vec4 {
    T x, y, z, w;
    MPTUNE_VECTOR(vec4, MPTUNE_MEMBERS4)
    template <class X, class Y, class Z = int, class W = int, class = detail::enable_if_t<detail::is_number<X>>>
    MPTUNE_INLINE vec4(X x, Y y, Z z = 0, W w = 0)
        : x(static_cast<T>(x)), y(static_cast<T>(y)), z(static_cast<T>(z)), w(static_cast<T>(w)) {}
};
#undef MPTUNE_VECTOR
#undef MPTUNE_COPIES
#undef MPTUNE_TAKE
#undef MPTUNE_MEMBERS2
#undef MPTUNE_MEMBERS3
#undef MPTUNE_MEMBERS4

template <class T, class X, class Y>
MPTUNE_INLINE vec2<T> make_vec2(X x, Y y) {
    return vec2<T>(x, y);
}
template <class T, class X, class Y, class Z>
MPTUNE_INLINE vec3<T> make_vec3(X x, Y y, Z z) {
    return vec3<T>(x, y, z);
}
template <class T, class X, class Y, class Z, class W>
MPTUNE_INLINE vec4<T> make_vec4(X x, Y y, Z z, W w) {
    return vec4<T>(x, y, z, w);
}

namespace detail {

template <class A, class B>
struct promote_or_native<vec2<A>, vec2<B>, true> {
    using type = vec2<promoted<A, B>>;
};
template <class A, class B>
struct promote_or_native<vec3<A>, vec3<B>, true> {
    using type = vec3<promoted<A, B>>;
};
template <class A, class B>
struct promote_or_native<vec4<A>, vec4<B>, true> {
    using type = vec4<promoted<A, B>>;
};
template <class T>
struct local_type<vec2<T>> {
    using type = vec2<local<T>>;
};
template <class T>
struct local_type<vec3<T>> {
    using type = vec3<local<T>>;
};
template <class T>
struct local_type<vec4<T>> {
    using type = vec4<local<T>>;
};

}  // namespace detail
}  // namespace mp
