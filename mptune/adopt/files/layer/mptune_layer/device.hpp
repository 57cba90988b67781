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
#if !defined(MPTUNE_WARP_SIZE)
#define MPTUNE_WARP_SIZE 32
#endif
constexpr int warpSize = MPTUNE_WARP_SIZE;

namespace mptune_host {
// It is part of the executable, which g++ 12 does not see by itself; what it then makes of it no linker takes in vectors.
extern __thread __attribute__((visibility("hidden"), tls_model("local-exec"))) void* dynamic_shared;
}

extern "C" {
// The threads of a block wait for each other. Those of a warp: warps.hpp.
void mptune_wait_for_block();
unsigned mptune_votes(bool is);
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
MPTUNE_DEVICE unsigned votes(bool is) {
    const uint3 self = threadIdx;
    __asm__ volatile("" ::: "memory");
    const unsigned found = mptune_votes(is);
    __asm__ volatile("" ::: "memory");
    threadIdx = self;
    return found;
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
MPTUNE_DEVICE int __syncthreads_count(int is) { return mptune_layer::votes(is != 0); }
MPTUNE_DEVICE int __syncthreads_and(int is) { return mptune_layer::votes(is == 0) == 0; }
MPTUNE_DEVICE int __syncthreads_or(int is) { return mptune_layer::votes(is != 0) != 0; }
MPTUNE_DEVICE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MPTUNE_DEVICE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MPTUNE_DEVICE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// The functions of a warp, which templates have, too.
#define MPTUNE_LAYER
#define MPTUNE_HOST
#define MPTUNE_INLINE MPTUNE_DEVICE
#include MPTUNE_WARPS
#undef MPTUNE_INLINE
#undef MPTUNE_HOST
extern "C" {
void mptune_gather(unsigned warp_size, unsigned long long mask, int site,
                   void (*settle)(mptune_host::lane* lanes, unsigned long long group));
mptune_host::lane* mptune_own_lane();
}
namespace mptune_host {
static inline void gather(unsigned warp_size, unsigned long long mask, int site,
                          void (*settle)(lane* lanes, unsigned long long group)) {
    const uint3 self = threadIdx;
    mptune_gather(warp_size, mask, site, settle);
    threadIdx = self;
}
static inline lane& own_lane() { return *mptune_own_lane(); }
}  // namespace mptune_host

namespace mptune_layer {
using warp = mptune_warps::warp<MPTUNE_WARP_SIZE>;
using lanes = warp::lanes;
}  // namespace mptune_layer
#define MPTUNE_SHUFFLE(name, By)                                                                                 \
    template <class T>                                                                                           \
    MPTUNE_DEVICE T __##name##_sync(mptune_layer::lanes mask, T value, By by, int width = warpSize) {            \
        return mptune_layer::warp::name##_sync(mask, value, by, width);                                          \
    }                                                                                                            \
    template <class T>                                                                                           \
    MPTUNE_DEVICE T __##name(T value, By by, int width = warpSize, int site = __builtin_LINE()) {                \
        return mptune_layer::warp::name(value, by, width, site);                                                 \
    }
MPTUNE_SHUFFLE(shfl, int)
MPTUNE_SHUFFLE(shfl_up, unsigned)
MPTUNE_SHUFFLE(shfl_down, unsigned)
MPTUNE_SHUFFLE(shfl_xor, int)
#undef MPTUNE_SHUFFLE
#define MPTUNE_VOTE(R, name)                                                                                     \
    MPTUNE_DEVICE R __##name##_sync(mptune_layer::lanes mask, int is) {                                          \
        return mptune_layer::warp::name##_sync(mask, is);                                                        \
    }                                                                                                            \
    MPTUNE_DEVICE R __##name(int is, int site = __builtin_LINE()) { return mptune_layer::warp::name(is, site); }
MPTUNE_VOTE(mptune_layer::lanes, ballot)
MPTUNE_VOTE(int, any)
MPTUNE_VOTE(int, all)
#undef MPTUNE_VOTE
MPTUNE_DEVICE mptune_layer::lanes __activemask(int site = __builtin_LINE()) { return mptune_layer::warp::activemask(site); }
MPTUNE_DEVICE void __syncwarp(mptune_layer::lanes mask = ~mptune_layer::lanes(0)) { mptune_layer::warp::syncwarp(mask); }
template <class T>
MPTUNE_DEVICE mptune_layer::lanes __match_any_sync(mptune_layer::lanes mask, T value) {
    return mptune_layer::warp::match_any_sync(mask, value);
}
template <class T>
MPTUNE_DEVICE mptune_layer::lanes __match_all_sync(mptune_layer::lanes mask, T value, int* are_all) {
    return mptune_layer::warp::match_all_sync(mask, value, are_all);
}
#define MPTUNE_REDUCTION(name)                                                                                   \
    template <class T>                                                                                           \
    MPTUNE_DEVICE T __reduce_##name##_sync(mptune_layer::lanes mask, T value) {                                  \
        return mptune_layer::warp::reduce_##name##_sync(mask, value);                                            \
    }
MPTUNE_REDUCTION(add)
MPTUNE_REDUCTION(min)
MPTUNE_REDUCTION(max)
MPTUNE_REDUCTION(and)
MPTUNE_REDUCTION(or)
MPTUNE_REDUCTION(xor)
#undef MPTUNE_REDUCTION

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
