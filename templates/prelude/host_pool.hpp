// The threads a grid runs on: blocks are handed out to a pool of them.

#if defined(MPTUNE_HOST)

namespace mptune_host {

// What mptune_launch returns instead of a time.
enum failure : long long { no_threads = -1, no_memory = -2, wrong_block = -3 };

struct job;

// What a worker keeps from block to block.
struct worker {
    block_of_fibers fibers;
};

// Neighbouring blocks: `count` from `first` on along x.
struct row {
    dim3 first;
    int count;
};

// What the pool knows of a kernel.
struct entry {
    bool (*prepare)(job&, worker&);  // before a launch, if not null; false where there is no memory
    void (*run)(job&, worker&, row);
    dim3 block;  // the extents it was compiled for; zeros for any
    unsigned parameters;
    const int* codes;  // of the parameters: bytes, negative for a pointer
};

// One launch. Workers take `chunk` blocks at a time from `next` until `blocks` are gone.
struct job {
    const entry* kernel;
    void** arguments;
    dim3 grid, block;
    unsigned long long blocks, chunk, next;
    bool is_long;  // whether other tasks are likely to take a processor away meanwhile
};

// Runs a grid on so many workers; the time in ns runs from when every thread waits for the start until the last block is
// done, or is what that takes where no other task takes a processor away. A failure instead where there is one. Threads
// that launch at once take turns.
MPTUNE_RUNTIME long long launch(const entry& kernel, void** arguments, const unsigned* grid, const unsigned* block,
                                unsigned shared_bytes, unsigned workers);

// Gives what the launching side checks its arguments against: the codes of the parameters, and how many there are.
MPTUNE_RUNTIME unsigned describe(const entry& kernel, int* codes);

// Ends the threads; the next job starts them again.
MPTUNE_RUNTIME void release_pool();

#if defined(MPTUNE_RUNTIME_APART)
// The kernel of the library; MPTUNE_HOST_ENTRY defines it.
extern __attribute__((visibility("hidden"))) const entry launched;
#endif

}  // namespace mptune_host

// What a library shows: where the runtime is apart, part of it.
#define MPTUNE_ENTRY_POINTS                                                                                        \
    extern "C" __attribute__((visibility("default"))) long long mptune_launch(                                     \
        void** arguments, const unsigned* grid, const unsigned* block, unsigned shared_bytes, unsigned workers) {  \
        return mptune_host::launch(mptune_host::launched, arguments, grid, block, shared_bytes, workers);          \
    }                                                                                                              \
    extern "C" __attribute__((visibility("default"))) unsigned mptune_describe(int* codes) {                       \
        return mptune_host::describe(mptune_host::launched, codes);                                                \
    }                                                                                                              \
    extern "C" __attribute__((visibility("default"))) void mptune_release() { mptune_host::release_pool(); }

#if MPTUNE_RUNTIME_HERE

extern "C" {
struct mptune_timespec {
    long seconds, nanoseconds;
};
int mptune_clock_gettime(int, mptune_timespec*) __asm__("clock_gettime");
int mptune_pthread_create(unsigned long*, const void*, void* (*)(void*), void*) __asm__("pthread_create");
int mptune_pthread_join(unsigned long, void**) __asm__("pthread_join");
int mptune_sched_yield() __asm__("sched_yield");
int mptune_usleep(unsigned) __asm__("usleep");
int mptune_getpid() __asm__("getpid");
#if defined(__linux__)
int mptune_getrusage(int, void*) __asm__("getrusage");
int mptune_sched_getaffinity(int, unsigned long, void*) __asm__("sched_getaffinity");
int mptune_sched_setaffinity(int, unsigned long, const void*) __asm__("sched_setaffinity");
#endif
int mptune_sem_init(void*, int, unsigned) __asm__("sem_init");
int mptune_sem_post(void*) __asm__("sem_post");
int mptune_sem_wait(void*) __asm__("sem_wait");
}

MPTUNE_ONCE_A_LAUNCH

namespace mptune_host {

#if defined(MPTUNE_RUNTIME_APART)
__thread void* dynamic_shared;
#endif

MPTUNE_RUNTIME void* map_pages(unsigned long bytes) {
    constexpr int read_write = 3, private_anonymous_noreserve = 0x02 | 0x20 | 0x4000;
    void* const pages = mptune_mmap(nullptr, bytes, read_write, private_anonymous_noreserve, -1, 0);
    return pages == reinterpret_cast<void*>(-1L) ? nullptr : pages;
}

MPTUNE_RUNTIME void block_of_fibers::release() {
    if (fibers != nullptr) mptune_munmap(fibers, mapped_bytes);
    fibers = nullptr;
    count = 0;
}

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

struct alignas(128) member : worker {
    unsigned long thread;
    processors home;
    job* work;
    long long worked, waited;  // ns of the last long job: on a processor, and without one though there was work to do
    bool slept;                // then it counts as worked all the time
    void* shared;
    unsigned long shared_bytes;
    alignas(16) unsigned char wake[64];  // a sem_t
};

struct pool {
    member* workers;
    unsigned count;
    int process;
    unsigned ready, finished;
    bool go, stop;
    // A thread that is woken tends to be put on the processor of the one that wakes it, and to stay there for the few
    // milliseconds a launch takes. With a worker for each processor, each keeps to its own.
    bool at_home;
};
static pool threads;

// The process of the thread that has its turn; 0 if none has.
static int launching;

// The pool runs one launch at a time: the calling thread has its turn as long as this lives.
struct turn {
    turn() {
        const int own = mptune_getpid();
        // A forked child takes it from a thread it does not have.
        int seen = 0;
        while (!__atomic_compare_exchange_n(&launching, &seen, own, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            if (seen != own) continue;
            seen = 0;
            mptune_usleep(50);
        }
    }
    turn(const turn&) = delete;
    ~turn() { __atomic_store_n(&launching, 0, __ATOMIC_RELEASE); }
};

static long long clock_ns(int clock) {
    mptune_timespec time;
    mptune_clock_gettime(clock, &time);
    return time.seconds * 1000000000ll + time.nanoseconds;
}

static long long now_ns() {
    constexpr int monotonic = 1;
    return clock_ns(monotonic);
}

// Time the calling thread has been on a processor.
static long long processor_ns() {
    constexpr int of_this_thread = 3;
    return clock_ns(of_this_thread);
}

// How often the calling thread has given its processor up of its own accord: to sleep, or to wait for something.
static long given_up() {
#if defined(__linux__)
    constexpr int of_this_thread = 1, voluntary_switches = 16;
    long usage[18] = {};
    mptune_getrusage(of_this_thread, usage);
    return usage[voluntary_switches];
#else
    return 0;
#endif
}

static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Spins until *counter is `wanted`; after a while gives the processor to whoever needs it to get there.
template <class T>
static void spin_until(const T* counter, T wanted) {
    for (unsigned spins = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) != wanted; ++spins) {
        if (spins < 1000) pause();
        else mptune_sched_yield();
    }
}

static bool prepare_worker(job& work, member& self, unsigned long shared_bytes) {
    if (self.shared_bytes < shared_bytes) {
        if (self.shared != nullptr) mptune_munmap(self.shared, self.shared_bytes);
        self.shared = map_pages(shared_bytes);
        self.shared_bytes = self.shared != nullptr ? shared_bytes : 0;
        if (self.shared == nullptr) return false;
    }
    return work.kernel->prepare == nullptr || work.kernel->prepare(work, self);
}

// Runs blocks until none is left.
static void work_off(job& work, worker& self) {
    for (;;) {
        unsigned long long first = __atomic_fetch_add(&work.next, work.chunk, __ATOMIC_RELAXED);
        if (first >= work.blocks) return;
        const unsigned long long last = first + work.chunk < work.blocks ? first + work.chunk : work.blocks;
        while (first < last) {
            const unsigned long long row_of_first = first / work.grid.x;
            row part{{static_cast<int>(first % work.grid.x), static_cast<int>(row_of_first % work.grid.y),
                      static_cast<int>(row_of_first / work.grid.y)},
                     0};
            const unsigned long long left = work.grid.x - part.first.x;
            part.count = static_cast<int>(last - first < left ? last - first : left);
            work.kernel->run(work, self, part);
            first += part.count;
        }
    }
}

static void work_off_timed(job& work, member& self) {
    if (!work.is_long) return work_off(work, self);
    const long before = given_up();
    const long long start = now_ns(), worked = processor_ns();
    work_off(work, self);
    const long long elapsed = now_ns() - start;
    // A kernel that waits takes that time; only what another task took is none of its own.
    self.slept = given_up() != before;
    self.worked = self.slept ? elapsed : processor_ns() - worked;
    self.waited = elapsed - self.worked;
}

static void* worker_main(void* argument) {
    member& self = *static_cast<member*>(argument);
    if (threads.at_home) self.home.hold_this_thread();
    for (;;) {
        while (mptune_sem_wait(self.wake) != 0) {
        }
        if (threads.stop) return nullptr;
        job& work = *self.work;
        __atomic_fetch_add(&threads.ready, 1u, __ATOMIC_RELEASE);
        spin_until(&threads.go, true);
        dynamic_shared = self.shared;
        work_off_timed(work, self);
        __atomic_fetch_add(&threads.finished, 1u, __ATOMIC_RELEASE);
    }
}

static void release_worker(member& self) {
    self.fibers.release();
    if (self.shared != nullptr) mptune_munmap(self.shared, self.shared_bytes);
}

MPTUNE_RUNTIME void release_pool() {
    if (threads.workers == nullptr) return;
    // A forked child has the pool's memory but not its threads.
    if (threads.process == mptune_getpid()) {
        threads.stop = true;
        for (unsigned i = 1; i < threads.count; ++i) mptune_sem_post(threads.workers[i].wake);
        for (unsigned i = 1; i < threads.count; ++i) mptune_pthread_join(threads.workers[i].thread, nullptr);
    }
    for (unsigned i = 0; i < threads.count; ++i) release_worker(threads.workers[i]);
    mptune_munmap(threads.workers, sizeof(member) * threads.count);
    threads = pool{};
}

// Makes the pool `count` workers strong, the calling thread being the first.
static bool start_pool(unsigned count) {
    if (threads.workers != nullptr && threads.count == count && threads.process == mptune_getpid()) return true;
    release_pool();
    threads.workers = static_cast<member*>(map_pages(sizeof(member) * count));
    if (threads.workers == nullptr) return false;
    threads.process = mptune_getpid();
    const processors allowed = processors::of_this_thread();
    threads.at_home = allowed.count() == count && count > 1;
    for (unsigned i = 0; threads.at_home && i < count; ++i) threads.workers[i].home = allowed.only(i);
    for (threads.count = 1; threads.count < count; ++threads.count) {
        member& added = threads.workers[threads.count];
        mptune_sem_init(added.wake, 0, 0);
        if (mptune_pthread_create(&added.thread, nullptr, worker_main, &added) != 0) {
            release_pool();
            return false;
        }
    }
    return true;
}

// Returns what a launch would have taken if every worker had had its processor all the time. Where none had to wait for
// it, that is what it took. Else it is the time all were on a processor, shared out as the chunks are, which take turns;
// but nobody can take over what another one sleeps.
static long long undisturbed_ns(const job& work, unsigned workers, long long elapsed) {
    constexpr int seldom = 50;
    long long worked = 0, waited = 0, slept = 0;
    for (unsigned i = 0; i < workers; ++i) {
        const member& one = threads.workers[i];
        worked += one.worked;
        if (one.waited > waited) waited = one.waited;
        if (one.slept && one.worked > slept) slept = one.worked;
    }
    if (waited < elapsed / seldom) return elapsed;
    const unsigned long long chunks = (work.blocks + work.chunk - 1) / work.chunk;
    const unsigned long long turns = (chunks + workers - 1) / workers;
    const long long shared = static_cast<long long>(static_cast<double>(worked) * turns / chunks);
    const long long undisturbed = shared > slept ? shared : slept;
    return undisturbed < elapsed ? undisturbed : elapsed;
}

static long long run_job(job& work, unsigned long shared_bytes, unsigned workers) {
    // Asking for a thread's time on its processor takes a system call, which a short launch would notice. As long as the
    // launch before: the first one warms up.
    constexpr long long long_ns = 200000;
    static long long before_ns = 0;
    work.is_long = before_ns >= long_ns;
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
    work_off_timed(work, threads.workers[0]);
    spin_until(&threads.finished, workers - 1);
    const long long elapsed = now_ns() - start;
    if (threads.at_home) before.hold_this_thread();
    before_ns = elapsed;
    const long long counted = work.is_long ? undisturbed_ns(work, workers, elapsed) : elapsed;
    return counted > 0 ? counted : 1;
}

MPTUNE_RUNTIME long long launch(const entry& kernel, void** arguments, const unsigned* grid, const unsigned* block,
                                unsigned shared_bytes, unsigned workers) {
    job work{};
    work.kernel = &kernel;
    work.arguments = arguments;
    work.grid = dim3{static_cast<int>(grid[0]), static_cast<int>(grid[1]), static_cast<int>(grid[2])};
    work.block = dim3{static_cast<int>(block[0]), static_cast<int>(block[1]), static_cast<int>(block[2])};
    const dim3 fixed = kernel.block;
    const bool same = fixed.x == work.block.x && fixed.y == work.block.y && fixed.z == work.block.z;
    if (fixed.x > 0 && !same) return wrong_block;
    work.blocks = static_cast<unsigned long long>(grid[0]) * grid[1] * grid[2];
    const unsigned long long share = work.blocks / (16ull * workers);
    work.chunk = share > 0 ? share : 1;
    const turn held;
    return run_job(work, shared_bytes, workers);
}

MPTUNE_RUNTIME unsigned describe(const entry& kernel, int* codes) {
    for (unsigned i = 0; i < kernel.parameters; ++i) codes[i] = kernel.codes[i];
    return kernel.parameters;
}

}  // namespace mptune_host

#if defined(MPTUNE_RUNTIME_APART)
MPTUNE_ENTRY_POINTS
#endif

MPTUNE_OFTEN

#endif

#endif
