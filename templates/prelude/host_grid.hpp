// Runs a grid: blocks are handed out to a pool of threads, the threads of a block run one after the other in a loop
// the compiler may vectorise or, where the kernel has barriers, as fibers.

#if defined(MPTUNE_HOST)

extern "C" {
struct mptune_timespec {
    long seconds, nanoseconds;
};
int mptune_clock_gettime(int, mptune_timespec*) __asm__("clock_gettime");
int mptune_pthread_create(unsigned long*, const void*, void* (*)(void*), void*) __asm__("pthread_create");
int mptune_pthread_join(unsigned long, void**) __asm__("pthread_join");
int mptune_sched_yield() __asm__("sched_yield");
int mptune_getpid() __asm__("getpid");
#if defined(__linux__)
int mptune_sched_getaffinity(int, unsigned long, void*) __asm__("sched_getaffinity");
int mptune_sched_setaffinity(int, unsigned long, const void*) __asm__("sched_setaffinity");
#endif
int mptune_sem_init(void*, int, unsigned) __asm__("sem_init");
int mptune_sem_post(void*) __asm__("sem_post");
int mptune_sem_wait(void*) __asm__("sem_wait");
}

#if defined(__clang__)
#define MPTUNE_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPTUNE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

MPTUNE_ONCE_A_LAUNCH

namespace mptune_host {

// What mptune_launch returns instead of a time.
enum failure : long long { no_threads = -1, no_memory = -2, wrong_block = -3 };

struct worker;

// One launch. Workers take `chunk` blocks at a time from `next` until `blocks` are gone.
struct job {
    void** arguments;
    dim3 grid, block;
    unsigned long long blocks, chunk, next;
    bool (*prepare)(job&, worker&);
    void (*run)(job&, worker&);
};

// Processors a thread may run on.
struct processors {
    unsigned long bits[128];

    // Those of the calling thread; none where the system does not say.
    static processors of_this_thread() {
        processors set{};
#if defined(__linux__)
        mptune_sched_getaffinity(0, sizeof set, &set);
#endif
        return set;
    }

    unsigned count() const {
        unsigned sum = 0;
        for (unsigned long word : bits) sum += __builtin_popcountl(word);
        return sum;
    }

    // The n-th of them alone; there must be as many.
    processors only(unsigned n) const {
        processors one{};
        for (unsigned i = 0;; ++i) {
            unsigned long word = bits[i];
            for (; word != 0; word &= word - 1, --n) {
                if (n == 0) {
                    one.bits[i] = word & -word;
                    return one;
                }
            }
        }
    }

    void hold_this_thread() const {
#if defined(__linux__)
        mptune_sched_setaffinity(0, sizeof *this, this);
#endif
    }
};

struct alignas(128) worker {
    unsigned long thread;
    processors home;
    job* work;
    bool prepared, running;
    void* shared;
    unsigned long shared_bytes;
    block_of_fibers fibers;
    alignas(16) unsigned char wake[64];  // a sem_t
};

struct pool {
    worker* workers;
    unsigned count;
    int process;
    unsigned ready, finished;
    bool go, stop;
    // A thread that is woken tends to be put on the processor of the one that wakes it, and to stay there for the few
    // milliseconds a launch takes. With a worker for each processor, each keeps to its own.
    bool at_home;
};
static pool threads;

inline long long now_ns() {
    constexpr int monotonic = 1;
    mptune_timespec time;
    mptune_clock_gettime(monotonic, &time);
    return time.seconds * 1000000000ll + time.nanoseconds;
}

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Spins until *counter is `wanted`; after a while gives the processor to whoever needs it to get there.
template <class T>
inline void spin_until(const T* counter, T wanted) {
    for (unsigned spins = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) != wanted; ++spins) {
        if (spins < 1000) pause();
        else mptune_sched_yield();
    }
}

inline bool prepare_worker(job& work, worker& self, unsigned long shared_bytes) {
    if (self.shared_bytes < shared_bytes) {
        if (self.shared != nullptr) mptune_munmap(self.shared, self.shared_bytes);
        self.shared = map_pages(shared_bytes);
        self.shared_bytes = self.shared != nullptr ? shared_bytes : 0;
        if (self.shared == nullptr) return false;
    }
    return work.prepare(work, self);
}

inline void* worker_main(void* argument) {
    worker& self = *static_cast<worker*>(argument);
    if (threads.at_home) self.home.hold_this_thread();
    for (;;) {
        while (mptune_sem_wait(self.wake) != 0) {
        }
        if (threads.stop) return nullptr;
        job& work = *self.work;
        __atomic_fetch_add(&threads.ready, 1u, __ATOMIC_RELEASE);
        spin_until(&threads.go, true);
        dynamic_shared = self.shared;
        work.run(work, self);
        __atomic_fetch_add(&threads.finished, 1u, __ATOMIC_RELEASE);
    }
}

inline void release_worker(worker& self) {
    self.fibers.release();
    if (self.shared != nullptr) mptune_munmap(self.shared, self.shared_bytes);
}

inline void release_pool() {
    if (threads.workers == nullptr) return;
    // A forked child has the pool's memory but not its threads.
    if (threads.process == mptune_getpid()) {
        threads.stop = true;
        for (unsigned i = 1; i < threads.count; ++i) mptune_sem_post(threads.workers[i].wake);
        for (unsigned i = 1; i < threads.count; ++i) mptune_pthread_join(threads.workers[i].thread, nullptr);
    }
    for (unsigned i = 0; i < threads.count; ++i) release_worker(threads.workers[i]);
    mptune_munmap(threads.workers, sizeof(worker) * threads.count);
    threads = pool{};
}

// Makes the pool `count` workers strong, the calling thread being the first.
inline bool start_pool(unsigned count) {
    if (threads.workers != nullptr && threads.count == count && threads.process == mptune_getpid()) return true;
    release_pool();
    threads.workers = static_cast<worker*>(map_pages(sizeof(worker) * count));
    if (threads.workers == nullptr) return false;
    threads.process = mptune_getpid();
    const processors allowed = processors::of_this_thread();
    threads.at_home = allowed.count() == count && count > 1;
    for (unsigned i = 0; threads.at_home && i < count; ++i) threads.workers[i].home = allowed.only(i);
    for (threads.count = 1; threads.count < count; ++threads.count) {
        worker& added = threads.workers[threads.count];
        mptune_sem_init(added.wake, 0, 0);
        if (mptune_pthread_create(&added.thread, nullptr, worker_main, &added) != 0) {
            release_pool();
            return false;
        }
    }
    return true;
}

// Runs a job on all workers; the time runs from when every thread waits for the start until the last block is done.
inline long long run_job(job& work, unsigned long shared_bytes, unsigned workers) {
    if (!start_pool(workers)) return no_threads;
    for (unsigned i = 0; i < workers; ++i) {
        threads.workers[i].work = &work;
        if (!prepare_worker(work, threads.workers[i], shared_bytes)) return no_memory;
    }
    threads.ready = threads.finished = 0;
    threads.go = false;
    const processors before = threads.at_home ? processors::of_this_thread() : processors{};
    if (threads.at_home) threads.workers[0].home.hold_this_thread();
    for (unsigned i = 1; i < workers; ++i) mptune_sem_post(threads.workers[i].wake);
    spin_until(&threads.ready, workers - 1);
    dynamic_shared = threads.workers[0].shared;
    const long long start = now_ns();
    __atomic_store_n(&threads.go, true, __ATOMIC_RELEASE);
    work.run(work, threads.workers[0]);
    spin_until(&threads.finished, workers - 1);
    const long long elapsed = now_ns() - start;
    if (threads.at_home) before.hold_this_thread();
    return elapsed > 0 ? elapsed : 1;
}

}  // namespace mptune_host

MPTUNE_OFTEN

namespace mptune_host {

// The block's extents where the source fixes them, so that the thread loop has a constant length; else zeros.
template <int X = 0, int Y = 1, int Z = 1>
struct fixed_block {
    static constexpr bool known = X > 0;
    static __forceinline__ dim3 extents(const job& work) {
        if constexpr (known) return dim3{X, Y, Z};
        else return work.block;
    }
};

// Hands `block` every block this worker gets, with blockIdx set.
template <class Block>
__forceinline__ void for_each_block(job& work, Block block) {
    gridDim = work.grid;
    for (;;) {
        const unsigned long long first = __atomic_fetch_add(&work.next, work.chunk, __ATOMIC_RELAXED);
        if (first >= work.blocks) return;
        const unsigned long long last = first + work.chunk < work.blocks ? first + work.chunk : work.blocks;
        const unsigned long long row = first / work.grid.x;
        dim3 index{static_cast<int>(first % work.grid.x), static_cast<int>(row % work.grid.y),
                   static_cast<int>(row / work.grid.y)};
        for (unsigned long long i = first; i < last; ++i) {
            blockIdx = index;
            block();
            if (++index.x == work.grid.x) {
                index.x = 0;
                if (++index.y == work.grid.y) {
                    index.y = 0;
                    ++index.z;
                }
            }
        }
    }
}

template <class T>
__forceinline__ T& argument(void** arguments, unsigned i) {
    return *static_cast<T*>(arguments[i]);
}

template <unsigned... I>
struct indices {};
template <unsigned N, unsigned... I>
struct indices_to : indices_to<N - 1, N - 1, I...> {};
template <unsigned... I>
struct indices_to<0, I...> {
    using type = indices<I...>;
};

// A grid whose threads run one after the other. `Kernel` stands for the kernel and inlines it, `A` are its parameters.
template <class Kernel, class Block, class... A>
struct grid_of_loops {
    static bool prepare(job&, worker&) { return true; }

    static __attribute__((flatten)) void run(job& work, worker&) {
        run_with(work, typename indices_to<sizeof...(A)>::type());
    }

    template <unsigned... I>
    static __forceinline__ void run_with(job& work, indices<I...>) {
        loop(work, argument<A>(work.arguments, I)...);
    }

    static __forceinline__ void loop(job& work, A... arguments) {
        const dim3 extents = Block::extents(work);
        for_each_block(work, [&]() __attribute__((always_inline)) {
            blockDim = extents;
            for (int z = 0; z < extents.z; ++z) {
                for (int y = 0; y < extents.y; ++y) {
                    // Counting in indices of the grid, a guard like `if (blockIdx.x * blockDim.x + threadIdx.x < n)`
                    // compares the counter itself: g++ then cuts the loop at n instead of masking every iteration,
                    // whose conditional index arithmetic would turn contiguous loads into gathers.
                    const int first = blockIdx.x * blockDim.x;
                    MPTUNE_INDEPENDENT_ITERATIONS
                    for (int x = first; x < first + extents.x; ++x) {
                        threadIdx = dim3{x - first, y, z};
                        Kernel::call(arguments...);
                    }
                }
            }
        });
    }
};

// A grid whose threads can wait for each other.
template <class Kernel, class Block, class... A>
struct grid_of_fibers {
    static bool prepare(job& work, worker& self) { return self.fibers.prepare(work.block, thread, &work); }

    static void run(job& work, worker& self) {
        blockDim = Block::extents(work);
        for_each_block(work, [&]() { self.fibers.run(); });
    }

    static __attribute__((flatten)) void thread() {
        call_with(static_cast<job*>(active_block->argument)->arguments, typename indices_to<sizeof...(A)>::type());
    }

    template <unsigned... I>
    static __forceinline__ void call_with(void** arguments, indices<I...>) {
        Kernel::call(argument<A>(arguments, I)...);
    }
};

template <class Grid, class Block>
inline long long launch(void** arguments, const unsigned* grid, const unsigned* block, unsigned shared_bytes,
                        unsigned workers) {
    job work{};
    work.arguments = arguments;
    work.grid = dim3{static_cast<int>(grid[0]), static_cast<int>(grid[1]), static_cast<int>(grid[2])};
    work.block = dim3{static_cast<int>(block[0]), static_cast<int>(block[1]), static_cast<int>(block[2])};
    if constexpr (Block::known) {
        const dim3 fixed = Block::extents(work);
        if (fixed.x != work.block.x || fixed.y != work.block.y || fixed.z != work.block.z) return wrong_block;
    }
    work.blocks = static_cast<unsigned long long>(grid[0]) * grid[1] * grid[2];
    const unsigned long long share = work.blocks / (16ull * workers);
    work.chunk = share > 0 ? share : 1;
    work.prepare = Grid::prepare;
    work.run = Grid::run;
    return run_job(work, shared_bytes, workers);
}

template <class Kernel, class Block, bool HasBarriers, class... A>
inline long long launch_as(void (*)(A...), void** arguments, const unsigned* grid, const unsigned* block,
                           unsigned shared_bytes, unsigned workers) {
    if constexpr (HasBarriers)
        return launch<grid_of_fibers<Kernel, Block, A...>, Block>(arguments, grid, block, shared_bytes, workers);
    else
        return launch<grid_of_loops<Kernel, Block, A...>, Block>(arguments, grid, block, shared_bytes, workers);
}

// What the launching side checks its arguments against: bytes of every parameter, negative for a pointer.
template <class T>
constexpr int parameter_code = sizeof(T);
template <class T>
constexpr int parameter_code<T*> = -static_cast<int>(sizeof(T*));
template <class... A>
inline unsigned describe(void (*)(A...), int* codes) {
    constexpr int table[] = {parameter_code<A>..., 0};
    for (unsigned i = 0; i < sizeof...(A); ++i) codes[i] = table[i];
    return sizeof...(A);
}

}  // namespace mptune_host

// Makes the library that holds kernel `name` launchable: MPTUNE_HOST_ENTRY(name), or MPTUNE_HOST_ENTRY(name, x, y, z)
// where the block is the same in every launch.
#define MPTUNE_HOST_ENTRY(name, ...)                                                                               \
    namespace mptune_host {                                                                                        \
    constexpr bool has_barriers = __COUNTER__ - counter_before_kernel > 1;                                         \
    constexpr decltype(&::name) signature = nullptr;                                                               \
    using block_shape = fixed_block<__VA_ARGS__>;                                                                  \
    struct kernel {                                                                                                \
        template <class... A>                                                                                      \
        static __forceinline__ void call(A... arguments) {                                                         \
            ::name(arguments...);                                                                                  \
        }                                                                                                          \
    };                                                                                                             \
    }                                                                                                              \
    extern "C" __attribute__((visibility("default"))) long long mptune_launch(                                     \
        void** arguments, const unsigned* grid, const unsigned* block, unsigned shared_bytes, unsigned workers) {  \
        return mptune_host::launch_as<mptune_host::kernel, mptune_host::block_shape, mptune_host::has_barriers>(   \
            mptune_host::signature, arguments, grid, block, shared_bytes, workers);                                \
    }                                                                                                              \
    extern "C" __attribute__((visibility("default"))) unsigned mptune_describe(int* codes) {                       \
        return mptune_host::describe(mptune_host::signature, codes);                                               \
    }                                                                                                              \
    extern "C" __attribute__((visibility("default"))) void mptune_release() { mptune_host::release_pool(); }

#endif
