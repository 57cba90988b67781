// Cooperative groups: the block, tiles of a warp, and the threads that are where the calling one is.
//
// One text for templates (`USES_LIBRARY(cooperative_groups);`) and for programs that run behind CUDA's names. A
// grid has a size and ranks here, but its blocks cannot wait for each other.

#pragma once

#define MPTUNE_GROUPS __device__ __forceinline__

namespace cooperative_groups {
namespace detail {

MPTUNE_GROUPS unsigned rank_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
MPTUNE_GROUPS unsigned size_of_block() {
    return blockDim.x * blockDim.y * blockDim.z;
}

// Where the threads of a warp's part are: those lanes of a mask, with neighbours side by side where it is a tile.
struct members {
    unsigned mask, lane;

    MPTUNE_GROUPS unsigned count() const { return static_cast<unsigned>(__popc(mask)); }
    MPTUNE_GROUPS unsigned rank() const { return static_cast<unsigned>(__popc(mask & ((1u << lane) - 1u))); }
    // The lane of the thread with a rank.
    MPTUNE_GROUPS unsigned lane_of(unsigned rank) const {
        unsigned rest = mask;
        for (unsigned i = 0; i < rank; ++i) rest &= rest - 1u;
        return static_cast<unsigned>(__ffs(static_cast<int>(rest)) - 1);
    }
    // A mask of lanes as one of ranks.
    MPTUNE_GROUPS unsigned of_ranks(unsigned lanes) const {
        unsigned found = 0, at = 0;
        for (unsigned rest = mask; rest != 0; rest &= rest - 1u) found |= (lanes & rest & -rest ? 1u : 0u) << at++;
        return found;
    }
};

}  // namespace detail

enum class thread_scope { thread_scope_block, thread_scope_device };

class thread_block {
public:
    MPTUNE_GROUPS void sync() const { __syncthreads(); }
    MPTUNE_GROUPS unsigned thread_rank() const { return detail::rank_in_block(); }
    MPTUNE_GROUPS unsigned size() const { return detail::size_of_block(); }
    MPTUNE_GROUPS unsigned num_threads() const { return size(); }
    MPTUNE_GROUPS dim3 thread_index() const { return of(threadIdx); }
    MPTUNE_GROUPS dim3 group_index() const { return of(blockIdx); }
    MPTUNE_GROUPS dim3 group_dim() const { return of(blockDim); }
    MPTUNE_GROUPS dim3 dim_threads() const { return group_dim(); }

private:
    template <class Index>
    static MPTUNE_GROUPS dim3 of(const Index& index) {
        dim3 found{};
        found.x = index.x;
        found.y = index.y;
        found.z = index.z;
        return found;
    }
};
MPTUNE_GROUPS thread_block this_thread_block() {
    return thread_block();
}

class grid_group {
public:
    MPTUNE_GROUPS bool is_valid() const { return true; }
    MPTUNE_GROUPS unsigned long long block_rank() const {
        const unsigned long long row = blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z;
        return blockIdx.x + gridDim.x * row;
    }
    MPTUNE_GROUPS unsigned long long num_blocks() const {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }
    MPTUNE_GROUPS unsigned long long thread_rank() const {
        return block_rank() * detail::size_of_block() + detail::rank_in_block();
    }
    MPTUNE_GROUPS unsigned long long size() const { return num_blocks() * detail::size_of_block(); }
    MPTUNE_GROUPS unsigned long long num_threads() const { return size(); }
    // Its blocks do not all run at the same time.
    MPTUNE_GROUPS void sync() const {
#if defined(MPTUNE_CUDA)
        __trap();
#else
        __builtin_trap();
#endif
    }
};
MPTUNE_GROUPS grid_group this_grid() {
    return grid_group();
}

// Threads of one warp. What they give each other may have any type. A thread alone waits for nobody: programs may run
// where it could not.
class coalesced_group {
public:
    MPTUNE_GROUPS unsigned thread_rank() const { return own.rank(); }
    MPTUNE_GROUPS unsigned size() const { return own.count(); }
    MPTUNE_GROUPS unsigned num_threads() const { return size(); }
    MPTUNE_GROUPS unsigned meta_group_size() const { return 1; }
    MPTUNE_GROUPS unsigned meta_group_rank() const { return 0; }
    MPTUNE_GROUPS void sync() const {
        if (size() > 1) __syncwarp(own.mask);
    }

    template <class T>
    MPTUNE_GROUPS T shfl(T value, unsigned rank) const {
        if (size() == 1) return value;
        return __shfl_sync(own.mask, value, static_cast<int>(own.lane_of(rank % size())), 32);
    }
    template <class T>
    MPTUNE_GROUPS T shfl_up(T value, unsigned by) const {
        const unsigned rank = thread_rank();
        return shfl(value, rank >= by ? rank - by : rank);
    }
    template <class T>
    MPTUNE_GROUPS T shfl_down(T value, unsigned by) const {
        const unsigned rank = thread_rank();
        return shfl(value, rank + by < size() ? rank + by : rank);
    }
    MPTUNE_GROUPS unsigned ballot(int is) const {
        if (size() == 1) return is != 0;
        return own.of_ranks(__ballot_sync(own.mask, is));
    }
    MPTUNE_GROUPS int any(int is) const { return ballot(is) != 0; }
    MPTUNE_GROUPS int all(int is) const { return ballot(!is) == 0; }

    detail::members own;
};

#if defined(MPTUNE_GPU)
MPTUNE_GROUPS coalesced_group coalesced_threads() {
    return coalesced_group{{__activemask(), detail::rank_in_block() % 32u}};
}
#else
// CUDA promises no more than that the calling thread is one of them.
MPTUNE_GROUPS coalesced_group coalesced_threads() {
    const unsigned lane = detail::rank_in_block() % 32u;
    return coalesced_group{{1u << lane, lane}};
}
#endif

template <unsigned N, class Parent = void>
class thread_block_tile {
    static_assert(N > 0 && N <= 32 && (N & (N - 1)) == 0, "a tile has a power of two of threads, at most 32");
    static MPTUNE_GROUPS unsigned lane() { return detail::rank_in_block() % 32u; }
    static MPTUNE_GROUPS unsigned first() { return lane() & ~(N - 1u); }
    static MPTUNE_GROUPS unsigned mask() { return (N < 32 ? (1u << (N % 32)) - 1u : 0xffffffffu) << first(); }

public:
    thread_block_tile() = default;
    template <class Other>
    MPTUNE_GROUPS thread_block_tile(const thread_block_tile<N, Other>&) {}

    MPTUNE_GROUPS unsigned thread_rank() const { return lane() % N; }
    static constexpr MPTUNE_GROUPS unsigned size() { return N; }
    static constexpr MPTUNE_GROUPS unsigned num_threads() { return N; }
    MPTUNE_GROUPS unsigned meta_group_rank() const { return detail::rank_in_block() / N; }
    MPTUNE_GROUPS unsigned meta_group_size() const { return (detail::size_of_block() + N - 1u) / N; }
    MPTUNE_GROUPS void sync() const { __syncwarp(mask()); }

    template <class T>
    MPTUNE_GROUPS T shfl(T value, int rank) const {
        return __shfl_sync(mask(), value, rank, N);
    }
    template <class T>
    MPTUNE_GROUPS T shfl_up(T value, unsigned by) const {
        return shfl(value, static_cast<int>(thread_rank() >= by ? thread_rank() - by : thread_rank()));
    }
    template <class T>
    MPTUNE_GROUPS T shfl_down(T value, unsigned by) const {
        return shfl(value, static_cast<int>(thread_rank() + by < N ? thread_rank() + by : thread_rank()));
    }
    template <class T>
    MPTUNE_GROUPS T shfl_xor(T value, unsigned bits) const {
        return shfl(value, static_cast<int>((thread_rank() ^ bits) % N));
    }
    MPTUNE_GROUPS unsigned ballot(int is) const { return (__ballot_sync(mask(), is) & mask()) >> first(); }
    MPTUNE_GROUPS int any(int is) const { return ballot(is) != 0; }
    MPTUNE_GROUPS int all(int is) const { return ballot(!is) == 0; }
};

template <unsigned N, class Parent>
MPTUNE_GROUPS thread_block_tile<N, Parent> tiled_partition(const Parent&) {
    return thread_block_tile<N, Parent>();
}

template <class Group>
MPTUNE_GROUPS void sync(const Group& group) {
    group.sync();
}
template <class Group>
MPTUNE_GROUPS unsigned thread_rank(const Group& group) {
    return group.thread_rank();
}
template <class Group>
MPTUNE_GROUPS unsigned group_size(const Group& group) {
    return group.size();
}

#define MPTUNE_GROUPS_OPERATOR(name, result)                                                                   \
    template <class T = void>                                                                                  \
    struct name {                                                                                              \
        MPTUNE_GROUPS T operator()(T a, T b) const { return static_cast<T>(result); }                          \
    };                                                                                                         \
    template <>                                                                                                \
    struct name<void> {                                                                                        \
        template <class T>                                                                                     \
        MPTUNE_GROUPS T operator()(T a, T b) const { return static_cast<T>(result); }                          \
    };
MPTUNE_GROUPS_OPERATOR(plus, a + b)
MPTUNE_GROUPS_OPERATOR(less, b < a ? b : a)
MPTUNE_GROUPS_OPERATOR(greater, a < b ? b : a)
MPTUNE_GROUPS_OPERATOR(bit_and, a & b)
MPTUNE_GROUPS_OPERATOR(bit_xor, a ^ b)
MPTUNE_GROUPS_OPERATOR(bit_or, a | b)
#undef MPTUNE_GROUPS_OPERATOR

// Each thread of a tile gets the result: halves are exchanged, the widest first.
template <unsigned N, class Parent, class T, class Op>
MPTUNE_GROUPS T reduce(const thread_block_tile<N, Parent>& tile, T value, Op op) {
    MPTUNE_UNROLL
    for (unsigned bits = N / 2; bits > 0; bits /= 2) value = static_cast<T>(op(value, tile.shfl_xor(value, bits)));
    return value;
}
template <class T, class Op>
MPTUNE_GROUPS T reduce(const coalesced_group& group, T value, Op op) {
    for (unsigned step = 1; step < group.size(); step *= 2) {
        const T other = group.shfl_down(value, step);
        if (group.thread_rank() + step < group.size()) value = static_cast<T>(op(value, other));
    }
    return group.shfl(value, 0);
}
template <class Group, class T, class Op = plus<T>>
MPTUNE_GROUPS T inclusive_scan(const Group& group, T value, Op op = Op()) {
    for (unsigned step = 1; step < group.size(); step *= 2) {
        const T other = group.shfl_up(value, step);
        if (group.thread_rank() >= step) value = static_cast<T>(op(other, value));
    }
    return value;
}
template <class Group, class T, class Op = plus<T>>
MPTUNE_GROUPS T exclusive_scan(const Group& group, T value, Op op = Op()) {
    const T before = group.shfl_up(inclusive_scan(group, value, op), 1);
    return group.thread_rank() == 0 ? T(0) : before;
}

}  // namespace cooperative_groups

#undef MPTUNE_GROUPS
