// Virtual threads: several of them for each thread of the grid, and a function that is written for one.
//
//   __device__ void axpy_thread(float a, const float* x, float* y, int n, VIRTUAL_INDICES) {
//       const int i = blockIdx.x * blockDim.x + threadIdx.x;
//       if (i < n) y[i] = a * x[i] + y[i];
//   }
//   extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
//       GRID_THREADS({{ per_thread }}, {{ threads }}, 1, 1, axpy_thread(a, x, y, n, VIRTUAL_THREAD));
//   }
//
// In the function threadIdx, blockIdx, blockDim and gridDim are those of the virtual thread. The virtual threads of a
// thread run one after the other, so that the function can have no barrier: neighbours on the host, where the compiler
// makes a vector of them, and a block's width apart on a GPU, where the threads of a warp are to be neighbours.

namespace mp {

// What threadIdx and the others are. On the host their members are int, for the reason host.hpp has.
#if defined(MPTUNE_HOST)
using indices = dim3;
#else
struct indices {
    unsigned x, y, z;
};
#endif

// For indices a program has as unsigned, where none of them wraps around: on the host they have 64 bits, since an index
// of 32 that may wrap costs the compiler every contiguous access.
#if defined(MPTUNE_HOST)
using count = unsigned long;
#else
using count = unsigned;
#endif

namespace detail {

// The virtual threads of one thread: from `first` to below `last` in x, `step` apart, with one y and z.
template <int PerThread>
struct virtual_threads {
    using index = decltype(indices::x);
    index first, last, y, z;
    bool are_any;
    indices block, block_dim, grid_dim;

    // Those of a grid, as if they were one block of so many; what is more stays idle.
    static MPTUNE_INLINE virtual_threads of_grid(index x_threads, index y_threads, index z_threads) {
        const index y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
#if defined(MPTUNE_HOST)
        const index first = (blockIdx.x * blockDim.x + threadIdx.x) * PerThread, end = first + PerThread;
        if (first < 0) __builtin_unreachable();  // nor can an unsigned index made of these wrap
#else
        const index start = blockIdx.x * blockDim.x * PerThread;
        const index first = start + threadIdx.x, end = start + blockDim.x * PerThread;
#endif
        const index last = PerThread == 1 || x_threads < end ? x_threads : end;
        return {first, last, y, z, y < y_threads && z < z_threads, {0, 0, 0}, {x_threads, y_threads, z_threads}, {1, 1, 1}};
    }
    // Those of a block of PerThread as many threads in x.
    static MPTUNE_INLINE virtual_threads of_block() {
        const index x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
#if defined(MPTUNE_HOST)
        const index first = x * PerThread, last = first + PerThread;
#else
        const index first = x, last = blockDim.x * PerThread;
#endif
        return {first, last, y, z, true, {blockIdx.x, blockIdx.y, blockIdx.z},
                {blockDim.x * PerThread, blockDim.y, blockDim.z}, {gridDim.x, gridDim.y, gridDim.z}};
    }
};

}  // namespace detail
}  // namespace mp

// The parameters of a function for a virtual thread, and what it is given for them.
#define VIRTUAL_INDICES                                                                \
    [[maybe_unused]] mp::indices threadIdx, [[maybe_unused]] mp::indices blockIdx,     \
        [[maybe_unused]] mp::indices blockDim, [[maybe_unused]] mp::indices gridDim
#define VIRTUAL_THREAD                                                                 \
    mp::indices{mptune_x, mptune_threads.y, mptune_threads.z}, mptune_threads.block, mptune_threads.block_dim, \
        mptune_threads.grid_dim

// Makes a call, with VIRTUAL_THREAD, for each. The function sees one block of so many threads, whatever the kernel's
// blocks are: right for what needs only a thread's number in the grid, and how many there are.
#define GRID_THREADS(per_thread, x_threads, y_threads, z_threads, ...)                               \
    MPTUNE_VIRTUAL_THREADS(per_thread, of_grid(x_threads, y_threads, z_threads), __VA_ARGS__)
// The function sees the kernel's grid and block, `per_thread` times as wide in x.
#define BLOCK_THREADS(per_thread, ...) MPTUNE_VIRTUAL_THREADS(per_thread, of_block(), __VA_ARGS__)

#define MPTUNE_VIRTUAL_THREADS(per_thread, which, ...)                                               \
    do {                                                                                             \
        const auto mptune_threads = mp::detail::virtual_threads<per_thread>::which;                  \
        auto mptune_x = mptune_threads.first;                                                        \
        if constexpr (per_thread == 1) {                                                             \
            if (mptune_x < mptune_threads.last && mptune_threads.are_any) __VA_ARGS__;                                      \
        } else {                                                                                     \
            const auto mptune_last = mptune_threads.are_any ? mptune_threads.last : mptune_x;        \
            MPTUNE_VIRTUAL_LOOP(per_thread)                                                          \
            for (; mptune_x < mptune_last; mptune_x += MPTUNE_VIRTUAL_STEP) __VA_ARGS__;             \
        }                                                                                            \
    } while (false)
#if !defined(MPTUNE_HOST)
#define MPTUNE_VIRTUAL_STEP blockDim.x
#define MPTUNE_VIRTUAL_LOOP(per_thread) UNROLL(4)
#else
#define MPTUNE_VIRTUAL_STEP 1
#if defined(__clang__)
#define MPTUNE_VIRTUAL_LOOP(per_thread) MPTUNE_INDEPENDENT_ITERATIONS
#else
#define MPTUNE_VIRTUAL_LOOP(per_thread) MPTUNE_INDEPENDENT_ITERATIONS VECTOR_LOOP
#endif
#endif
