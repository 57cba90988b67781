// mp::atomicAdd, atomicSub, atomicMin, atomicMax and atomicExch on every type; they give the value before, as the built-in ones do. A GPU has
// them built in for some types only; on the host, host.hpp has them for all.

namespace mp {

#if defined(MPTUNE_HOST)

using ::atomicAdd;
using ::atomicExch;
using ::atomicMax;
using ::atomicMin;
using ::atomicSub;

#else

namespace detail {

template <class T>
struct given {
    using type = T;
};
template <int Bytes>
struct word_of {
    using type = unsigned;
};
template <>
struct word_of<8> {
    using type = unsigned long long;
};

// Replaces *address by operation(*address) in the aligned word around it, until no other thread has changed that meanwhile.
template <class T, class Operation>
MPTUNE_INLINE bare_t<T> replace(T* address, Operation operation) {
    using W = typename word_of<sizeof(T)>::type;
    const unsigned long long place = reinterpret_cast<unsigned long long>(address);
    W* word = reinterpret_cast<W*>(place & ~(sizeof(W) - 1ull));
    const unsigned shift = static_cast<unsigned>(place & (sizeof(W) - 1)) * 8;
    W expected = *word, found;
    bare_t<T> before;
    do {
        found = expected;
        W bytes = found >> shift;
        MPTUNE_COPY(&before, &bytes, sizeof(T));
        const bare_t<T> after = operation(before);
        W mask = ~W(0), bits = 0;
        if constexpr (sizeof(T) < sizeof(W)) mask = ((W(1) << (8 * sizeof(T))) - 1) << shift;
        MPTUNE_COPY(&bits, &after, sizeof(T));
        expected = ::atomicCAS(word, found, (found & ~mask) | (bits << shift));
    } while (expected != found);
    return before;
}

}  // namespace detail

MPTUNE_INLINE half atomicAdd(half* address, half value) {
#if defined(MPTUNE_CUDA) && __CUDA_ARCH__ >= 700
    half before;
    asm volatile("atom.add.noftz.f16 %0, [%1], %2;" : "=h"(before.bits) : "l"(address), "h"(value.bits) : "memory");
    return before;
#else
    return detail::replace(address, [=](half old) { return static_cast<half>(old + value); });
#endif
}
MPTUNE_INLINE bfloat16 atomicAdd(bfloat16* address, bfloat16 value) {
#if defined(MPTUNE_CUDA) && __CUDA_ARCH__ >= 900
    bfloat16 before;
    asm volatile("atom.add.noftz.bf16 %0, [%1], %2;" : "=h"(before.bits) : "l"(address), "h"(value.bits) : "memory");
    return before;
#else
    return detail::replace(address, [=](bfloat16 old) { return static_cast<bfloat16>(old + value); });
#endif
}
template <class T>
MPTUNE_INLINE T atomicAdd(T* address, typename detail::given<T>::type value) {
    if constexpr (detail::is_own<T>) return detail::replace(address, [=](T old) { return static_cast<T>(old + value); });
    else return ::atomicAdd(address, value);
}
template <class T>
MPTUNE_INLINE T atomicSub(T* address, typename detail::given<T>::type value) {
    if constexpr (detail::is_integer<T>) return ::atomicSub(address, value);
    else return mp::atomicAdd(address, static_cast<T>(-value));
}
template <class T>
MPTUNE_INLINE T atomicMin(T* address, typename detail::given<T>::type value) {
    if constexpr (detail::is_integer<T>) return ::atomicMin(address, value);
    else return detail::replace(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
MPTUNE_INLINE T atomicMax(T* address, typename detail::given<T>::type value) {
    if constexpr (detail::is_integer<T>) return ::atomicMax(address, value);
    else return detail::replace(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
MPTUNE_INLINE T atomicExch(T* address, typename detail::given<T>::type value) {
    if constexpr (detail::is_integer<T>) return ::atomicExch(address, value);
    else return detail::replace(address, [=](T) { return value; });
}

#endif

}  // namespace mp
