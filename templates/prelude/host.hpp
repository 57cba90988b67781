// The CUDA language on the host: qualifiers, thread indices, shared memory, barriers and atomics.
//
// threadIdx and its siblings are thread-local plain structs, so that after inlining the compiler sees the thread
// loop's counter in them and vectorises over it. Their members are int where CUDA has unsigned: unsigned arithmetic
// wraps, and an index that may wrap costs the compiler every contiguous vector load.

#if defined(MPTUNE_HOST)

#if !defined(__GNUC__)
#error "the host backend needs g++ or clang++"
#endif

#define __global__ inline __attribute__((always_inline))
#define __device__
#define __host__
// To be found and set from outside, but by nothing else in the process that happens to have its name.
#define __constant__ __attribute__((visibility("protected"), used))
#define MPTUNE_VARIABLE __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static thread_local __attribute__((aligned(64)))
#define __grid_constant__

// What runs once a launch is the same for all sources. It is compiled with each of them, or apart from them
// (MPTUNE_RUNTIME_APART), once and for all to link with (MPTUNE_RUNTIME_HERE).
#if defined(MPTUNE_RUNTIME_APART)
#define MPTUNE_RUNTIME __attribute__((visibility("hidden")))
#else
#define MPTUNE_RUNTIME inline
#define MPTUNE_RUNTIME_HERE 1
#endif

// Around what runs once a launch: optimising it is a third of what a short kernel takes to compile. clang knows no such
// thing.
#if defined(__clang__)
#define MPTUNE_ONCE_A_LAUNCH
#define MPTUNE_OFTEN
#else
#define MPTUNE_ONCE_A_LAUNCH _Pragma("GCC push_options") _Pragma("GCC optimize (\"O0\")")
#define MPTUNE_OFTEN _Pragma("GCC pop_options")
#endif

struct dim3 {
    int x, y, z;
};

// Blocks never leave the operating-system thread they start on, so one copy of these per thread is one per block.
static thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace mptune_host {

#if defined(MPTUNE_RUNTIME_APART)
extern __thread __attribute__((visibility("hidden"))) void* dynamic_shared;
#else
static thread_local void* dynamic_shared;
#endif

// Every use of __syncthreads() after this line advances __COUNTER__; the entry sees from it whether threads of a
// block must be able to wait for each other.
constexpr int counter_before_kernel = __COUNTER__;

// Whether a thread of the block has called a function of warps or a vote.
static thread_local bool has_warps;
static __attribute__((noinline, unused)) void wait_for_block();

template <int>
inline __attribute__((always_inline)) void barrier() {
    // Registers may keep nothing of shared memory across the barrier.
    __asm__ volatile("" ::: "memory");
    wait_for_block();
    __asm__ volatile("" ::: "memory");
}

template <class T>
struct identity {
    using type = T;
};
template <class T>
using exactly = typename identity<T>::type;

// Held by who replaces what has more bytes than are exchanged in one step, some of which may be padding.
static __attribute__((unused)) bool replacing;

// Replaces *address by operation(*address) in one step; gives the value before.
template <class T, class Operation>
inline __attribute__((always_inline)) T replace(T* address, Operation operation) {
    if constexpr (sizeof(T) > 8) {
        while (__atomic_test_and_set(&replacing, __ATOMIC_ACQUIRE)) {}
        const T before = *address;
        *address = operation(before);
        __atomic_clear(&replacing, __ATOMIC_RELEASE);
        return before;
    } else {
        T expected, desired;
        __atomic_load(address, &expected, __ATOMIC_RELAXED);
        do {
            desired = operation(expected);
        } while (!__atomic_compare_exchange(address, &expected, &desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        return expected;
    }
}

}  // namespace mptune_host

#define __syncthreads() ::mptune_host::barrier<__COUNTER__>()

// Shared memory of a size given at launch, named as an array of `type`.
#define SHARED_DYNAMIC(type, name) type* const name = static_cast<type*>(::mptune_host::dynamic_shared)

inline __attribute__((always_inline)) void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline __attribute__((always_inline)) void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline __attribute__((always_inline)) void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
inline __attribute__((always_inline)) T __ldg(const T* address) {
    return *address;
}

// Atomic functions return the value before, and order nothing else, as on CUDA.

template <class T>
inline __attribute__((always_inline)) T atomicAdd(T* address, mptune_host::exactly<T> value) {
    if constexpr (mp::detail::is_integer<T>) return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    else return mptune_host::replace(address, [=](T old) { return static_cast<T>(old + value); });
}
template <class T>
inline __attribute__((always_inline)) T atomicSub(T* address, mptune_host::exactly<T> value) {
    if constexpr (mp::detail::is_integer<T>) return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
    else return mptune_host::replace(address, [=](T old) { return static_cast<T>(old - value); });
}
template <class T>
inline __attribute__((always_inline)) T atomicMin(T* address, mptune_host::exactly<T> value) {
    return mptune_host::replace(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
inline __attribute__((always_inline)) T atomicMax(T* address, mptune_host::exactly<T> value) {
    return mptune_host::replace(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
inline __attribute__((always_inline)) T atomicExch(T* address, mptune_host::exactly<T> value) {
    return mptune_host::replace(address, [=](T) { return value; });
}
#define MPTUNE_ATOMIC_BITS(name, operation)                                                              \
    template <class T>                                                                                   \
    inline __attribute__((always_inline)) T name(T* address, mptune_host::exactly<T> value) {            \
        return operation(address, value, __ATOMIC_RELAXED);                                              \
    }
MPTUNE_ATOMIC_BITS(atomicAnd, __atomic_fetch_and)
MPTUNE_ATOMIC_BITS(atomicOr, __atomic_fetch_or)
MPTUNE_ATOMIC_BITS(atomicXor, __atomic_fetch_xor)
#undef MPTUNE_ATOMIC_BITS
template <class T>
inline __attribute__((always_inline)) T atomicCAS(T* address, mptune_host::exactly<T> compare,
                                                  mptune_host::exactly<T> value) {
    __atomic_compare_exchange(address, &compare, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return compare;
}
MPTUNE_LAZY inline __attribute__((always_inline)) unsigned atomicInc(unsigned* address, unsigned limit) {
    return mptune_host::replace(address, [=](unsigned old) { return old >= limit ? 0u : old + 1u; });
}
MPTUNE_LAZY inline __attribute__((always_inline)) unsigned atomicDec(unsigned* address, unsigned limit) {
    return mptune_host::replace(address, [=](unsigned old) { return old == 0u || old > limit ? limit : old - 1u; });
}

#elif defined(MPTUNE_GPU)

#define SHARED_DYNAMIC(type, name)                                    \
    extern __shared__ __attribute__((aligned(16))) unsigned char mptune_dynamic_shared[]; \
    type* const name = reinterpret_cast<type*>(mptune_dynamic_shared)

#endif
