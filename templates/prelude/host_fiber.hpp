// Threads that can wait for each other: each thread of a block is a fiber with a stack of its own, and a barrier
// switches to the next fiber that has not ended. Switching round robin, a fiber comes back from a barrier only when
// every other one has reached it (or has returned, which counts as having arrived). From the first warp function of a block
// on it is noted who waits for what, and who waits for the block takes no turns.

#if defined(MPTUNE_HOST)

extern "C" {
void* mptune_mmap(void*, unsigned long, int, int, int, long) __asm__("mmap");
int mptune_munmap(void*, unsigned long) __asm__("munmap");
int mptune_mprotect(void*, unsigned long, int) __asm__("mprotect");
// Saves the caller's registers and stack pointer in *save and goes on where `stack` was saved.
__attribute__((visibility("hidden"))) void mptune_switch(void** save, void* stack);
}

#if defined(MPTUNE_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#define MPTUNE_SWITCH_UCONTEXT 1
#include <ucontext.h>
#elif !MPTUNE_RUNTIME_HERE
// It is in the object of the runtime.
#elif defined(__x86_64__)
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".weak mptune_switch\n"
    ".hidden mptune_switch\n"
    ".type mptune_switch, @function\n"
    "mptune_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    popq %rcx\n"
    "    jmp *%rcx\n"
    ".size mptune_switch, .-mptune_switch\n");
#else
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".weak mptune_switch\n"
    ".hidden mptune_switch\n"
    ".type mptune_switch, %function\n"
    "mptune_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n"
    "    stp x21, x22, [sp, #16]\n"
    "    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n"
    "    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n"
    "    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n"
    "    str x9, [x0]\n"
    "    mov sp, x1\n"
    "    ldp x19, x20, [sp, #0]\n"
    "    ldp x21, x22, [sp, #16]\n"
    "    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n"
    "    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n"
    "    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n"
    ".size mptune_switch, .-mptune_switch\n");
#endif

#if !defined(MPTUNE_STACK_BYTES)
#define MPTUNE_STACK_BYTES (64 * 1024)
#endif

namespace mptune_host {

constexpr unsigned long stack_bytes = MPTUNE_STACK_BYTES;
constexpr unsigned long guard_bytes = 64 * 1024;

// Maps zeroed memory that costs nothing until it is touched; null where there is none.
MPTUNE_RUNTIME void* map_pages(unsigned long bytes);

struct fiber {
    void* stack;
    fiber* next;
    dim3 thread;
#if defined(MPTUNE_SWITCH_UCONTEXT)
    ucontext_t context;
#endif
};

// Who waits, a bit for each thread in words of 64, of which a warp is one or a half.
struct waiting_threads {
    struct word {
        unsigned long long alive, at_barrier, in_warps, at_sites, votes;
    } words[16];
    unsigned alive, at_barrier;
    lane lanes[1024];
};

// The fibers of one worker, kept from block to block: one that returns from the kernel waits at the top of its loop.
struct block_of_fibers {
    fiber* fibers;
    unsigned long mapped_bytes;
    unsigned count;
    void (*body)();
    void* argument;
    fiber* current;
    fiber* previous;
    fiber scheduler;
    waiting_threads* waiting;

    bool prepare(dim3 block, void (*main)(), void* main_argument);
    void run();
    void release();
};

static thread_local block_of_fibers* active_block;

inline __attribute__((always_inline)) void resume(fiber* from, fiber* to) {
    active_block->current = to;
    threadIdx = to->thread;
#if defined(MPTUNE_SWITCH_UCONTEXT)
    swapcontext(&from->context, &to->context);
#else
    mptune_switch(&from->stack, to->stack);
#endif
}

// Lets all others have their turn.
inline __attribute__((always_inline)) void let_others() {
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
    if (self->next == self) return;
    block->previous = self;
    resume(self, self->next);
}

struct thread_place {
    unsigned number;
    waiting_threads& all;
    waiting_threads::word& word;
    unsigned long long bit;

    static thread_place of_this_thread() {
        const unsigned number = static_cast<unsigned>(active_block->current - active_block->fibers);
        waiting_threads& all = *active_block->waiting;
        return {number, all, all.words[number / 64], 1ull << number % 64};
    }
};

// Gives those a turn again that wait for the block: behind this thread, by number.
static __attribute__((unused)) void open_barrier() {
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
    waiting_threads& all = *block->waiting;
    for (unsigned i = 16; i-- > 0;) {
        unsigned long long& there = all.words[i].at_barrier;
        for (; there != 0; there &= ~(1ull << 63 >> __builtin_clzll(there))) {
            fiber* const each = block->fibers + i * 64 + 63 - __builtin_clzll(there);
            if (each == self) continue;
            each->next = self->next;
            self->next = each;
            if (block->previous == self) block->previous = each;
        }
    }
    all.at_barrier = 0;
}

static __attribute__((noinline, unused)) void arrive() {
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
    const thread_place own = thread_place::of_this_thread();
    own.word.at_barrier |= own.bit;
    if (++own.all.at_barrier == own.all.alive) return open_barrier();
    block->previous->next = self->next;
    resume(self, self->next);
}

// What is behind the switch is not in this function: a return to another caller than that of the thread before is not foreseen
// by processors.
static __attribute__((noinline, unused)) void wait_for_block() {
    if (has_warps) return arrive();
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
    if (self->next == self) return;
    block->previous = self;
    resume(self, self->next);
}

// Notes who is there. Until then the threads took turns by number, so that those before this one wait for the block.
static __attribute__((noinline, unused)) void begin_warps() {
    has_warps = true;
    block_of_fibers* const block = active_block;
    waiting_threads& all = *block->waiting;
    __builtin_memset(all.words, 0, sizeof all.words);
    all.alive = all.at_barrier = 0;
    fiber *each = block->current, *last = each;
    do {
        const unsigned long number = each - block->fibers;
        all.words[number / 64].alive |= 1ull << number % 64;
        ++all.alive;
        if (each < block->current) {
            all.words[number / 64].at_barrier |= 1ull << number % 64;
            ++all.at_barrier;
        } else {
            last = each;
        }
        each = each->next;
    } while (each != block->current);
    last->next = block->current;
    block->previous = last;
}

static __attribute__((unused)) lane& own_lane() {
    return active_block->waiting->lanes[active_block->current - active_block->fibers];
}

// Returns the threads of a site, if no other thread of the warp waits at an earlier line, where it may come by here yet.
static __attribute__((unused)) unsigned long long at_site(const lane* lanes, unsigned long long waiting, int site) {
    unsigned long long found = 0;
    for (unsigned long long left = waiting; left != 0; left &= left - 1) {
        const int other = lanes[__builtin_ctzll(left)].site;
        if (other < site) return 0;
        if (other == site) found |= left & -left;
    }
    return found;
}

static __attribute__((noinline, unused)) void gather(unsigned warp_size, unsigned long long mask, int site,
                                                     void (*settle)(lane*, unsigned long long)) {
    if (!has_warps) begin_warps();
    const thread_place self = thread_place::of_this_thread();
    const unsigned first = self.number % 64 / warp_size * warp_size;
    const unsigned long long whole = ~0ull >> (64 - warp_size) << first;
    lane* const lanes = self.all.lanes + self.number / 64 * 64;
    waiting_threads::word& word = self.word;
    unsigned long long& waiting = mask != 0 ? word.in_warps : word.at_sites;
    lanes[self.number % 64].site = site;
    waiting |= self.bit;
    while (waiting & self.bit) {
        const unsigned long long there = word.alive & ~word.at_barrier & whole;
        unsigned long long group = 0;
        if (mask != 0) {
            group = (there & mask << first) | self.bit;
            if (group & ~waiting) group = 0;
        } else if ((there & ~word.in_warps & ~word.at_sites) == 0) {
            group = at_site(lanes, word.at_sites & whole, site);
        }
        if (group == 0) {
            let_others();
            continue;
        }
        settle(lanes + first, group >> first);
        waiting &= ~group;
    }
}

static __attribute__((noinline, unused)) unsigned votes(bool is) {
    if (!has_warps) begin_warps();
    const thread_place self = thread_place::of_this_thread();
    self.word.votes = is ? self.word.votes | self.bit : self.word.votes & ~self.bit;
    wait_for_block();
    unsigned found = 0;
    for (const waiting_threads::word& each : self.all.words) found += __builtin_popcountll(each.votes & each.alive);
    wait_for_block();
    return found;
}

// Takes a fiber whose thread has returned out of the ring; the last one gives the worker back its own stack.
inline __attribute__((noinline)) void end_thread() {
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
    if (has_warps) {
        const thread_place own = thread_place::of_this_thread();
        own.word.alive &= ~own.bit;
        if (--own.all.alive == own.all.at_barrier) open_barrier();
    }
    if (self->next == self) {
        resume(self, &block->scheduler);
    } else {
        block->previous->next = self->next;
        resume(self, self->next);
    }
}

// Where a fiber starts; never returns, there is nothing below it on its stack.
inline void fiber_main() {
    for (;;) {
        active_block->body();
        end_thread();
    }
}

}  // namespace mptune_host

MPTUNE_ONCE_A_LAUNCH

namespace mptune_host {

inline void start_fiber(fiber* self, char* stack_top) {
#if defined(MPTUNE_SWITCH_UCONTEXT)
    getcontext(&self->context);
    self->context.uc_stack.ss_sp = stack_top - stack_bytes / 2;
    self->context.uc_stack.ss_size = stack_bytes / 2;
    self->context.uc_link = nullptr;
    makecontext(&self->context, fiber_main, 0);
#elif defined(__x86_64__)
    // What mptune_switch pops: six registers and the address to go on at. The empty slot above stands for the
    // return address a call would have pushed, which the alignment of the stack counts on.
    void** const frame = reinterpret_cast<void**>(stack_top) - 8;
    for (int i = 0; i < 8; ++i) frame[i] = nullptr;
    frame[6] = reinterpret_cast<void*>(fiber_main);
    self->stack = frame;
#else
    void** const frame = reinterpret_cast<void**>(stack_top) - 20;
    for (int i = 0; i < 20; ++i) frame[i] = nullptr;
    frame[11] = reinterpret_cast<void*>(fiber_main);
    self->stack = frame;
#endif
}

// Makes one fiber per thread of the block; false where there is no memory for their stacks.
inline bool block_of_fibers::prepare(dim3 block, void (*main)(), void* main_argument) {
    const unsigned wanted = static_cast<unsigned>(block.x * block.y * block.z);
    body = main;
    argument = main_argument;
    if (fibers == nullptr || count < wanted) {
        release();
        const unsigned long table_bytes = (wanted * sizeof(fiber) + guard_bytes - 1) / guard_bytes * guard_bytes;
        const unsigned long before_bytes = table_bytes + (sizeof(waiting_threads) + guard_bytes - 1) / guard_bytes * guard_bytes;
        const unsigned long bytes = before_bytes + wanted * (guard_bytes + stack_bytes);
        char* const pages = static_cast<char*>(map_pages(bytes));
        if (pages == nullptr) return false;
        fibers = reinterpret_cast<fiber*>(pages);
        waiting = reinterpret_cast<waiting_threads*>(pages + table_bytes);
        mapped_bytes = bytes;
        for (unsigned i = 0; i < wanted; ++i) {
            char* const guard = pages + before_bytes + i * (guard_bytes + stack_bytes);
            // A stack that overflows faults. A system with no mappings left runs without this protection.
            mptune_mprotect(guard, guard_bytes, 0);
            // Stacks a power of two apart would share a few cache sets; moving each by some lines spreads them.
            start_fiber(fibers + i, guard + guard_bytes + stack_bytes - (i % 32) * 192);
        }
    }
    count = wanted;
    for (unsigned i = 0; i < wanted; ++i) {
        const int index = static_cast<int>(i);
        fibers[i].thread = dim3{index % block.x, index / block.x % block.y, index / (block.x * block.y)};
    }
    return true;
}

}  // namespace mptune_host

MPTUNE_OFTEN

namespace mptune_host {

// Runs one block to its end.
inline void block_of_fibers::run() {
    for (unsigned i = 0; i + 1 < count; ++i) fibers[i].next = fibers + i + 1;
    fibers[count - 1].next = fibers;
    previous = fibers + count - 1;
    has_warps = false;
    active_block = this;
    resume(&scheduler, fibers);
}

}  // namespace mptune_host

#endif
