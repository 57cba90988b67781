// Warp functions: shuffles, votes, matches and reductions of the threads of a warp, for values of any type of up to 16 bytes.
// Templates have them in CUDA's and HIP's words, and so do programs that run as they are (mptune/adopt/files/layer).
//
// A warp has MPTUNE_WARP_SIZE threads wherever the source runs: 32, or 64 if it says so. Where the device's own are larger,
// each half of one is a warp. On the host the threads of a block are fibers: a warp function waits until every thread
// of its mask calls one, has returned, or waits for the whole block. Functions without a mask are called by the threads that
// come to the same line before all others of the warp wait or have returned. A thread that is not there gives 0.

#if !defined(MPTUNE_WARP_SIZE)
#define MPTUNE_WARP_SIZE 32
#endif

#if defined(MPTUNE_HOST)

namespace mptune_host {

// What a thread gives to the others of its warp, and what it gets.
struct alignas(16) lane {
    unsigned char given[16], found[16];
    unsigned source;  // the thread whose value it gets
    int site;         // where it called the function, if that has no mask
};

// Waits for the threads of a mask, or for those that come to the site if the mask is 0. The last thread settles what each
// of the group gets. Masks and lanes are those of the warp.
static void gather(unsigned warp_size, unsigned long long mask, int site,
                   void (*settle)(lane* lanes, unsigned long long group));
static lane& own_lane();
// Returns how many threads of the block say yes.
static unsigned votes(bool is);

inline void settle_shuffle(lane* lanes, unsigned long long group) {
    for (unsigned long long left = group; left != 0; left &= left - 1) {
        lane& to = lanes[__builtin_ctzll(left)];
        if (group >> to.source & 1) __builtin_memcpy(to.found, lanes[to.source].given, sizeof to.found);
        else __builtin_memset(to.found, 0, sizeof to.found);
    }
}
inline void settle_ballot(lane* lanes, unsigned long long group) {
    unsigned long long found = 0;
    for (unsigned long long left = group; left != 0; left &= left - 1) {
        found |= static_cast<unsigned long long>(lanes[__builtin_ctzll(left)].given[0]) << __builtin_ctzll(left);
    }
    for (unsigned long long left = group; left != 0; left &= left - 1) {
        __builtin_memcpy(lanes[__builtin_ctzll(left)].found, &found, sizeof found);
    }
}
// Where operations are counted, traced.hpp has a better match.
template <class T>
inline void count_exchange(const T&, long) {}
inline void settle_nothing(lane*, unsigned long long) {}

}  // namespace mptune_host

#define MPTUNE_HERE __builtin_LINE()
#else
#define MPTUNE_HERE 0
#endif

// A warp of OpenCL is a subgroup, whose size a kernel with warp functions asks for (opencl_dialect.py).
#if defined(MPTUNE_OPENCL)
#if defined(cl_khr_subgroup_shuffle) && defined(cl_khr_subgroup_ballot) && defined(cl_intel_required_subgroup_size)
#define MPTUNE_SUBGROUPS
#define MPTUNE_IN_SUBGROUPS __attribute__((intel_reqd_sub_group_size(MPTUNE_WARP_SIZE)))
#else
#define MPTUNE_IN_SUBGROUPS
#endif
#endif

#if defined(MPTUNE_OPENCL) && !defined(MPTUNE_SUBGROUPS)

namespace mptune_warps {
template <class... A>
constexpr bool never = false;
template <int>
struct warp {
#define MPTUNE_NO_WARPS(name)                                                                                    \
    template <class... A>                                                                                        \
    static int name(A...) {                                                                                      \
        static_assert(never<A...>, "__" #name " needs subgroups of the size of a warp, which this device does not "   \
                                   "have: cl_intel_required_subgroup_size, cl_khr_subgroup_shuffle and _ballot");    \
        return 0;                                                                                                \
    }
    MPTUNE_NO_WARPS(activemask)
    MPTUNE_NO_WARPS(syncwarp)
    MPTUNE_NO_WARPS(shfl)
    MPTUNE_NO_WARPS(shfl_up)
    MPTUNE_NO_WARPS(shfl_down)
    MPTUNE_NO_WARPS(shfl_xor)
    MPTUNE_NO_WARPS(shfl_sync)
    MPTUNE_NO_WARPS(shfl_up_sync)
    MPTUNE_NO_WARPS(shfl_down_sync)
    MPTUNE_NO_WARPS(shfl_xor_sync)
    MPTUNE_NO_WARPS(ballot)
    MPTUNE_NO_WARPS(any)
    MPTUNE_NO_WARPS(all)
    MPTUNE_NO_WARPS(ballot_sync)
    MPTUNE_NO_WARPS(any_sync)
    MPTUNE_NO_WARPS(all_sync)
    MPTUNE_NO_WARPS(match_any_sync)
    MPTUNE_NO_WARPS(match_all_sync)
    MPTUNE_NO_WARPS(reduce_add_sync)
    MPTUNE_NO_WARPS(reduce_min_sync)
    MPTUNE_NO_WARPS(reduce_max_sync)
    MPTUNE_NO_WARPS(reduce_and_sync)
    MPTUNE_NO_WARPS(reduce_or_sync)
    MPTUNE_NO_WARPS(reduce_xor_sync)
#undef MPTUNE_NO_WARPS
};
}  // namespace mptune_warps

#else

#if defined(MPTUNE_LAYER)
#define MPTUNE_COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define MPTUNE_UNROLL
#endif

namespace mptune_warps {

template <int Size>
struct mask_of {
    using type = unsigned;
};
template <>
struct mask_of<64> {
    using type = unsigned long long;
};

// The bits of a value in words of 32 bits, each of which an operation replaces.
template <class T, class Operation>
MPTUNE_INLINE T by_words(T value, Operation operation) {
    constexpr int words = (sizeof(T) + 3) / 4;
    unsigned held[words] = {};
    MPTUNE_COPY(held, &value, sizeof(T));
    MPTUNE_UNROLL
    for (int i = 0; i < words; ++i) held[i] = operation(held[i], i);
    MPTUNE_COPY(&value, held, sizeof(T));
    return value;
}
template <class T>
MPTUNE_INLINE bool are_same(T one, T other) {
    unsigned held[(sizeof(T) + 3) / 4] = {};
    bool are = true;
    MPTUNE_COPY(held, &one, sizeof(T));
    by_words(other, [&](unsigned word, int i) { return are &= held[i] == word, word; });
    return are;
}

template <int Size>
struct warp {
    using lanes = typename mask_of<Size>::type;

    // -- what differs: the thread's number, reading from another one, and votes ------------------------------------------

#if defined(MPTUNE_CUDA)
    static_assert(Size == 32, "this source was written for warps of 64 threads, and CUDA has 32");
    static MPTUNE_INLINE lanes activemask(int = 0) { return ::__activemask(); }
    static MPTUNE_INLINE void syncwarp(lanes mask = ~lanes(0)) { ::__syncwarp(mask); }
    static MPTUNE_INLINE lanes ballot_sync(lanes mask, int is) { return ::__ballot_sync(mask, is); }
    static MPTUNE_INLINE lanes ballot(int is) { return ::__ballot_sync(::__activemask(), is); }
#define MPTUNE_SHUFFLE(name, By, from)                                                                          \
    template <class T>                                                                                          \
    static MPTUNE_INLINE T name##_sync(lanes mask, T value, By by, int width = Size) {                          \
        return by_words(value, [=](unsigned word, int) { return ::__##name##_sync(mask, word, by, width); });        \
    }                                                                                                           \
    template <class T>                                                                                          \
    static MPTUNE_INLINE T name(T value, By by, int width = Size) {                                             \
        return name##_sync(activemask(), value, by, width);                                                     \
    }
#else
#if defined(MPTUNE_HIP)
    static MPTUNE_INLINE unsigned first() { return ::__lane_id() / Size * Size; }
    static MPTUNE_INLINE unsigned self() { return ::__lane_id() % Size; }
    template <class T>
    static MPTUNE_INLINE T read(lanes, T value, unsigned source, int) {
        const int place = static_cast<int>((first() + source) * 4);
        return by_words(value, [=](unsigned word, int) {
            return static_cast<unsigned>(__builtin_amdgcn_ds_bpermute(place, static_cast<int>(word)));
        });
    }
    static MPTUNE_INLINE lanes ballot(int is) { return static_cast<lanes>(::__ballot(is) >> first()); }
    static MPTUNE_INLINE lanes ballot_sync(lanes mask, int is) { return ballot(is) & mask; }
    static MPTUNE_INLINE lanes activemask(int = 0) { return ballot(1); }
    static MPTUNE_INLINE void syncwarp(lanes = 0) {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
        __builtin_amdgcn_wave_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
    }
#elif defined(MPTUNE_OPENCL)
    static MPTUNE_INLINE unsigned first() { return get_sub_group_local_id() / Size * Size; }
    static MPTUNE_INLINE unsigned self() { return get_sub_group_local_id() % Size; }
    template <class T>
    static MPTUNE_INLINE T read(lanes, T value, unsigned source, int) {
        const unsigned place = first() + source;
        return by_words(value, [=](unsigned word, int) { return sub_group_shuffle(word, place); });
    }
    static MPTUNE_INLINE lanes ballot(int is) {
        const uint4 bits = sub_group_ballot(is != 0);
        return static_cast<lanes>((static_cast<unsigned long>(bits.y) << 32 | bits.x) >> first());
    }
    static MPTUNE_INLINE lanes ballot_sync(lanes mask, int is) { return ballot(is) & mask; }
    static MPTUNE_INLINE lanes activemask(int = 0) { return ballot(1); }
    static MPTUNE_INLINE void syncwarp(lanes = 0) { sub_group_barrier(mptune_opencl::all_memory); }
#else
    static MPTUNE_INLINE unsigned self() {
        return static_cast<unsigned>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % Size;
    }
    template <class T>
    static __attribute__((noinline)) T read(lanes mask, T value, unsigned source, int site) {
        static_assert(sizeof(T) <= 16, "a value of at most 16 bytes can be exchanged in a warp");
        using mptune_host::count_exchange;
        count_exchange(value, 0);
        mptune_host::lane& own = mptune_host::own_lane();
        __builtin_memcpy(own.given, static_cast<const void*>(&value), sizeof(T));
        own.source = source;
        mptune_host::gather(Size, mask, site, mptune_host::settle_shuffle);
        __builtin_memcpy(static_cast<void*>(&value), own.found, sizeof(T));
        return value;
    }
    static __attribute__((noinline)) lanes ballot_sync(lanes mask, int is, int site = 0) {
        mptune_host::lane& own = mptune_host::own_lane();
        own.given[0] = is != 0;
        mptune_host::gather(Size, mask, site, mptune_host::settle_ballot);
        lanes found;
        __builtin_memcpy(&found, own.found, sizeof found);
        return found;
    }
    static MPTUNE_INLINE lanes ballot(int is, int site = MPTUNE_HERE) { return ballot_sync(0, is, site); }
    static MPTUNE_INLINE lanes activemask(int site = MPTUNE_HERE) { return ballot_sync(0, 1, site); }
    static MPTUNE_INLINE void syncwarp(lanes mask = ~lanes(0)) {
        __asm__ volatile("" ::: "memory");
        mptune_host::gather(Size, mask, 0, mptune_host::settle_nothing);
        __asm__ volatile("" ::: "memory");
    }
#endif
#define MPTUNE_SHUFFLE(name, By, from)                                                                          \
    template <class T>                                                                                          \
    static MPTUNE_INLINE T name##_sync(lanes mask, T value, By by, int width = Size, int site = 0) {            \
        const unsigned own = self(), segment = static_cast<unsigned>(width) - 1;                                \
        return read(mask, value, from, site);                                                                   \
    }                                                                                                           \
    template <class T>                                                                                          \
    static MPTUNE_INLINE T name(T value, By by, int width = Size, int site = MPTUNE_HERE) {                     \
        return name##_sync(0, value, by, width, site);                                                          \
    }
#endif
    MPTUNE_SHUFFLE(shfl, int, (own & ~segment) + (static_cast<unsigned>(by) & segment))
    MPTUNE_SHUFFLE(shfl_up, unsigned, (own & segment) >= by ? own - by : own)
    MPTUNE_SHUFFLE(shfl_down, unsigned, (own & segment) + by <= segment ? own + by : own)
    MPTUNE_SHUFFLE(shfl_xor, int, ((own ^ by) & ~segment) <= (own & ~segment) ? (own ^ by) % Size : own)
#undef MPTUNE_SHUFFLE

    // -- what follows from that --------------------------------------------------------------------------------------------

    static MPTUNE_INLINE int any_sync(lanes mask, int is) { return ballot_sync(mask, is) != 0; }
    static MPTUNE_INLINE int all_sync(lanes mask, int is) { return ballot_sync(mask, is == 0) == 0; }
    static MPTUNE_INLINE int any(int is, int site = MPTUNE_HERE) { return ballot_at(is, site) != 0; }
    static MPTUNE_INLINE int all(int is, int site = MPTUNE_HERE) { return ballot_at(is == 0, site) == 0; }

    template <class T>
    static MPTUNE_INLINE lanes match_any_sync(lanes mask, T value) {
        lanes found = 0;
#if defined(MPTUNE_CUDA)
        found = mask;
        by_words(value, [&](unsigned word, int) { return found &= ::__match_any_sync(mask, word), word; });
#else
        fold(mask, value, [&](T other, int from) {
            if (are_same(other, value)) found |= lanes(1) << from;
        });
#endif
        return found;
    }
    template <class T>
    static MPTUNE_INLINE lanes match_all_sync(lanes mask, T value, int* are_all) {
        const lanes there = ballot_sync(mask, 1);
        *are_all = match_any_sync(mask, value) == there;
        return *are_all ? there : 0;
    }

#define MPTUNE_REDUCTION(name, expression)                                                                      \
    template <class T>                                                                                          \
    static MPTUNE_INLINE T reduce_##name##_sync(lanes mask, T value) {                                          \
        bool is_first = true;                                                                                   \
        T found = value;                                                                                        \
        fold(mask, value, [&](T other, int) {                                                                   \
            found = is_first ? other : static_cast<T>(expression);                                              \
            is_first = false;                                                                                   \
        });                                                                                                     \
        return found;                                                                                           \
    }
    MPTUNE_REDUCTION(add, found + other)
    MPTUNE_REDUCTION(min, other < found ? other : found)
    MPTUNE_REDUCTION(max, found < other ? other : found)
    MPTUNE_REDUCTION(and, found & other)
    MPTUNE_REDUCTION(or, found | other)
    MPTUNE_REDUCTION(xor, found ^ other)
#undef MPTUNE_REDUCTION

  private:
    static MPTUNE_INLINE lanes ballot_at(int is, [[maybe_unused]] int site) {
#if defined(MPTUNE_HOST)
        return ballot(is, site);
#else
        return ballot(is);
#endif
    }
    // Calls a function with the value of each thread of a mask in turn.
    template <class T, class F>
    static MPTUNE_INLINE void fold(lanes mask, T value, F function) {
        for (lanes left = ballot_sync(mask, 1); left != 0; left &= left - 1) {
#if defined(MPTUNE_CUDA)
            const int from = ::__ffs(left) - 1;
#else
            const int from = __builtin_ctzll(left);
#endif
            function(shfl_sync(mask, value, from), from);
        }
    }
};

#if defined(MPTUNE_HOST)
// In phases (phases.hpp) all threads of a block give a value before any of them takes one. There is room before and behind
// them, so that neighbours are read in vectors, whether or not they are of the same warp.
template <int K, class T>
T* given() {
    alignas(64) static thread_local T of[64 + 1024 + 64];
    return of + 64;
}
template <int K, class T>
MPTUNE_INLINE void give(unsigned thread, T value) {
    using mptune_host::count_exchange;
    count_exchange(value, 0);
    given<K, T>()[thread] = value;
}
template <int K, int Size>
struct taken {
    unsigned thread;

    template <class T>
    MPTUNE_INLINE T of__shfl(T, int by, int width = Size) const {
        const unsigned segment = static_cast<unsigned>(width) - 1;
        return given<K, T>()[(thread & ~segment) + (static_cast<unsigned>(by) & segment)];
    }
    template <class T>
    MPTUNE_INLINE T of__shfl_up(T, unsigned by, int width = Size) const {
        const T* const own = given<K, T>() + thread;
        const T other = own[-static_cast<long>(by % Size)], mine = *own;
        return (thread & (static_cast<unsigned>(width) - 1)) >= by ? other : mine;
    }
    template <class T>
    MPTUNE_INLINE T of__shfl_down(T, unsigned by, int width = Size) const {
        const T* const own = given<K, T>() + thread;
        const T other = own[by % Size], mine = *own;
        const unsigned segment = static_cast<unsigned>(width) - 1;
        return (thread & segment) + by <= segment ? other : mine;
    }
    template <class T>
    MPTUNE_INLINE T of__shfl_xor(T, int by, int width = Size) const {
        const T* const own = given<K, T>() + thread;
        const unsigned bits = static_cast<unsigned>(by) % Size, segment = static_cast<unsigned>(width) - 1;
        if (bits & (bits - 1)) return ((thread ^ bits) & ~segment) <= (thread & ~segment) ? given<K, T>()[thread ^ bits] : *own;
        const T above = own[bits], below = own[-static_cast<long>(bits)], mine = *own;
        return thread & bits ? below : bits <= segment ? above : mine;
    }
#define MPTUNE_SYNC(name, By)                                                                                   \
    template <class T>                                                                                          \
    MPTUNE_INLINE T of__##name##_sync(unsigned long long, T value, By by, int width = Size) const {             \
        return of__##name(value, by, width);                                                                    \
    }
    MPTUNE_SYNC(shfl, int)
    MPTUNE_SYNC(shfl_up, unsigned)
    MPTUNE_SYNC(shfl_down, unsigned)
    MPTUNE_SYNC(shfl_xor, int)
#undef MPTUNE_SYNC
};

// Neighbours in a row of threads: from column to column, and the number of the row's first thread.
struct row {
    int first, last, y, z, number;

    template <class Extents>
    MPTUNE_INLINE Extents thread(int x, Extents block) const {
        using T = decltype(block.x);
        block.x = static_cast<T>(x);
        block.y = static_cast<T>(y);
        block.z = static_cast<T>(z);
        return block;
    }
};
struct rows {
    int count = 0;
    row of[512];
    const row* begin() const { return of; }
    const row* end() const { return of + count; }
};
// Returns the threads of a block of which something is true.
template <class Extents, class F>
inline rows rows_of(const Extents& block, F is_one) {
    rows found;
    const int width = static_cast<int>(block.x), height = static_cast<int>(block.y), depth = static_cast<int>(block.z);
    for (int z = 0; z < depth; ++z) {
        for (int y = 0; y < height; ++y) {
            row one{0, 0, y, z, (z * height + y) * width};
            alignas(64) bool are[1024 + 8];
            for (int x = 0; x < width; ++x) are[x] = is_one(one.thread(x, block), one.number + x);
            for (int x = 0; x < 8; ++x) are[width + x] = false;
            // Eight at a time, as long as they are alike.
            const auto skip = [&](int x, unsigned long long alike) {
                for (unsigned long long eight; x < width; x += 8) {
                    __builtin_memcpy(&eight, are + x, sizeof eight);
                    if (eight != alike) return x + (__builtin_ctzll(eight ^ alike) >> 3);
                }
                return width;
            };
            for (;;) {
                one.first = skip(one.last, 0);
                if (one.first >= width) break;
                one.last = skip(one.first, 0x0101010101010101ull);
                found.of[found.count++] = one;
            }
        }
    }
    return found;
}
#endif

}  // namespace mptune_warps

#endif

// A shuffle in phases: MPTUNE_GIVE in one of them, and in the next one MPTUNE_SHUFFLED in place of the function's name.
// MPTUNE_THOSE(name, how a thread knows whether it is one) and MPTUNE_EACH_OF(name) {...}: a piece for some threads only.
#if defined(MPTUNE_HOST)
#if defined(MPTUNE_LAYER)
#define MPTUNE_NUMBER mptune_thread
#define MPTUNE_IN_ANY_ORDER MPTUNE_THREADS_IN_ANY_ORDER
#else
#define MPTUNE_NUMBER thread
#define MPTUNE_IN_ANY_ORDER MPTUNE_INDEPENDENT_ITERATIONS
#endif
#define MPTUNE_THOSE(name, ...)                                                                                     \
    const auto name = ::mptune_warps::rows_of(                                                                      \
        blockDim, [&]([[maybe_unused]] const auto threadIdx, [[maybe_unused]] const int MPTUNE_NUMBER) -> bool {    \
            __VA_ARGS__                                                                                             \
        });
#define MPTUNE_EACH_OF(name)                                                                                        \
    for (const auto& mptune_row : name)                                                                             \
        MPTUNE_IN_ANY_ORDER                                                                                         \
        for (int mptune_x = mptune_row.first; mptune_x < mptune_row.last; ++mptune_x)                               \
            if ([[maybe_unused]] const auto threadIdx = mptune_row.thread(mptune_x, blockDim); true)                \
                if ([[maybe_unused]] const int MPTUNE_NUMBER = mptune_row.number + mptune_x; true)
#define MPTUNE_GIVE(k, thread, ...) ::mptune_warps::give<k>(thread, __VA_ARGS__)
#define MPTUNE_SHUFFLED(k, thread, name, ...) \
    ::mptune_warps::taken<k, MPTUNE_WARP_SIZE>{static_cast<unsigned>(thread)}.of##name(__VA_ARGS__)
#define MPTUNE_SYNCWARP(...) static_assert(true)
#else
#define MPTUNE_THOSE(name, ...)                                                                                     \
    const bool name = [&]() -> bool {                                                                               \
        [[maybe_unused]] const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;    \
        __VA_ARGS__                                                                                                 \
    }();
#define MPTUNE_EACH_OF(name) PIECE if (name)
#define MPTUNE_GIVE(k, thread, ...) static_cast<void>(0)
#define MPTUNE_SHUFFLED(k, thread, name, ...) name(__VA_ARGS__)
#define MPTUNE_SYNCWARP(...) __syncwarp(__VA_ARGS__)
#endif

#if !defined(MPTUNE_LAYER)
// Words of templates. Each use advances __COUNTER__: the threads of the kernel must be able to wait for each other.
#if defined(MPTUNE_HOST)
namespace mptune_warps {
template <int, int Size>
using at = warp<Size>;
template <int>
struct block {
    static int count(int is) { return static_cast<int>(mptune_host::votes(is != 0)); }
    static int all(int is) { return mptune_host::votes(is == 0) == 0; }
    static int any(int is) { return mptune_host::votes(is != 0) != 0; }
};
}  // namespace mptune_warps
#define MPTUNE_WARP ::mptune_warps::at<__COUNTER__, MPTUNE_WARP_SIZE>
#define __syncthreads_count(...) ::mptune_warps::block<__COUNTER__>::count(__VA_ARGS__)
#define __syncthreads_and(...) ::mptune_warps::block<__COUNTER__>::all(__VA_ARGS__)
#define __syncthreads_or(...) ::mptune_warps::block<__COUNTER__>::any(__VA_ARGS__)
#else
#define MPTUNE_WARP ::mptune_warps::warp<MPTUNE_WARP_SIZE>
#endif
#if defined(MPTUNE_OPENCL)
#define __syncthreads_count(...) work_group_reduce_add(static_cast<int>((__VA_ARGS__) != 0))
#define __syncthreads_and(...) (work_group_reduce_min(static_cast<int>((__VA_ARGS__) != 0)) != 0)
#define __syncthreads_or(...) (work_group_reduce_max(static_cast<int>((__VA_ARGS__) != 0)) != 0)
// What is asked of masks.
MPTUNE_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
MPTUNE_INLINE int __popcll(unsigned long x) { return __builtin_popcountl(x); }
MPTUNE_INLINE int __ffs(int x) { return __builtin_ffs(x); }
MPTUNE_INLINE int __ffsll(long x) { return __builtin_ffsl(x); }
MPTUNE_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
MPTUNE_INLINE int __clzll(long x) { return x == 0 ? 64 : __builtin_clzl(static_cast<unsigned long>(x)); }
#endif
#define warpSize MPTUNE_WARP_SIZE
#define __activemask(...) MPTUNE_WARP::activemask(__VA_ARGS__)
#define __syncwarp(...) MPTUNE_WARP::syncwarp(__VA_ARGS__)
#define __shfl(...) MPTUNE_WARP::shfl(__VA_ARGS__)
#define __shfl_up(...) MPTUNE_WARP::shfl_up(__VA_ARGS__)
#define __shfl_down(...) MPTUNE_WARP::shfl_down(__VA_ARGS__)
#define __shfl_xor(...) MPTUNE_WARP::shfl_xor(__VA_ARGS__)
#define __shfl_sync(...) MPTUNE_WARP::shfl_sync(__VA_ARGS__)
#define __shfl_up_sync(...) MPTUNE_WARP::shfl_up_sync(__VA_ARGS__)
#define __shfl_down_sync(...) MPTUNE_WARP::shfl_down_sync(__VA_ARGS__)
#define __shfl_xor_sync(...) MPTUNE_WARP::shfl_xor_sync(__VA_ARGS__)
#define __ballot(...) MPTUNE_WARP::ballot(__VA_ARGS__)
#define __any(...) MPTUNE_WARP::any(__VA_ARGS__)
#define __all(...) MPTUNE_WARP::all(__VA_ARGS__)
#define __ballot_sync(...) MPTUNE_WARP::ballot_sync(__VA_ARGS__)
#define __any_sync(...) MPTUNE_WARP::any_sync(__VA_ARGS__)
#define __all_sync(...) MPTUNE_WARP::all_sync(__VA_ARGS__)
#define __match_any_sync(...) MPTUNE_WARP::match_any_sync(__VA_ARGS__)
#define __match_all_sync(...) MPTUNE_WARP::match_all_sync(__VA_ARGS__)
#define __reduce_add_sync(...) MPTUNE_WARP::reduce_add_sync(__VA_ARGS__)
#define __reduce_min_sync(...) MPTUNE_WARP::reduce_min_sync(__VA_ARGS__)
#define __reduce_max_sync(...) MPTUNE_WARP::reduce_max_sync(__VA_ARGS__)
#define __reduce_and_sync(...) MPTUNE_WARP::reduce_and_sync(__VA_ARGS__)
#define __reduce_or_sync(...) MPTUNE_WARP::reduce_or_sync(__VA_ARGS__)
#define __reduce_xor_sync(...) MPTUNE_WARP::reduce_xor_sync(__VA_ARGS__)
#endif
