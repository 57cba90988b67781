// Runs a grid: the threads of a block run one after the other in a loop the compiler may vectorise or, where the kernel
// has barriers, as fibers.

#if defined(MPTUNE_HOST)

#if defined(__clang__)
// That a loop is not vectorised is no news: many cannot be.
#pragma clang diagnostic ignored "-Wpass-failed"
#define MPTUNE_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPTUNE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

// Whether one thread of a block does it all: a source that says so has a better match (phases.hpp).
constexpr bool mptune_in_phases(...) { return false; }

namespace mptune_host {

// The block's extents where the source fixes them, so that the thread loop has a constant length; else zeros.
template <int X = 0, int Y = 0, int Z = 0>
struct fixed_block {
    static constexpr dim3 fixed{X, X > 0 && Y == 0 ? 1 : Y, X > 0 && Z == 0 ? 1 : Z};
    static __forceinline__ dim3 extents(const job& work) {
        if constexpr (X > 0) return fixed;
        else return work.block;
    }
};

// g++ optimises every function once before it is inlined: a grid is few functions. Braces have a kernel's arguments, of the
// types A, read in order, which g++ warns of, and a constructor reads them once for all threads.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsequence-point"

// A grid whose threads run one after the other, or the first of each block alone.
template <auto Kernel, class Block, bool FirstAlone, class... A>
struct grid_of_loops {
    static __attribute__((flatten)) void run(job& work, worker&, row part) {
        [[maybe_unused]] void** next = work.arguments;
        grid_of_loops{work, part, *static_cast<A*>(*next++)...};
    }

    __forceinline__ grid_of_loops(const job& work, row part, A... arguments) {
        // Constants that are known only here would have g++ cut the loops of some blocks otherwise.
        const dim3 extents = Block::extents(work);
        const dim3 threads = FirstAlone ? dim3{1, 1, 1} : extents;
        gridDim = work.grid;
        for (int i = 0; i < part.count; ++i) {
            blockIdx = dim3{part.first.x + i, part.first.y, part.first.z};
            blockDim = extents;
            for (int z = 0; z < threads.z; ++z) {
                for (int y = 0; y < threads.y; ++y) {
                    // Counting in indices of the grid, a guard like `if (blockIdx.x * blockDim.x + threadIdx.x < n)`
                    // compares the counter itself: g++ then cuts the loop at n instead of masking every iteration,
                    // whose conditional index arithmetic would turn contiguous loads into gathers.
                    const int first = blockIdx.x * blockDim.x;
                    MPTUNE_INDEPENDENT_ITERATIONS
                    for (int x = first; x < first + threads.x; ++x) {
                        threadIdx = dim3{x - first, y, z};
                        Kernel(arguments...);
                    }
                }
            }
        }
    }
};

// A grid whose threads can wait for each other.
template <auto Kernel, class Block, class... A>
struct grid_of_fibers {
    static bool prepare(job& work, worker& self) { return self.fibers.prepare(work.block, thread, &work); }

    static void run(job& work, worker& self, row part) {
        blockDim = Block::extents(work);
        gridDim = work.grid;
        for (int i = 0; i < part.count; ++i) {
            blockIdx = dim3{part.first.x + i, part.first.y, part.first.z};
            self.fibers.run();
        }
    }

    static __attribute__((flatten)) void thread() {
        [[maybe_unused]] void** next = static_cast<job*>(active_block->argument)->arguments;
        grid_of_fibers{*static_cast<A*>(*next++)...};
    }

    __forceinline__ grid_of_fibers(A... arguments) { Kernel(arguments...); }
};
#pragma GCC diagnostic pop

// Bytes of every parameter, negative for a pointer.
template <class T>
constexpr int parameter_code = sizeof(T);
template <class T>
constexpr int parameter_code<T*> = -static_cast<int>(sizeof(T*));
template <class... A>
constexpr int parameter_codes[] = {parameter_code<A>..., 0};

template <auto Kernel, class Block, bool HasBarriers, bool FirstAlone, class... A>
constexpr entry entry_of(void (*)(A...)) {
    if constexpr (HasBarriers) {
        using grid = grid_of_fibers<Kernel, Block, A...>;
        return {grid::prepare, grid::run, Block::fixed, sizeof...(A), parameter_codes<A...>};
    } else {
        using grid = grid_of_loops<Kernel, Block, FirstAlone, A...>;
        return {nullptr, grid::run, Block::fixed, sizeof...(A), parameter_codes<A...>};
    }
}

}  // namespace mptune_host

// Makes the library that holds kernel `name` launchable: MPTUNE_HOST_ENTRY(name), or MPTUNE_HOST_ENTRY(name, x, y, z)
// where the block is the same in every launch.
#define MPTUNE_HOST_ENTRY(name, ...)                                                                               \
    namespace mptune_host {                                                                                        \
    constexpr bool has_barriers = __COUNTER__ - counter_before_kernel > 1;                                         \
    constexpr entry launched =                                                                                     \
        entry_of<&::name, fixed_block<__VA_ARGS__>, has_barriers, mptune_in_phases(0)>(decltype(&::name)(nullptr)); \
    }                                                                                                              \
    MPTUNE_UNLESS_APART(MPTUNE_ENTRY_POINTS)

#if defined(MPTUNE_RUNTIME_APART)
#define MPTUNE_UNLESS_APART(definitions)
#else
#define MPTUNE_UNLESS_APART(definitions) definitions
#endif

#endif
