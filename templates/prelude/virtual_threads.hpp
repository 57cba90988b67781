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
        // Enough for vectors; the last threads of a block then have none left.
        constexpr index width = PerThread == 1 || PerThread >= 32 ? PerThread : 32;
        const index start = blockIdx.x * blockDim.x * PerThread, behind = start + blockDim.x * PerThread;
        const index first = start + threadIdx.x * width;
        const index end = width == PerThread || first + width < behind ? first + width : behind;
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


// How many columns a tile has. On a GPU at most: what its threads keep has to fit into the registers of one, and as often
// as there are threads their code is written out there. On the host at least: enough for a vector, so that a thread does
// the work of those next to it in the block, too, and the last ones have none left; no more, as what each of them reads
// in every round of a loop around the tile then stays in registers.
#if defined(MPTUNE_HOST)
#if defined(__clang__)
constexpr int least_columns = 32;
#else
constexpr int least_columns = 16;
#endif
constexpr int tile_columns(int columns, int) { return columns < least_columns ? least_columns : columns; }
#else
constexpr __device__ int tile_columns(int columns, int rows) { return columns * rows > 16 ? 16 / rows : columns; }
#endif

// A tile of virtual threads: its first one, and how far apart they are.
template <int Columns, int Rows>
struct whole_tile {
    static constexpr int columns = Columns, rows = Rows;
    indices first, step;

    // A part of what a thread does, which is `PerThread` columns, where these are more than one tile.
    template <int PerThread>
    static MPTUNE_INLINE whole_tile here([[maybe_unused]] int part) {
#if defined(MPTUNE_HOST)
        const int x = blockIdx.x * blockDim.x * PerThread + threadIdx.x * Columns;
        const int y = (blockIdx.y * blockDim.y + threadIdx.y) * Rows;
        if (x < 0 || y < 0) __builtin_unreachable();
        return {{x, y, blockIdx.z * blockDim.z + threadIdx.z}, {1, 1, 1}};
#else
        return {{(blockIdx.x * (PerThread / Columns) + part) * blockDim.x * Columns + threadIdx.x,
                 blockIdx.y * blockDim.y * Rows + threadIdx.y, blockIdx.z * blockDim.z + threadIdx.z},
                {blockDim.x, blockDim.y, 1}};
#endif
    }
    // Where the tiles of this block end, of so many threads in all.
    template <int PerThread>
    static MPTUNE_INLINE int end(int threads) {
        const int here = PerThread < Columns ? (blockIdx.x + 1) * blockDim.x * PerThread : threads;
        return here < threads ? here : threads;
    }
    static constexpr MPTUNE_INLINE int present_columns() { return Columns; }
    static constexpr MPTUNE_INLINE int present_rows() { return Rows; }
    MPTUNE_INLINE indices thread(int column, int row) const {
        return {first.x + column * step.x, first.y + row * step.y, first.z};
    }
};

// One that is cut off by the edge of what is to be done: on a GPU, a thread of it.
#if defined(MPTUNE_HOST)
template <int Columns, int Rows>
struct cut_tile {
    static constexpr int columns = Columns, rows = Rows;
    static constexpr bool is_of_many = true;
    indices first, step;
    int n_columns, n_rows;

    MPTUNE_INLINE int present_columns() const { return n_columns; }
    MPTUNE_INLINE int present_rows() const { return n_rows; }
    MPTUNE_INLINE indices thread(int column, int row) const { return {first.x + column, first.y + row, first.z}; }
};
#else
template <int, int>
struct cut_tile : whole_tile<1, 1> {
    static constexpr bool is_of_many = false;
    MPTUNE_INLINE cut_tile(const indices& first, const indices& step, int, int) : whole_tile<1, 1>{first, step} {}
};
#endif

}  // namespace detail

// A variable of which each thread of a tile has its own.
template <class Tile, class T>
struct per_tile {
    T of[Tile::rows][Tile::columns];
    MPTUNE_INLINE T& operator()(int column, int row) { return of[row][column]; }
};
// The same where all threads of a column, or of a row, have the same value.
template <class Tile, class T>
struct per_column {
    T of[Tile::columns];
    MPTUNE_INLINE T& operator()(int column, int) { return of[column]; }
};
template <class Tile, class T>
struct per_row {
    T of[Tile::rows];
    MPTUNE_INLINE T& operator()(int, int row) { return of[row]; }
};

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

// The parameters of a function for a tile of threads, and what it is given for them. It begins with
// `template <class Tile>`.
#define TILE_INDICES                                                                                 \
    const Tile& mptune_tile, [[maybe_unused]] mp::indices blockIdx, [[maybe_unused]] mp::indices blockDim, \
        [[maybe_unused]] mp::indices gridDim
#define THIS_TILE mptune_tile, mptune_block, mptune_extents, mptune_grid

// In it, what each thread does stands in braces behind EACH_THREAD. The compiler makes vectors of it. Between such blocks
// is what is the same for all: loops, above all. What a thread keeps from one to the next is declared outside,
// `mp::per_tile<Tile, float> sum_of;`, and OF_THREAD(sum) is the thread's.
// g++ is to unroll both loops once it has made vectors of the one inside, and not before: of that one at most 8 rounds,
// which are those of vectors. It ignores this where the condition of the loop is a call.
#define EACH_THREAD                                                                                  \
    MPTUNE_TILE_LOOP for (int mptune_row = 0; mptune_row < mptune_tile.present_rows(); ++mptune_row) \
        MPTUNE_TILE_COLUMNS for (int mptune_column = 0, mptune_columns = mptune_tile.present_columns(); \
                                 mptune_column < mptune_columns; ++mptune_column)                    \
            if ([[maybe_unused]] const mp::indices threadIdx = mptune_tile.thread(mptune_column, mptune_row); true)
#if defined(MPTUNE_HOST) && !defined(__clang__)
#define MPTUNE_TILE_LOOP
#define MPTUNE_TILE_COLUMNS _Pragma("GCC unroll 8")
#else
#define MPTUNE_TILE_LOOP _Pragma("unroll")
#define MPTUNE_TILE_COLUMNS _Pragma("unroll")
#endif
#define OF_THREAD(name) auto& name = name##_of(mptune_column, mptune_row)

// Makes a call, with THIS_TILE, for the tile of a thread of the grid. `has_work` says, with TILE_THREAD, whether a virtual
// thread has anything to do: what has not is cut off where the others form a rectangle, or else left out one by one.
#define TILE_THREAD mptune_thread, mptune_block, mptune_extents, mptune_grid
#define GRID_TILES(columns, rows, x_threads, y_threads, z_threads, has_work, ...)                                   \
    do {                                                                                                            \
        using mptune_index = decltype(mp::indices::x);                                                              \
        constexpr int mptune_width = mp::detail::tile_columns(columns, rows), mptune_height = rows;                 \
        using mptune_tiles = mp::detail::whole_tile<mptune_width, mptune_height>;                                   \
        constexpr int mptune_parts = (columns) < mptune_width ? 1 : (columns) / mptune_width;                       \
        static_assert((columns) % mptune_width == 0 || mptune_width % (columns) == 0, "a power of two of threads"); \
        using mptune_cut = mp::detail::cut_tile<mptune_width, mptune_height>;                                       \
        const mp::indices mptune_block{0, 0, 0}, mptune_grid{1, 1, 1};                                              \
        const mp::indices mptune_extents{x_threads, y_threads, z_threads};                                          \
        const auto mptune_end = mptune_index(mptune_tiles::template end<(columns)>(x_threads));                     \
        UNROLL(1) for (int mptune_part = 0; mptune_part < mptune_parts; ++mptune_part) {                            \
            const auto mptune_whole = mptune_tiles::template here<(columns)>(mptune_part);                          \
            if (mptune_whole.first.x >= mptune_end) continue;                                                       \
            const auto mptune_works = [&](int mptune_column, int mptune_row) {                                      \
                const mp::indices mptune_thread = mptune_whole.thread(mptune_column, mptune_row);                   \
                return mptune_thread.x < mptune_end && mptune_thread.y < mptune_index(y_threads) &&                 \
                       mptune_thread.z < mptune_index(z_threads) && (has_work);                                     \
            };                                                                                                      \
            /* Compilers make vectors of this alone; where the edge is, is found out at the edge. */                \
            int mptune_idle = 0;                                                                                    \
            for (int mptune_row = 0; mptune_row < mptune_height; ++mptune_row) {                                    \
                for (int mptune_column = 0; mptune_column < mptune_width; ++mptune_column) {                        \
                    mptune_idle += mptune_works(mptune_column, mptune_row) ? 0 : 1;                                     \
                }                                                                                                   \
            }                                                                                                       \
            if (mptune_idle == 0) {                                                                                 \
                const auto& mptune_tile = mptune_whole;                                                             \
                __VA_ARGS__;                                                                                        \
                continue;                                                                                           \
            }                                                                                                       \
            int mptune_count = 0, mptune_across = 0, mptune_down = 0;                                               \
            for (int mptune_row = 0; mptune_row < mptune_height; ++mptune_row) {                                    \
                for (int mptune_column = 0; mptune_column < mptune_width; ++mptune_column) {                        \
                    if (!mptune_works(mptune_column, mptune_row)) continue;                                         \
                    ++mptune_count;                                                                                 \
                    mptune_across = mptune_column >= mptune_across ? mptune_column + 1 : mptune_across;             \
                    mptune_down = mptune_row + 1;                                                                   \
                }                                                                                                   \
            }                                                                                                       \
            const bool mptune_is_one = mptune_cut::is_of_many && mptune_count == mptune_across * mptune_down;       \
            const int mptune_step_x = mptune_is_one ? mptune_across : 1;                                            \
            const int mptune_step_y = mptune_is_one ? mptune_down : 1;                                              \
            UNROLL(1) for (int mptune_row = 0; mptune_row < mptune_down; mptune_row += mptune_step_y) {             \
                UNROLL(1) for (int mptune_column = 0; mptune_column < mptune_across; mptune_column += mptune_step_x) {\
                    if (!mptune_is_one && !mptune_works(mptune_column, mptune_row)) continue;                       \
                    const mptune_cut mptune_tile{mptune_whole.thread(mptune_column, mptune_row), mptune_whole.step, \
                                                 mptune_step_x, mptune_step_y};                                     \
                    __VA_ARGS__;                                                                                    \
                }                                                                                                   \
            }                                                                                                       \
        }                                                                                                           \
    } while (false)
