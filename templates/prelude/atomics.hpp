// atomicAdd on half and bfloat16 for the GPUs; it gives the value before, as the built-in ones do.

#if !defined(MPTUNE_HOST)

namespace mp {
namespace detail {

// Replaces the aligned word around a two-byte value until no other thread has changed it meanwhile.
template <class T>
MPTUNE_INLINE T add_by_exchange(T* address, T value) {
    const unsigned long long place = reinterpret_cast<unsigned long long>(address);
    unsigned* word = reinterpret_cast<unsigned*>(place & ~2ull);
    const int shift = (place & 2) ? 16 : 0;
    unsigned expected = *word, found;
    T before;
    do {
        found = expected;
        before = T::from_bits(static_cast<unsigned short>(found >> shift));
        const unsigned after = static_cast<T>(before + value).to_bits();
        expected = ::atomicCAS(word, found, (found & ~(0xffffu << shift)) | after << shift);
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
    return detail::add_by_exchange(address, value);
#endif
}
MPTUNE_INLINE bfloat16 atomicAdd(bfloat16* address, bfloat16 value) {
#if defined(MPTUNE_CUDA) && __CUDA_ARCH__ >= 900
    bfloat16 before;
    asm volatile("atom.add.noftz.bf16 %0, [%1], %2;" : "=h"(before.bits) : "l"(address), "h"(value.bits) : "memory");
    return before;
#else
    return detail::add_by_exchange(address, value);
#endif
}

}  // namespace mp

#endif
