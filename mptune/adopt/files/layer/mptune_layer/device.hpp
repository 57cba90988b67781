// What only device code uses: qualifiers, indices, barriers, warps, atomics. Numbers and rules are CUDA's; the indices
// are unsigned, and the threads of a warp go on together only where they call one of its functions.
#pragma once

#include "mptune_layer/types.hpp"

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device begin
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))
#define __shared__ __attribute__((shared))
#else
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __shared__ static thread_local __attribute__((aligned(16)))
#endif
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#if !defined(__restrict__) && defined(_MSC_VER)
#define __restrict__
#endif

#define MPTUNE_DEVICE inline __attribute__((always_inline))

// Of one file a compiler sees all uses, and can keep the counter of the loop over threads in a register.
#if defined(MPTUNE_READING)
extern const __device__ uint3 threadIdx, blockIdx, blockDim, gridDim;
#elif defined(MPTUNE_SEVERAL_FILES)
inline thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;
#else
static thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;
#endif
constexpr int warpSize = 32;

namespace mptune_host {
// It is part of the executable, which g++ 12 does not see by itself; what it then makes of it no linker takes in vectors.
extern __thread __attribute__((visibility("hidden"), tls_model("local-exec"))) void* dynamic_shared;
}

extern "C" {
// The threads of a block, or those of this thread's warp in a mask, wait for each other.
void mptune_wait_for_block();
void mptune_wait_for_warp(unsigned mask);
// Where the threads of this thread's warp lay down 16 bytes each.
void* mptune_warp_slots();
// Those of this thread's warp that have not returned.
unsigned mptune_warp_alive();
int* mptune_block_vote();
unsigned long long mptune_nanoseconds();
[[noreturn]] void mptune_trap();
}

namespace mptune_layer {

// Shared memory whose size the launch gives, where it is declared outside of a function.
template <class T>
struct dynamic_array {
    operator T*() const { return static_cast<T*>(::mptune_host::dynamic_shared); }
    template <class I>
    T& operator[](I i) const {
        return static_cast<T*>(::mptune_host::dynamic_shared)[i];
    }
};

MPTUNE_DEVICE void block_barrier() {
    const uint3 self = threadIdx;
    __asm__ volatile("" ::: "memory");
    mptune_wait_for_block();
    __asm__ volatile("" ::: "memory");
    threadIdx = self;
}
MPTUNE_DEVICE void warp_barrier(unsigned mask) {
    const uint3 self = threadIdx;
    __asm__ volatile("" ::: "memory");
    mptune_wait_for_warp(mask);
    __asm__ volatile("" ::: "memory");
    threadIdx = self;
}
MPTUNE_DEVICE unsigned lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

struct alignas(16) slot {
    unsigned char bytes[16];
};

template <class T>
inline __attribute__((noinline)) T from_lane(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= sizeof(slot), "a value of at most 16 bytes can be exchanged in a warp");
    slot* const slots = static_cast<slot*>(mptune_warp_slots());
    __builtin_memcpy(slots + lane(), &value, sizeof(T));
    warp_barrier(mask);
    T found;
    __builtin_memcpy(&found, slots + source, sizeof(T));
    warp_barrier(mask);
    return found;
}
inline __attribute__((noinline)) unsigned ballot(unsigned mask, bool is) {
    slot* const slots = static_cast<slot*>(mptune_warp_slots());
    slots[lane()].bytes[0] = is;
    warp_barrier(mask);
    unsigned found = 0;
    const unsigned there = mask & mptune_warp_alive();
    for (unsigned i = 0; i < 32; ++i) {
        if (there >> i & 1 && slots[i].bytes[0]) found |= 1u << i;
    }
    warp_barrier(mask);
    return found;
}
inline __attribute__((noinline)) int vote(int wanted, bool is) {
    int* const votes = mptune_block_vote();
    block_barrier();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) votes[0] = votes[1] = 0;
    block_barrier();
    votes[is] += 1;
    block_barrier();
    const int found = votes[1];
    return wanted == 0 ? found : wanted == 1 ? votes[0] == 0 : found > 0;
}

// What a thread keeps from phase to phase, by its number.
template <class T>
struct per_thread {
    T of[1024];
    MPTUNE_DEVICE T& operator[](unsigned thread) { return of[thread]; }
};

// Neighbours in a row of threads.
struct piece {
    unsigned first, end;

    // Goes on to the next ones of so many that have work.
    template <class F>
    MPTUNE_DEVICE bool next(unsigned count, F has_work) {
        for (first = end; first < count && !has_work(first); ++first) {}
        for (end = first; end < count && has_work(end); ++end) {}
        return first < count;
    }
};

template <class T>
struct identity {
    using type = T;
};
template <class T>
using exactly = typename identity<T>::type;

template <class T, class Operation>
MPTUNE_DEVICE T replace(T* address, Operation operation) {
    T expected, desired;
    __atomic_load(address, &expected, __ATOMIC_RELAXED);
    do {
        desired = operation(expected);
    } while (!__atomic_compare_exchange(address, &expected, &desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return expected;
}

}  // namespace mptune_layer

// Stands before what all threads of a block do between two barriers (mptune/adopt/blocks.py). The indices are copied to
// where the compiler sees that nobody changes them.
#if defined(__clang__)
#define MPTUNE_THREADS_IN_ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPTUNE_THREADS_IN_ANY_ORDER _Pragma("GCC ivdep")
#endif
#define MPTUNE_PHASE                                                                                                \
    if ([[maybe_unused]] const uint3 blockIdx = ::blockIdx, blockDim = ::blockDim, gridDim = ::gridDim; true)       \
        for (unsigned mptune_z = 0; mptune_z < blockDim.z; ++mptune_z)                                              \
            for (unsigned mptune_y = 0; mptune_y < blockDim.y; ++mptune_y)                                          \
                MPTUNE_THREADS_IN_ANY_ORDER                                                                         \
                for (unsigned mptune_x = 0; mptune_x < blockDim.x; ++mptune_x)                                      \
                    if ([[maybe_unused]] const uint3 threadIdx{mptune_x, mptune_y, mptune_z}; true)                 \
                        if ([[maybe_unused]] const unsigned mptune_thread =                                         \
                                (mptune_z * blockDim.y + mptune_y) * blockDim.x + mptune_x;                         \
                            true)

// Stands before what a row of a block's threads does at once (mptune/adopt/blocks.py), with the body of a function that
// says whether a thread has anything to do: the row falls into the pieces that have.
#define MPTUNE_TILES(...)                                                                                           \
    if ([[maybe_unused]] const uint3 blockIdx = ::blockIdx, blockDim = ::blockDim, gridDim = ::gridDim; true)       \
        for (unsigned mptune_z = 0; mptune_z < blockDim.z; ++mptune_z)                                              \
            for (unsigned mptune_y = 0; mptune_y < blockDim.y; ++mptune_y)                                          \
                for (mptune_layer::piece mptune_piece{0, 0}; mptune_piece.next(blockDim.x, [&](unsigned mptune_x) { \
                         [[maybe_unused]] const uint3 threadIdx{mptune_x, mptune_y, mptune_z};                      \
                         __VA_ARGS__                                                                                \
                     });)
#define MPTUNE_EACH_OF_TILE                                                                                         \
    MPTUNE_THREADS_IN_ANY_ORDER                                                                                     \
    for (unsigned mptune_x = mptune_piece.first; mptune_x < mptune_piece.end; ++mptune_x)                           \
        if ([[maybe_unused]] const uint3 threadIdx{mptune_x, mptune_y, mptune_z}; true)

MPTUNE_DEVICE void __syncthreads() { mptune_layer::block_barrier(); }
MPTUNE_DEVICE void __syncwarp(unsigned mask = 0xffffffffu) { mptune_layer::warp_barrier(mask); }
MPTUNE_DEVICE int __syncthreads_count(int is) { return mptune_layer::vote(0, is != 0); }
MPTUNE_DEVICE int __syncthreads_and(int is) { return mptune_layer::vote(1, is != 0); }
MPTUNE_DEVICE int __syncthreads_or(int is) { return mptune_layer::vote(2, is != 0); }
MPTUNE_DEVICE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MPTUNE_DEVICE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MPTUNE_DEVICE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
MPTUNE_DEVICE T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const unsigned self = mptune_layer::lane();
    return mptune_layer::from_lane(mask, value, (self & ~(width - 1)) + (source & (width - 1)));
}
template <class T>
MPTUNE_DEVICE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned self = mptune_layer::lane();
    return mptune_layer::from_lane(mask, value, (self & (width - 1)) >= delta ? self - delta : self);
}
template <class T>
MPTUNE_DEVICE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned self = mptune_layer::lane();
    return mptune_layer::from_lane(mask, value, (self & (width - 1)) + delta < unsigned(width) ? self + delta : self);
}
template <class T>
MPTUNE_DEVICE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const unsigned self = mptune_layer::lane(), other = self ^ bits;
    return mptune_layer::from_lane(mask, value, other / width <= self / width ? other : self);
}
template <class T>
MPTUNE_DEVICE T __shfl(T value, int source, int width = 32) {
    return __shfl_sync(0xffffffffu, value, source, width);
}
template <class T>
MPTUNE_DEVICE T __shfl_up(T value, unsigned delta, int width = 32) {
    return __shfl_up_sync(0xffffffffu, value, delta, width);
}
template <class T>
MPTUNE_DEVICE T __shfl_down(T value, unsigned delta, int width = 32) {
    return __shfl_down_sync(0xffffffffu, value, delta, width);
}
template <class T>
MPTUNE_DEVICE T __shfl_xor(T value, int bits, int width = 32) {
    return __shfl_xor_sync(0xffffffffu, value, bits, width);
}
MPTUNE_DEVICE unsigned __ballot_sync(unsigned mask, int is) { return mptune_layer::ballot(mask, is != 0); }
MPTUNE_DEVICE int __any_sync(unsigned mask, int is) { return mptune_layer::ballot(mask, is != 0) != 0; }
MPTUNE_DEVICE int __all_sync(unsigned mask, int is) { return mptune_layer::ballot(mask, is == 0) == 0; }
MPTUNE_DEVICE unsigned __ballot(int is) { return __ballot_sync(0xffffffffu, is); }
MPTUNE_DEVICE int __any(int is) { return __any_sync(0xffffffffu, is); }
MPTUNE_DEVICE int __all(int is) { return __all_sync(0xffffffffu, is); }

// Atomic functions return the value before, and order nothing else. Templates, so that a program may have its own.

template <class T>
MPTUNE_DEVICE T atomicAdd(T* address, mptune_layer::exactly<T> value) {
    if constexpr (T(1.5) == T(1)) return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    else return mptune_layer::replace(address, [=](T old) { return static_cast<T>(old + value); });
}
template <class T>
MPTUNE_DEVICE T unsafeAtomicAdd(T* address, mptune_layer::exactly<T> value) {
    return atomicAdd(address, value);
}
template <class T>
MPTUNE_DEVICE T atomicSub(T* address, mptune_layer::exactly<T> value) {
    return mptune_layer::replace(address, [=](T old) { return static_cast<T>(old - value); });
}
template <class T>
MPTUNE_DEVICE T atomicMin(T* address, mptune_layer::exactly<T> value) {
    return mptune_layer::replace(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
MPTUNE_DEVICE T atomicMax(T* address, mptune_layer::exactly<T> value) {
    return mptune_layer::replace(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
MPTUNE_DEVICE T atomicExch(T* address, mptune_layer::exactly<T> value) {
    return mptune_layer::replace(address, [=](T) { return value; });
}
template <class T>
MPTUNE_DEVICE T atomicAnd(T* address, mptune_layer::exactly<T> value) {
    return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
template <class T>
MPTUNE_DEVICE T atomicOr(T* address, mptune_layer::exactly<T> value) {
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
template <class T>
MPTUNE_DEVICE T atomicXor(T* address, mptune_layer::exactly<T> value) {
    return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
template <class T>
MPTUNE_DEVICE T atomicCAS(T* address, mptune_layer::exactly<T> compare, mptune_layer::exactly<T> value) {
    __atomic_compare_exchange(address, &compare, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return compare;
}
MPTUNE_DEVICE unsigned atomicInc(unsigned* address, unsigned limit) {
    return mptune_layer::replace(address, [=](unsigned old) { return old >= limit ? 0u : old + 1u; });
}
MPTUNE_DEVICE unsigned atomicDec(unsigned* address, unsigned limit) {
    return mptune_layer::replace(address, [=](unsigned old) { return old == 0u || old > limit ? limit : old - 1u; });
}
#define MPTUNE_SCOPES(name)                                                            \
    template <class T, class... A>                                                     \
    MPTUNE_DEVICE T name##_block(T* address, A... values) { return name(address, values...); } \
    template <class T, class... A>                                                     \
    MPTUNE_DEVICE T name##_system(T* address, A... values) { return name(address, values...); }
MPTUNE_SCOPES(atomicAdd)
MPTUNE_SCOPES(unsafeAtomicAdd)
MPTUNE_SCOPES(atomicSub)
MPTUNE_SCOPES(atomicMin)
MPTUNE_SCOPES(atomicMax)
MPTUNE_SCOPES(atomicExch)
MPTUNE_SCOPES(atomicAnd)
MPTUNE_SCOPES(atomicOr)
MPTUNE_SCOPES(atomicXor)
MPTUNE_SCOPES(atomicInc)
MPTUNE_SCOPES(atomicDec)
MPTUNE_SCOPES(atomicCAS)
#undef MPTUNE_SCOPES

#define MPTUNE_LOAD(name)                      \
    template <class T>                         \
    MPTUNE_DEVICE T name(const T* address) {   \
        return *address;                       \
    }
MPTUNE_LOAD(__ldg)
MPTUNE_LOAD(__ldca)
MPTUNE_LOAD(__ldcg)
MPTUNE_LOAD(__ldcs)
MPTUNE_LOAD(__ldlu)
MPTUNE_LOAD(__ldcv)
#undef MPTUNE_LOAD
#define MPTUNE_STORE(name)                                                    \
    template <class T>                                                        \
    MPTUNE_DEVICE void name(T* address, mptune_layer::exactly<T> value) {     \
        *address = value;                                                     \
    }
MPTUNE_STORE(__stcg)
MPTUNE_STORE(__stcs)
MPTUNE_STORE(__stwb)
MPTUNE_STORE(__stwt)
#undef MPTUNE_STORE

MPTUNE_DEVICE long long clock64() { return static_cast<long long>(mptune_nanoseconds()); }
#if defined(MPTUNE_DEVICE_CLOCK)
MPTUNE_DEVICE long long wall_clock64() { return clock64(); }
#endif
MPTUNE_DEVICE void __nanosleep(unsigned) {}
MPTUNE_DEVICE void __trap() { mptune_trap(); }
MPTUNE_DEVICE void __brkpt() {}
MPTUNE_DEVICE void __prof_trigger(int) {}
#define __builtin_assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif
