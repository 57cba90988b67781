// The CUDA language in C++ for OpenCL 2021: qualifiers, thread indices, shared memory, barriers and atomics.
//
// Pointers without an address space are generic, as CUDA's are, so that templates need none. What OpenCL cannot read at all
// the backend translates before (opencl_dialect.py).

#if defined(MPTUNE_OPENCL)

#define __global__ __kernel
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __shared__ __local
// In memory that kernels can write, since nothing else can: MPTUNE_CONSTANT makes one that does.
#define __constant__ __global
#define MPTUNE_VARIABLE __global

// The kernel, added by the backend, that copies bytes into (`writes`) or out of an array in constant memory.
#define MPTUNE_CONSTANT(name)                                                                                     \
    extern "C" __kernel void mptune_copy_##name(__global unsigned char* data, unsigned long bytes, int writes) {  \
        __global unsigned char* const own = reinterpret_cast<__global unsigned char*>(&name);                     \
        for (unsigned long i = 0; i < bytes && i < sizeof(name); ++i) {                                           \
            if (writes) own[i] = data[i];                                                                         \
            else data[i] = own[i];                                                                                \
        }                                                                                                         \
    }

// Shared memory of a size given at launch: a further parameter of the kernel, added by the backend.
#define SHARED_DYNAMIC(type, name) type* const name = reinterpret_cast<type*>(mptune_dynamic_shared)

struct dim3 {
    unsigned x, y, z;
};

namespace mptune_opencl {

// Drivers have these as plain numbers, which C++ does not convert.
constexpr memory_order relaxed = static_cast<memory_order>(memory_order_relaxed);
constexpr memory_order acquire_and_release = static_cast<memory_order>(memory_order_acq_rel);
constexpr memory_scope everywhere = static_cast<memory_scope>(memory_scope_device);
constexpr memory_scope in_block = static_cast<memory_scope>(memory_scope_work_group);
constexpr cl_mem_fence_flags all_memory = CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE;

// Objects, rather than macros, since a function for a virtual thread hides them by parameters.
#define MPTUNE_INDEX(name, function)                                                   \
    template <int axis>                                                                \
    struct name##_axis {                                                               \
        MPTUNE_INLINE operator unsigned() const {                                      \
            return static_cast<unsigned>(function(axis));                              \
        }                                                                              \
    };                                                                                 \
    struct name##_axes {                                                               \
        name##_axis<0> x;                                                              \
        name##_axis<1> y;                                                              \
        name##_axis<2> z;                                                              \
        MPTUNE_INLINE operator dim3() const { return {x, y, z}; }                      \
    };
MPTUNE_INDEX(thread, get_local_id)
MPTUNE_INDEX(block, get_group_id)
MPTUNE_INDEX(threads, get_local_size)
MPTUNE_INDEX(blocks, get_num_groups)
#undef MPTUNE_INDEX

// Functions as the C library calls them.
#define MPTUNE_OF_FLOAT(name) \
    MPTUNE_INLINE float name##f(float x) { return ::name(x); }
MPTUNE_OF_FLOAT(fabs)
MPTUNE_OF_FLOAT(sqrt)
MPTUNE_OF_FLOAT(exp)
MPTUNE_OF_FLOAT(exp2)
MPTUNE_OF_FLOAT(log)
MPTUNE_OF_FLOAT(log2)
MPTUNE_OF_FLOAT(log10)
MPTUNE_OF_FLOAT(sin)
MPTUNE_OF_FLOAT(cos)
MPTUNE_OF_FLOAT(tanh)
MPTUNE_OF_FLOAT(floor)
MPTUNE_OF_FLOAT(ceil)
MPTUNE_OF_FLOAT(trunc)
MPTUNE_OF_FLOAT(rint)
#undef MPTUNE_OF_FLOAT
MPTUNE_INLINE float powf(float x, float y) {
    return ::pow(x, y);
}
MPTUNE_INLINE float fmaf(float a, float b, float c) {
    return ::fma(a, b, c);
}
MPTUNE_INLINE double fma(double a, double b, double c) {
    return ::fma(a, b, c);
}
MPTUNE_INLINE double fabs(double x) {
    return ::fabs(x);
}

}  // namespace mptune_opencl

constexpr mptune_opencl::thread_axes threadIdx{};
constexpr mptune_opencl::block_axes blockIdx{};
constexpr mptune_opencl::threads_axes blockDim{};
constexpr mptune_opencl::blocks_axes gridDim{};

MPTUNE_INLINE void __syncthreads() {
    barrier(mptune_opencl::all_memory);
}
MPTUNE_INLINE void __threadfence() {
    atomic_work_item_fence(mptune_opencl::all_memory, mptune_opencl::acquire_and_release, mptune_opencl::everywhere);
}
MPTUNE_INLINE void __threadfence_block() {
    atomic_work_item_fence(mptune_opencl::all_memory, mptune_opencl::acquire_and_release, mptune_opencl::in_block);
}

template <class T>
MPTUNE_INLINE T __ldg(const T* address) {
    return *address;
}

// Atomic functions return the value before, and order nothing else, as on CUDA.
#define MPTUNE_ATOMIC(T, A, name, function)                                                                \
    MPTUNE_INLINE T name(T* address, T value) {                                                            \
        return function(reinterpret_cast<volatile A*>(address), value, mptune_opencl::relaxed,             \
                        mptune_opencl::everywhere);                                                        \
    }
#define MPTUNE_ATOMICS(T, A)                                                                               \
    MPTUNE_ATOMIC(T, A, atomicAdd, atomic_fetch_add_explicit)                                              \
    MPTUNE_ATOMIC(T, A, atomicSub, atomic_fetch_sub_explicit)                                              \
    MPTUNE_ATOMIC(T, A, atomicMin, atomic_fetch_min_explicit)                                              \
    MPTUNE_ATOMIC(T, A, atomicMax, atomic_fetch_max_explicit)                                              \
    MPTUNE_ATOMIC(T, A, atomicAnd, atomic_fetch_and_explicit)                                              \
    MPTUNE_ATOMIC(T, A, atomicOr, atomic_fetch_or_explicit)                                                \
    MPTUNE_ATOMIC(T, A, atomicXor, atomic_fetch_xor_explicit)                                              \
    MPTUNE_ATOMIC(T, A, atomicExch, atomic_exchange_explicit)                                              \
    MPTUNE_INLINE T atomicCAS(T* address, T expected, T desired) {                                         \
        atomic_compare_exchange_strong_explicit(reinterpret_cast<volatile A*>(address), &expected, desired, \
                                                mptune_opencl::relaxed, mptune_opencl::relaxed,            \
                                                mptune_opencl::everywhere);                                \
        return expected;                                                                                   \
    }
MPTUNE_ATOMICS(int, atomic_int)
MPTUNE_ATOMICS(unsigned, atomic_uint)
#if defined(cl_khr_int64_base_atomics) && defined(cl_khr_int64_extended_atomics)
MPTUNE_ATOMICS(long, atomic_long)
MPTUNE_ATOMICS(unsigned long, atomic_ulong)
#endif
#undef MPTUNE_ATOMICS
#undef MPTUNE_ATOMIC

#define MPTUNE_ATOMIC(T, W, name, after)                                    \
    MPTUNE_INLINE T name(T* address, T value) {                             \
        W* const word = reinterpret_cast<W*>(address);                      \
        W expected = *word, found;                                          \
        T before;                                                           \
        do {                                                                \
            found = expected;                                               \
            before = __builtin_bit_cast(T, found);                          \
            expected = atomicCAS(word, found, __builtin_bit_cast(W, after)); \
        } while (expected != found);                                        \
        return before;                                                      \
    }
MPTUNE_ATOMIC(float, unsigned, atomicAdd, before + value)
MPTUNE_ATOMIC(float, unsigned, atomicExch, value)
#if defined(cl_khr_int64_base_atomics) && defined(cl_khr_int64_extended_atomics)
MPTUNE_ATOMIC(double, unsigned long, atomicAdd, before + value)
MPTUNE_ATOMIC(double, unsigned long, atomicExch, value)
#endif
#undef MPTUNE_ATOMIC

#endif
