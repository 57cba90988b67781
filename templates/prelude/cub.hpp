// cub's algorithms of a block and of a warp, for any type: over shared memory and barriers, and on a GPU over shuffles.
//
// One text for templates (`USES_LIBRARY(cub);`) and for programs that run behind CUDA's names. The order of the operations
// is that of cub with BLOCK_REDUCE_WARP_REDUCTIONS and BLOCK_SCAN_WARP_SCANS, whichever algorithm is named: a reduction
// by halves within a warp, and warps one after the other.

#pragma once

#define CUB_MAX(a, b) (((b) > (a)) ? (b) : (a))
#define CUB_MIN(a, b) (((b) < (a)) ? (b) : (a))
#define MPTUNE_CUB __device__ __forceinline__

namespace cub {

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

#define MPTUNE_CUB_OPERATOR(name, result)                     \
    struct name {                                             \
        template <class T>                                    \
        __host__ MPTUNE_CUB T operator()(T a, T b) const {    \
            return static_cast<T>(result);                    \
        }                                                     \
    };
MPTUNE_CUB_OPERATOR(Sum, a + b)
MPTUNE_CUB_OPERATOR(Difference, a - b)
MPTUNE_CUB_OPERATOR(Division, a / b)
MPTUNE_CUB_OPERATOR(Max, b > a ? b : a)
MPTUNE_CUB_OPERATOR(Min, b < a ? b : a)
// Of equal values that with the smaller key is taken.
MPTUNE_CUB_OPERATOR(ArgMax, b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a)
MPTUNE_CUB_OPERATOR(ArgMin, b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a)
#undef MPTUNE_CUB_OPERATOR

template <class K, class V>
struct KeyValuePair {
    typedef K Key;
    typedef V Value;
    K key;
    V value;
    KeyValuePair() = default;
    __host__ MPTUNE_CUB KeyValuePair(const K& k, const V& v) : key(k), value(v) {}
};

namespace detail {

// Numbers in shared memory, where nothing is initialised.
template <class T, int N>
struct storage {
    alignas(T) unsigned char bytes[N * sizeof(T)];
    MPTUNE_CUB T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

// A thread's place in a warp, or in a part of one that begins at a lane, and how many threads there are.
struct lanes {
    int rank, count, first;
    MPTUNE_CUB unsigned mask() const { return (count < 32 ? (1u << count) - 1u : 0xffffffffu) << first; }
};

// On a GPU threads of a warp exchange numbers by shuffles; elsewhere through memory, as their first thread does it all.
#if defined(MPTUNE_GPU)
template <class T, int N>
struct exchanged {};

template <class T>
MPTUNE_CUB T from_lane(const lanes& in, T value, int rank) {
    return __shfl_sync(in.mask(), value, in.first + rank, 32);
}

template <class T, class Op, class Memory, class Wait>
MPTUNE_CUB T reduced(const lanes& in, T x, int valid, Op op, Memory&, int, Wait) {
    for (int step = 1; step < in.count; step *= 2) {
        const T other = from_lane(in, x, in.rank + step < in.count ? in.rank + step : in.rank);
        if (in.rank + step < valid) x = static_cast<T>(op(x, other));
    }
    return x;
}
template <class T, class Op, class Memory, class Wait>
MPTUNE_CUB T scanned(const lanes& in, T x, Op op, T& before, Memory&, int, Wait) {
    for (int step = 1; step < in.count; step *= 2) {
        const T other = from_lane(in, x, in.rank >= step ? in.rank - step : in.rank);
        if (in.rank >= step) x = static_cast<T>(op(other, x));
    }
    before = from_lane(in, x, in.rank > 0 ? in.rank - 1 : 0);
    return x;
}
#else
template <class T, int N>
using exchanged = storage<T, N>;

template <class T, class Op, class Memory, class Wait>
MPTUNE_CUB T reduced(const lanes& in, T x, int valid, Op op, Memory& memory, int at, Wait wait) {
    memory[at + in.rank] = x;
    wait();
    if (in.rank != 0) return x;
    for (int step = 1; step < valid; step *= 2) {
        for (int i = at; i + step < at + valid; i += 2 * step) {
            memory[i] = static_cast<T>(op(memory[i], memory[i + step]));
        }
    }
    return memory[at];
}
template <class T, class Op, class Memory, class Wait>
MPTUNE_CUB T scanned(const lanes& in, T x, Op op, T& before, Memory& memory, int at, Wait wait) {
    memory[at + in.rank] = x;
    wait();
    if (in.rank == 0) {
        for (int step = 1; step < in.count; step *= 2) {
            for (int i = at + in.count - 1; i >= at + step; --i) {
                memory[i] = static_cast<T>(op(memory[i - step], memory[i]));
            }
        }
    }
    wait();
    if (in.rank > 0) before = memory[at + in.rank - 1];
    return memory[at + in.rank];
}
#endif

struct wait_for_block {
    MPTUNE_CUB void operator()() const { __syncthreads(); }
};

template <class Mask = unsigned>
struct wait_for_warp {
    Mask mask;
    MPTUNE_CUB void operator()() const { __syncwarp(mask); }
};

template <int N>
struct number {};

// The place in a warp's part of N threads, of which there are several in a warp if N is a power of two.
template <int N>
MPTUNE_CUB lanes part_of_warp() {
    static_assert(N >= 1 && N <= 32, "a warp has 32 threads");
    const int thread = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    const int lane = thread % 32, rank = (N & (N - 1)) == 0 ? lane % N : lane;
    return {rank, N, lane - rank};
}

// The threads of a block of X by Y by Z.
template <int X, int Y, int Z>
struct block {
    static constexpr int threads = X * Y * Z, warps = (threads + 31) / 32;
    static MPTUNE_CUB int rank() {
        return static_cast<int>(threadIdx.x) + X * (static_cast<int>(threadIdx.y) + Y * static_cast<int>(threadIdx.z));
    }
    static MPTUNE_CUB lanes in_warp() {
        const int self = rank(), rest = threads - self / 32 * 32;
        return {self % 32, rest < 32 ? rest : 32, 0};
    }
};

// What an operator makes of two numbers.
template <class T>
MPTUNE_CUB T&& made();
template <class Op, class T>
using result_of = decltype(made<Op&>()(made<T&>(), made<T&>()));

template <class Op, class T, int N>
MPTUNE_CUB T in_thread(const T (&items)[N], Op op) {
    T total = items[0];
    MPTUNE_UNROLL
    for (int i = 1; i < N; ++i) total = static_cast<T>(op(total, items[i]));
    return total;
}

}  // namespace detail

// What every collective has: its memory, given or its own.
#define MPTUNE_CUB_COLLECTIVE(name)                                     \
    MPTUNE_CUB name() : memory(own_memory()) {}                         \
    MPTUNE_CUB name(TempStorage& memory) : memory(memory) {}            \
                                                                        \
private:                                                                \
    TempStorage& memory;                                                \
    static MPTUNE_CUB TempStorage& own_memory() {                       \
        __shared__ TempStorage own;                                     \
        return own;                                                     \
    }                                                                   \
                                                                        \
public:

template <class T, int X, BlockReduceAlgorithm Algorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1,
          int Legacy = 0>
class BlockReduce {
    using threads_of = detail::block<X, Y, Z>;

public:
    struct TempStorage {
        detail::exchanged<T, threads_of::threads> lanes;
        detail::storage<T, threads_of::warps> warps;
    };
    MPTUNE_CUB_COLLECTIVE(BlockReduce)

    // The result is that of the first thread; what others get means nothing.
    template <class Op>
    MPTUNE_CUB T Reduce(T input, Op op, int valid) {
        const int self = threads_of::rank(), warp = self / 32 * 32;
        const detail::lanes in = threads_of::in_warp();
        const int rest = valid - warp;
        T total = detail::reduced(in, input, rest < in.count ? rest : in.count, op, memory.lanes, warp,
                                  detail::wait_for_block());
        if (in.rank == 0) memory.warps[self / 32] = total;
        __syncthreads();
        if (self == 0) {
            for (int i = 1; 32 * i < valid; ++i) total = static_cast<T>(op(total, memory.warps[i]));
        }
        return total;
    }
    template <class Op>
    MPTUNE_CUB T Reduce(T input, Op op) {
        return Reduce(input, op, int(threads_of::threads));
    }
    template <class Op, int N>
    MPTUNE_CUB T Reduce(T (&items)[N], Op op) {
        return Reduce(detail::in_thread(items, op), op);
    }
    MPTUNE_CUB T Sum(T input) { return Reduce(input, cub::Sum()); }
    MPTUNE_CUB T Sum(T input, int valid) { return Reduce(input, cub::Sum(), valid); }
    template <int N>
    MPTUNE_CUB T Sum(T (&items)[N]) {
        return Reduce(items, cub::Sum());
    }
};

// The scans of numbers and of arrays, by `scan<Exclusive>(input, output, op, initial, rest...)`. The rest is nothing, a
// number that becomes the total, or a function that makes of the total what comes before all.
#define MPTUNE_CUB_SCANS(parameters, input, output, is)                                                          \
    template <parameters class... Last>                                                                          \
    MPTUNE_CUB void InclusiveSum(input, output, Last&... last) {                                                 \
        scan<false>(is, Sum(), nullptr, last...);                                                                \
    }                                                                                                            \
    template <parameters class Op, class... Last>                                                                \
    MPTUNE_CUB void InclusiveScan(input, output, Op op, Last&... last) {                                         \
        scan<false>(is, op, nullptr, last...);                                                                   \
    }                                                                                                            \
    template <parameters class... Last>                                                                          \
    MPTUNE_CUB void ExclusiveSum(input, output, Last&... last) {                                                 \
        const T zero = T(0);                                                                                     \
        scan<true>(is, Sum(), &zero, last...);                                                                   \
    }                                                                                                            \
    template <parameters class Op, class... Last, class = detail::result_of<Op, T>>                              \
    MPTUNE_CUB void ExclusiveScan(input, output, Op op, Last&... last) {                                         \
        scan<true>(is, op, nullptr, last...);                                                                    \
    }                                                                                                            \
    template <parameters class Op, class... Last>                                                                \
    MPTUNE_CUB void ExclusiveScan(input, output, T initial, Op op, Last&... last) {                              \
        scan<true>(is, op, &initial, last...);                                                                   \
    }
#define MPTUNE_CUB_COMMA ,
#define MPTUNE_CUB_NOTHING
#define MPTUNE_CUB_ONE &in, &out, detail::number<1>()
#define MPTUNE_CUB_SEVERAL in, out, detail::number<N>()

template <class T, int X, BlockScanAlgorithm Algorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int Legacy = 0>
class BlockScan {
    using threads_of = detail::block<X, Y, Z>;

public:
    struct TempStorage {
        detail::exchanged<T, threads_of::threads> lanes;
        detail::storage<T, threads_of::warps> warps;
        detail::storage<T, 1> seed;
    };
    MPTUNE_CUB_COLLECTIVE(BlockScan)
    MPTUNE_CUB_SCANS(MPTUNE_CUB_NOTHING, T in, T& out, MPTUNE_CUB_ONE)
    MPTUNE_CUB_SCANS(int N MPTUNE_CUB_COMMA, T (&in)[N], T (&out)[N], MPTUNE_CUB_SEVERAL)

private:
    template <bool Exclusive, int N, class Op>
    MPTUNE_CUB void scan(const T* in, T* out, detail::number<N> n, Op op, const T* initial) {
        T total;
        scan<Exclusive>(in, out, n, op, initial, total);
    }
    template <bool Exclusive, int N, class Op>
    MPTUNE_CUB void scan(const T* in, T* out, detail::number<N>, Op op, const T* initial, T& total) {
        T before, after;
        total = among_threads(in, N, op, before, after);
        finish<Exclusive, N>(in, out, op, initial, before, after);
    }
    template <bool Exclusive, int N, class Op, class Function>
    MPTUNE_CUB void scan(const T* in, T* out, detail::number<N>, Op op, const T*, Function& function) {
        T before, after;
        const T total = among_threads(in, N, op, before, after);
        if (threads_of::rank() < 32) {  // the first warp calls it, and its first thread's result counts
            const T first = function(total);
            if (threads_of::rank() == 0) memory.seed[0] = first;
        }
        __syncthreads();
        finish<Exclusive, N>(in, out, op, &memory.seed[0], before, after);
    }

    // Gives what comes before this thread, and that with its own numbers; returns the total.
    template <class Op>
    MPTUNE_CUB T among_threads(const T* in, int n, Op op, T& before, T& after) {
        const int warp = threads_of::rank() / 32;
        const detail::lanes lanes = threads_of::in_warp();
        T own = in[0];
        for (int i = 1; i < n; ++i) own = static_cast<T>(op(own, in[i]));
        before = own;
        after = detail::scanned(lanes, own, op, before, memory.lanes, 32 * warp, detail::wait_for_block());
        if (lanes.rank == lanes.count - 1) memory.warps[warp] = after;
        __syncthreads();
        T sum = memory.warps[0];
        for (int i = 1; i < threads_of::warps; ++i) {
            if (i == warp) {
                before = lanes.rank == 0 ? sum : static_cast<T>(op(sum, before));
                after = static_cast<T>(op(sum, after));
            }
            sum = static_cast<T>(op(sum, memory.warps[i]));
        }
        return sum;
    }

    template <bool Exclusive, int N, class Op>
    MPTUNE_CUB void finish(const T* in, T* out, Op op, const T* initial, T before, T after) {
        bool is_first = threads_of::rank() == 0;
        if (initial != nullptr) {
            before = is_first ? *initial : static_cast<T>(op(*initial, before));
            after = static_cast<T>(op(*initial, after));
            is_first = false;
        }
        if constexpr (N == 1) {
            out[0] = Exclusive ? before : after;
        } else {
            MPTUNE_UNROLL
            for (int i = 0; i < N; ++i) {
                after = is_first && i == 0 ? in[i] : static_cast<T>(op(before, in[i]));
                out[i] = Exclusive ? before : after;
                before = after;
            }
        }
    }
};

// A warp's, or of a part of one: of a power of two of threads, of which there may be several in a warp.
template <class T, int N = 32, int Legacy = 0>
class WarpReduce {
public:
    struct TempStorage {
        detail::exchanged<T, N> lanes;
    };
    MPTUNE_CUB_COLLECTIVE(WarpReduce)

    template <class Op>
    MPTUNE_CUB T Reduce(T input, Op op, int valid) {
        const detail::lanes in = detail::part_of_warp<N>();
        return detail::reduced(in, input, valid, op, memory.lanes, 0, detail::wait_for_warp<>{in.mask()});
    }
    template <class Op>
    MPTUNE_CUB T Reduce(T input, Op op) {
        return Reduce(input, op, N);
    }
    MPTUNE_CUB T Sum(T input) { return Reduce(input, cub::Sum(), N); }
    MPTUNE_CUB T Sum(T input, int valid) { return Reduce(input, cub::Sum(), valid); }
};

template <class T, int N = 32, int Legacy = 0>
class WarpScan {
public:
    struct TempStorage {
        detail::exchanged<T, N> lanes;
        detail::storage<T, 1> last;
    };
    MPTUNE_CUB_COLLECTIVE(WarpScan)
    MPTUNE_CUB_SCANS(MPTUNE_CUB_NOTHING, T in, T& out, MPTUNE_CUB_ONE)

    template <class Op>
    MPTUNE_CUB void Scan(T in, T& inclusive, T& exclusive, Op op) {
        exclusive = in;
        inclusive = among_lanes(in, op, exclusive);
    }
    template <class Op>
    MPTUNE_CUB void Scan(T in, T& inclusive, T& exclusive, T initial, Op op) {
        Scan(in, inclusive, exclusive, op);
        exclusive = detail::part_of_warp<N>().rank == 0 ? initial : static_cast<T>(op(initial, exclusive));
        inclusive = static_cast<T>(op(initial, inclusive));
    }
    MPTUNE_CUB T Broadcast(T in, int from) {
        const detail::lanes lanes = detail::part_of_warp<N>();
        if (lanes.rank == from) memory.last[0] = in;
        __syncwarp(lanes.mask());
        const T found = memory.last[0];
        __syncwarp(lanes.mask());
        return found;
    }

private:
    template <class Op>
    MPTUNE_CUB T among_lanes(T in, Op op, T& before) {
        const detail::lanes lanes = detail::part_of_warp<N>();
        return detail::scanned(lanes, in, op, before, memory.lanes, 0, detail::wait_for_warp<>{lanes.mask()});
    }
    template <bool Exclusive, class Op>
    MPTUNE_CUB void scan(const T* in, T* out, detail::number<1>, Op op, const T* initial) {
        T before = *in, after = among_lanes(*in, op, before);
        if (initial != nullptr) {
            before = detail::part_of_warp<N>().rank == 0 ? *initial : static_cast<T>(op(*initial, before));
            after = static_cast<T>(op(*initial, after));
        }
        *out = Exclusive ? before : after;
    }
    template <bool Exclusive, class Op>
    MPTUNE_CUB void scan(const T* in, T* out, detail::number<1> one, Op op, const T* initial, T& total) {
        T inclusive;
        const T own = *in;
        scan<false>(&own, &inclusive, one, op, nullptr);
        total = Broadcast(inclusive, N - 1);
        scan<Exclusive>(&own, out, one, op, initial);
    }
};

// From memory to arrays of threads: a thread's numbers are neighbours, except in STRIPED. TRANSPOSE goes through shared
// memory, so that threads that are neighbours load neighbours.
template <class T, int X, int N, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int Legacy = 0>
class BlockLoad {
    using threads_of = detail::block<X, Y, Z>;
    static constexpr bool is_striped = Algorithm == BLOCK_LOAD_STRIPED, transposes = Algorithm >= BLOCK_LOAD_TRANSPOSE;

public:
    struct TempStorage {
        detail::storage<T, transposes ? threads_of::threads * N : 1> items;
    };
    MPTUNE_CUB_COLLECTIVE(BlockLoad)

    template <class From>
    MPTUNE_CUB void Load(From from, T (&items)[N]) {
        Load(from, items, threads_of::threads * N);
    }
    template <class From>
    MPTUNE_CUB void Load(From from, T (&items)[N], int valid) {
        load(from, items, valid, [](T&) {});
    }
    template <class From, class Default>
    MPTUNE_CUB void Load(From from, T (&items)[N], int valid, Default otherwise) {
        load(from, items, valid, [=](T& item) { item = static_cast<T>(otherwise); });
    }

private:
    template <class From, class Otherwise>
    MPTUNE_CUB void load(From from, T (&items)[N], int valid, Otherwise otherwise) {
        const int self = threads_of::rank();
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) {
            const int at = is_striped || transposes ? self + i * threads_of::threads : self * N + i;
            if (at < valid) items[i] = static_cast<T>(from[at]);
            else otherwise(items[i]);
            if (transposes) memory.items[at] = items[i];
        }
        if (transposes) {
            __syncthreads();
            MPTUNE_UNROLL
            for (int i = 0; i < N; ++i) items[i] = memory.items[self * N + i];
        }
    }
};

template <class T, int X, int N, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1,
          int Legacy = 0>
class BlockStore {
    using threads_of = detail::block<X, Y, Z>;
    static constexpr bool is_striped = Algorithm == BLOCK_STORE_STRIPED;
    static constexpr bool transposes = Algorithm >= BLOCK_STORE_TRANSPOSE;

public:
    struct TempStorage {
        detail::storage<T, transposes ? threads_of::threads * N : 1> items;
    };
    MPTUNE_CUB_COLLECTIVE(BlockStore)

    template <class To>
    MPTUNE_CUB void Store(To to, T (&items)[N]) {
        Store(to, items, threads_of::threads * N);
    }
    template <class To>
    MPTUNE_CUB void Store(To to, T (&items)[N], int valid) {
        const int self = threads_of::rank();
        if (transposes) {
            MPTUNE_UNROLL
            for (int i = 0; i < N; ++i) memory.items[self * N + i] = items[i];
            __syncthreads();
        }
        MPTUNE_UNROLL
        for (int i = 0; i < N; ++i) {
            const int at = is_striped || transposes ? self + i * threads_of::threads : self * N + i;
            if (at < valid) to[at] = transposes ? memory.items[at] : items[i];
        }
    }
};

}  // namespace cub

#undef MPTUNE_CUB_SEVERAL
#undef MPTUNE_CUB_ONE
#undef MPTUNE_CUB_NOTHING
#undef MPTUNE_CUB_COMMA
#undef MPTUNE_CUB_SCANS
#undef MPTUNE_CUB_COLLECTIVE
#undef MPTUNE_CUB
