// Phases: a kernel with barriers as what all threads of a block do between them.
//
//   IN_PHASES();
//   extern "C" __global__ void total(const float* x, float* sums) {
//       __shared__ float partial[256];
//       PHASE { partial[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x]; }
//       for (int s = 128; s > 0; s /= 2) {
//           PHASE { if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s]; }
//       }
//       PHASE { if (threadIdx.x == 0) sums[blockIdx.x] = partial[0]; }
//   }
//
// On a GPU a barrier ends each phase. On the host one thread does each phase for all threads of its block, in a loop the
// compiler makes vectors of; to change from thread to thread at every barrier takes a hundred times as long. What stands
// between phases is the same for all threads, as it must be where there is a barrier.

namespace mp {

// A variable of a thread that keeps its value from phase to phase: value[thread].
#if defined(MPTUNE_HOST)
template <class T, int Threads>
struct per_thread {
    T of[Threads];
    MPTUNE_INLINE T& operator[](int thread) { return of[thread]; }
};
#else
template <class T, int Threads>
struct per_thread {
    T own;
    MPTUNE_INLINE T& operator[](int) { return own; }
};
#endif

}  // namespace mp

// Stands before the kernel.
#if defined(MPTUNE_HOST)
#define IN_PHASES()                                       \
    constexpr bool mptune_in_phases(int) { return true; } \
    static_assert(true)
#else
#define IN_PHASES() static_assert(true)
#endif

// Stands before a block in braces, in which `thread` is the number of the thread in its block. `continue` ends the phase for a
// thread; `return` would end it for all. A PIECE is a phase without a barrier at its end.
#if defined(MPTUNE_HOST)
#define PHASE                                                                                                   \
    for (int mptune_z = 0; mptune_z < blockDim.z; ++mptune_z)                                                   \
        for (int mptune_y = 0; mptune_y < blockDim.y; ++mptune_y)                                               \
            MPTUNE_INDEPENDENT_ITERATIONS                                                                       \
            for (int mptune_x = 0; mptune_x < blockDim.x; ++mptune_x)                                           \
                if ([[maybe_unused]] const dim3 threadIdx{mptune_x, mptune_y, mptune_z}; true)                  \
                    if ([[maybe_unused]] const int thread =                                                     \
                            (mptune_z * blockDim.y + mptune_y) * blockDim.x + mptune_x;                         \
                        true)
#define PIECE PHASE
#else
#define PIECE                                                                                                      \
    for (bool mptune_is_on = true; mptune_is_on; mptune_is_on = false)                                              \
        if ([[maybe_unused]] const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; true)
#define PHASE                                                                                                   \
    for (bool mptune_is_on = true; mptune_is_on; mptune_is_on = false, __syncthreads())                         \
        if ([[maybe_unused]] const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; true)
#endif
