// The threads a grid runs on: blocks are handed out to a pool of them, which all kernels of a process share. An application
// launches its kernels in turn, and a pool for each of them would be asleep whenever its turn comes.

#if defined(MPTUNE_HOST)

namespace mptune_host {

// What mptune_launch returns instead of a time.
enum failure : long long { no_threads = -1, no_memory = -2, wrong_block = -3, beyond_shared = -4 };

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
    unsigned long shared_bytes;  // of a size given at launch
    bool is_long;  // whether other tasks are likely to take a processor away meanwhile
};

// Runs a grid on so many workers; the time in ns runs from when every thread waits for the start until the last block is
// done, or is what that takes where no other task takes a processor away. A failure instead where there is one. Calls in
// several threads take turns.
MPTUNE_RUNTIME long long launch(const entry& kernel, void** arguments, const unsigned* grid, const unsigned* block,
                                unsigned shared_bytes, unsigned workers);

// Gives what the launching side checks its arguments against: the codes of the parameters, and how many there are.
MPTUNE_RUNTIME unsigned describe(const entry& kernel, int* codes);

// Gives back what the workers of the library keep; the next job starts anew.
MPTUNE_RUNTIME void release_workers();

// From now on shared memory holds NaNs where no block has written, as on a device it may: what reads there shows. Only for a
// library that has nothing of its own in the memory of threads.
MPTUNE_RUNTIME void poison_shared();

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
    extern "C" __attribute__((visibility("default"))) void mptune_release() { mptune_host::release_workers(); }         \
    extern "C" __attribute__((visibility("default"))) void mptune_poison() { mptune_host::poison_shared(); }

#if MPTUNE_RUNTIME_HERE

extern "C" {
struct mptune_timespec {
    long seconds, nanoseconds;
};
int mptune_clock_gettime(int, mptune_timespec*) __asm__("clock_gettime");
int mptune_pthread_create(unsigned long*, const void*, void* (*)(void*), void*) __asm__("pthread_create");
int mptune_sched_yield() __asm__("sched_yield");
int mptune_usleep(unsigned) __asm__("usleep");
int mptune_getpid() __asm__("getpid");
#if defined(__linux__)
int mptune_getrusage(int, void*) __asm__("getrusage");
int mptune_sched_getaffinity(int, unsigned long, void*) __asm__("sched_getaffinity");
int mptune_sched_setaffinity(int, unsigned long, const void*) __asm__("sched_setaffinity");
int mptune_dl_iterate_phdr(int (*)(void*, unsigned long, void*), void*) __asm__("dl_iterate_phdr");
#endif
int mptune_sem_init(void*, int, unsigned) __asm__("sem_init");
int mptune_sem_post(void*) __asm__("sem_post");
int mptune_sem_trywait(void*) __asm__("sem_trywait");
int mptune_sem_wait(void*) __asm__("sem_wait");

// The threads of the process. The symbol is unique: the loader gives all libraries that of the first one, even where they
// are to see nothing of each other, and never unloads the library it is of, whose code the threads run. What is linked
// together has one in any case. A loader that knows no such symbols leaves each library to threads of its own.
// The number in the names is another one wherever this struct or what it means is.
struct mptune_threads {
    int process;     // they are of, to tell a forked child, which has none of them
    unsigned count;  // how many were started
    // Has workers 1, 2... do a task, and the calling thread, which is worker 0. Returns ns from when all wait for the
    // start until all are done, or a failure.
    long long (*run)(unsigned workers, void (*task)(void* context, unsigned worker), void* context);
};
extern __attribute__((visibility("default"))) mptune_threads mptune_threads_1;
__attribute__((weak, used, visibility("hidden"))) long long mptune_run_1(unsigned, void (*)(void*, unsigned), void*);
}

#if __SIZEOF_POINTER__ == 8
#define MPTUNE_POINTER ".quad"
#else
#define MPTUNE_POINTER ".long"
#endif
// clang++ has no other way to say that a symbol is unique.
__asm__(
    ".pushsection .data.rel.mptune_threads_1, \"awG\", %progbits, mptune_threads_1, comdat\n"
    ".weak mptune_threads_1\n"
    ".type mptune_threads_1, %gnu_unique_object\n"
    ".balign 8\n"
    "mptune_threads_1:\n"
    "    .long 0, 0\n"
    "    " MPTUNE_POINTER " mptune_run_1\n"
    ".size mptune_threads_1, .-mptune_threads_1\n"
    ".popsection\n");

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

// How a thread rounds and treats denormals. Where there is nothing here, threads begin with how the one did it that
// started them.
struct float_environment {
    unsigned control;
    unsigned short x87;

    static float_environment of_this_thread() {
        float_environment found{};
#if defined(__x86_64__)
        __asm__ volatile("stmxcsr %0" : "=m"(found.control));
        __asm__ volatile("fnstcw %0" : "=m"(found.x87));
#elif defined(__aarch64__)
        unsigned long control;
        __asm__ volatile("mrs %0, fpcr" : "=r"(control));
        found.control = static_cast<unsigned>(control);
#endif
        return found;
    }

    void set() const {
#if defined(__x86_64__)
        __asm__ volatile("ldmxcsr %0" : : "m"(control));
        __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(x87));
#elif defined(__aarch64__)
        __asm__ volatile("msr fpcr, %0" : : "r"(static_cast<unsigned long>(control)));
#endif
    }
};

// So soon after another launch one comes close to it.
constexpr long long closely_ns = 250000;

// A thread of the process; it does what the worker of its number is to do.
struct alignas(128) hand {
    hand* next;
    unsigned number;
    processors home;
    bool moves;  // there, before it goes on
    long preempted;               // how often it has been
    long long awake_from, worked;  // ns: since when it has not slept, and its processor time then
    long long calm_from;           // ns; until then others want its processor
    alignas(16) unsigned char wake[64];  // a sem_t
};

struct pool {
    hand* first;
    hand* last;
    // A thread that is woken tends to be put on the processor of the one that wakes it, and to stay there for the few
    // milliseconds a launch takes. With a thread for each processor, each of the first ones keeps to its own.
    bool at_home;
    processors allowed, home;  // what the thread that launches may use, and keeps to meanwhile
    unsigned usable;  // processors

    void (*task)(void* context, unsigned worker);
    void* context;
    float_environment environment;
    unsigned ready, finished;
    bool go;
    bool is_close;  // to the launch before
    long long ended;
};
static pool threads;

// Threads that launch at once take turns: the calling one has its turn as long as this lives.
struct turn {
    int* const taken;  // by which process; 0 by none
    const int process;

    explicit turn(int* of) : taken(of), process(mptune_getpid()) {
        // A forked child takes it from a thread it does not have.
        int seen = 0;
        while (!__atomic_compare_exchange_n(taken, &seen, process, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            if (seen != process) continue;
            seen = 0;
            mptune_usleep(50);
        }
    }
    turn(const turn&) = delete;
    ~turn() { __atomic_store_n(taken, 0, __ATOMIC_RELEASE); }
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

// How often the calling thread has given its processor up of its own accord, to sleep or to wait for something, and how
// often it had to.
struct switches {
    long given_up, preempted;

    static switches of_this_thread() {
#if defined(__linux__)
        constexpr int of_this_thread = 1;
        long usage[18] = {};
        mptune_getrusage(of_this_thread, usage);
        return {usage[16], usage[17]};
#else
        return {};
#endif
    }
};

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

// A launch often follows another one closely, and to fall asleep and be woken takes longer than many a one: the threads
// stay awake for a while, if the last launch came that soon and nobody else wants the processors.
static void wait_until_woken(hand& self, bool is_awaited) {
    constexpr long long crowded_ns = 10000000, brief_ns = 200000;
    const long long start = now_ns();
    const long preempted = switches::of_this_thread().preempted;
    if (preempted != self.preempted) {
        // The system's own threads take a processor for some microseconds now and then; another task keeps it longer.
        const long long worked = processor_ns();
        if ((start - self.awake_from) - (worked - self.worked) >= brief_ns) self.calm_from = start + crowded_ns;
        self.preempted = preempted;
        self.awake_from = start;
        self.worked = worked;
    }
    if (is_awaited && start >= self.calm_from) {
        while (now_ns() - start < closely_ns) {
            if (mptune_sem_trywait(self.wake) == 0) return;
            pause();
        }
    }
    while (mptune_sem_wait(self.wake) != 0) {
    }
    self.awake_from = now_ns();
    self.worked = processor_ns();
}

static void* hand_main(void* argument) {
    hand& self = *static_cast<hand*>(argument);
    bool is_awaited = false;
    for (;;) {
        wait_until_woken(self, is_awaited);
        if (self.moves) self.home.hold_this_thread();
        self.moves = false;
        is_awaited = threads.is_close;
        threads.environment.set();
        __atomic_fetch_add(&threads.ready, 1u, __ATOMIC_RELEASE);
        spin_until(&threads.go, true);
        threads.task(threads.context, self.number);
        __atomic_fetch_add(&threads.finished, 1u, __ATOMIC_RELEASE);
    }
    return nullptr;
}

// Starts threads until there are so many; they stay as long as the process.
static bool start_threads(unsigned count, int process) {
    if (mptune_threads_1.process != process) {
        threads = pool{};
        mptune_threads_1.process = process;
        mptune_threads_1.count = 0;
    }
    for (; mptune_threads_1.count < count; ++mptune_threads_1.count) {
        hand* const added = static_cast<hand*>(map_pages(sizeof(hand)));
        if (added == nullptr) return false;
        added->number = mptune_threads_1.count + 1;
        mptune_sem_init(added->wake, 0, 0);
        unsigned long thread;
        if (mptune_pthread_create(&thread, nullptr, hand_main, added) != 0) {
            mptune_munmap(added, sizeof(hand));
            return false;
        }
        (threads.last != nullptr ? threads.last->next : threads.first) = added;
        threads.last = added;
        threads.allowed = processors{};
    }
    return true;
}

// Says where threads are to run, if that has changed.
static void place_threads() {
    const processors allowed = processors::of_this_thread();
    if (__builtin_memcmp(&allowed, &threads.allowed, sizeof allowed) == 0) return;
    threads.allowed = allowed;
    threads.usable = allowed.count();
    threads.at_home = threads.usable > 0 && threads.usable <= mptune_threads_1.count + 1;
    if (threads.at_home) threads.home = allowed.only(0);
    for (hand* one = threads.first; one != nullptr; one = one->next) {
        one->home = threads.at_home && one->number < threads.usable ? allowed.only(one->number) : allowed;
        one->moves = true;
    }
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

// A worker of the library.
struct alignas(128) member : worker {
    long long worked, waited;  // ns of the last long job: on a processor, and without one though there was work to do
    bool slept;                // then it counts as worked all the time
    char* pages;               // for shared memory, between pages that fault; null for none
    unsigned long page_bytes;  // without those
    bool is_poisoned;          // what it shares, if that is asked for

    // What a job shares begins with a cache line and ends less than one before a page that faults. The bytes between are
    // 0xff, where shared memory is poisoned.
    char* shared(const job& work) const {
        return pages == nullptr ? nullptr : pages + page_bytes - (work.shared_bytes + 63) / 64 * 64;
    }
    void guard_end(const job& work) {
        for (char* byte = shared(work) + work.shared_bytes; byte < pages + page_bytes; ++byte) *byte = -1;
    }
    bool is_end_whole(const job& work) const {
        const char* byte = shared(work) + work.shared_bytes;
        while (byte < pages + page_bytes && *byte == -1) ++byte;
        return byte == pages + page_bytes;
    }
    void unmap_shared() {
        if (pages != nullptr) mptune_munmap(pages - guard_bytes, page_bytes + 2 * guard_bytes);
        pages = nullptr;
        page_bytes = 0;
    }
    bool map_shared(unsigned long bytes) {
        unmap_shared();
        const unsigned long whole = (bytes + guard_bytes - 1) / guard_bytes * guard_bytes;
        char* const mapped = static_cast<char*>(map_pages(whole + 2 * guard_bytes));
        if (mapped == nullptr) return false;
        pages = mapped + guard_bytes;
        page_bytes = whole;
        mptune_mprotect(mapped, guard_bytes, 0);
        mptune_mprotect(pages + whole, guard_bytes, 0);
        return true;
    }
};

// The workers of the library, whichever threads they are.
struct library {
    member* workers;
    unsigned count;
    int process;
};
static library here;
static bool poisons;

MPTUNE_RUNTIME void poison_shared() { poisons = true; }

#if defined(__linux__) && __SIZEOF_POINTER__ == 8
// What the loader says of a library, and of a segment.
struct loaded {
    char* start;
    const char* name;
    const struct segment* segments;
    unsigned short count;
    unsigned long long added, removed;
    unsigned long module;
    char* of_thread;
};
struct segment {
    unsigned type, flags;
    unsigned long offset, address, physical, file_bytes, bytes, align;
};

// Fills what the calling thread has of this library without initial values: `__shared__` variables are there, and others
// that are set before a block runs.
static int poison_of_thread(void* found, unsigned long, void* inside) {
    constexpr unsigned load = 1, of_threads = 7;
    const loaded& one = *static_cast<const loaded*>(found);
    const segment* threads_have = nullptr;
    bool is_here = false;
    for (const segment* each = one.segments; each < one.segments + one.count; ++each) {
        const char* const start = one.start + each->address;
        if (each->type == load && start <= inside && inside < start + each->bytes) is_here = true;
        if (each->type == of_threads) threads_have = each;
    }
    if (is_here && threads_have != nullptr && one.of_thread != nullptr) {
        const unsigned long given = threads_have->file_bytes;
        __builtin_memset(one.of_thread + given, 0xff, threads_have->bytes - given);
    }
    return is_here;
}
#endif

static void poison_as(void*, unsigned number) {
    member& self = here.workers[number];
    if (self.is_poisoned) return;
    self.is_poisoned = true;
    if (self.pages != nullptr) __builtin_memset(self.pages, 0xff, self.page_bytes);
#if defined(__linux__) && __SIZEOF_POINTER__ == 8
    // A thread has its variables of a library from when it first uses one.
    dynamic_shared = self.pages;
    __asm__ volatile("" : : "r"(&dynamic_shared) : "memory");
    mptune_dl_iterate_phdr(poison_of_thread, &here);
#endif
}

static void work_off_timed(job& work, member& self) {
    if (!work.is_long) return work_off(work, self);
    const long before = switches::of_this_thread().given_up;
    const long long start = now_ns(), worked = processor_ns();
    work_off(work, self);
    const long long elapsed = now_ns() - start;
    // A kernel that waits takes that time; only what another task took is none of its own.
    self.slept = switches::of_this_thread().given_up != before;
    self.worked = self.slept ? elapsed : processor_ns() - worked;
    self.waited = elapsed - self.worked;
}

static void work_as(void* context, unsigned number) {
    member& self = here.workers[number];
    job& work = *static_cast<job*>(context);
    dynamic_shared = self.shared(work);
    work_off_timed(work, self);
}

MPTUNE_RUNTIME void release_workers() {
    for (unsigned i = 0; i < here.count; ++i) {
        here.workers[i].fibers.release();
        here.workers[i].unmap_shared();
    }
    if (here.workers != nullptr) mptune_munmap(here.workers, sizeof(member) * here.count);
    here = library{};
}

static bool prepare_worker(job& work, member& self) {
    if (self.page_bytes < work.shared_bytes) {
        self.is_poisoned = false;
        if (!self.map_shared(work.shared_bytes)) return false;
    }
    if (poisons) self.guard_end(work);
    return work.kernel->prepare == nullptr || work.kernel->prepare(work, self);
}

static bool prepare_workers(job& work, unsigned workers, int process) {
    // In a forked child they may be in the middle of a launch.
    if (here.count < workers || here.process != process) {
        release_workers();
        here.workers = static_cast<member*>(map_pages(sizeof(member) * workers));
        if (here.workers == nullptr) return false;
        here.count = workers;
        here.process = process;
    }
    for (unsigned i = 0; i < workers; ++i) {
        if (!prepare_worker(work, here.workers[i])) return false;
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
        const member& one = here.workers[i];
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

static long long run_alone(job& work) {
    const long long start = now_ns();
    work_as(&work, 0);
    return now_ns() - start;
}

static long long run_job(job& work, unsigned workers) {
    // Asking for a thread's time on its processor takes a system call, which a short launch would notice. As long as the
    // launch before: the first one warms up.
    constexpr long long long_ns = 200000;
    static long long before_ns = 0;
    static int launching;
    const turn held(&launching);
    if (!prepare_workers(work, workers, held.process)) return no_memory;
    if (poisons && !here.workers[workers - 1].is_poisoned) {
        const long long took = mptune_threads_1.run(workers, poison_as, nullptr);
        if (took < 0) return took;
    }
    work.is_long = before_ns >= long_ns;
    const long long elapsed = workers > 1 ? mptune_threads_1.run(workers, work_as, &work) : run_alone(work);
    if (elapsed < 0) return elapsed;
    for (unsigned i = 0; poisons && i < workers; ++i)
        if (!here.workers[i].is_end_whole(work)) return beyond_shared;
    before_ns = elapsed;
    const long long counted = work.is_long ? undisturbed_ns(work, workers, elapsed) : elapsed;
    return counted > 0 ? counted : 1;
}

MPTUNE_RUNTIME long long launch(const entry& kernel, void** arguments, const unsigned* grid, const unsigned* block,
                                unsigned shared_bytes, unsigned workers) {
    job work{};
    work.kernel = &kernel;
    work.arguments = arguments;
    work.shared_bytes = shared_bytes;
    work.grid = dim3{static_cast<int>(grid[0]), static_cast<int>(grid[1]), static_cast<int>(grid[2])};
    work.block = dim3{static_cast<int>(block[0]), static_cast<int>(block[1]), static_cast<int>(block[2])};
    const dim3 fixed = kernel.block;
    const bool same = fixed.x == work.block.x && fixed.y == work.block.y && fixed.z == work.block.z;
    if (fixed.x > 0 && !same) return wrong_block;
    work.blocks = static_cast<unsigned long long>(grid[0]) * grid[1] * grid[2];
    const unsigned long long share = work.blocks / (16ull * workers);
    work.chunk = share > 0 ? share : 1;
    return run_job(work, workers);
}

MPTUNE_RUNTIME unsigned describe(const entry& kernel, int* codes) {
    for (unsigned i = 0; i < kernel.parameters; ++i) codes[i] = kernel.codes[i];
    return kernel.parameters;
}

}  // namespace mptune_host

long long mptune_run_1(unsigned workers, void (*task)(void*, unsigned), void* context) {
    using namespace mptune_host;
    static int launching;
    const turn held(&launching);
    if (!start_threads(workers - 1, held.process)) return no_threads;
    place_threads();
    threads.task = task;
    threads.context = context;
    threads.environment = float_environment::of_this_thread();
    threads.ready = threads.finished = 0;
    threads.go = false;
    threads.is_close = workers <= threads.usable && now_ns() - threads.ended < closely_ns;
    if (threads.at_home) threads.home.hold_this_thread();
    hand* one = threads.first;
    for (unsigned i = 1; i < workers; ++i, one = one->next) mptune_sem_post(one->wake);
    spin_until(&threads.ready, workers - 1);
    const long long start = now_ns();
    __atomic_store_n(&threads.go, true, __ATOMIC_RELEASE);
    task(context, 0);
    spin_until(&threads.finished, workers - 1);
    threads.ended = now_ns();
    if (threads.at_home) threads.allowed.hold_this_thread();
    return threads.ended - start;
}

#if defined(MPTUNE_RUNTIME_APART)
MPTUNE_ENTRY_POINTS
#endif

MPTUNE_OFTEN

// clang calls it to round a double to fp16, and zig links without the library that has it. The float in between has its
// last bit set where it is inexact, so that one rounding counts.
#if defined(__clang__) && defined(MPTUNE_NATIVE_HALF)
extern "C" __attribute__((visibility("hidden"), weak)) _Float16 __truncdfhf2(double x) {
    float odd = static_cast<float>(x);
    int bits;
    __builtin_memcpy(&bits, &odd, sizeof bits);
    const double back = odd, size = __builtin_fabs(x);
    if (back != x && x == x) bits = (bits - (__builtin_fabs(back) > size)) | 1;
    __builtin_memcpy(&odd, &bits, sizeof bits);
    return static_cast<_Float16>(odd);
}
#endif

#endif

#endif
