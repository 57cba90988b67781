// Threads that can wait for each other: each thread of a block is a fiber with a stack of its own, and a barrier
// switches to the next fiber that has not ended. Switching round robin, a fiber comes back from a barrier only when
// every other one has reached it (or has returned, which counts as having arrived).

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

static __attribute__((noinline, unused)) void wait_for_block() {
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
    if (self->next == self) return;
    block->previous = self;
    resume(self, self->next);
}

// Takes a fiber whose thread has returned out of the ring; the last one gives the worker back its own stack.
inline __attribute__((noinline)) void end_thread() {
    block_of_fibers* const block = active_block;
    fiber* const self = block->current;
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
        const unsigned long bytes = table_bytes + wanted * (guard_bytes + stack_bytes);
        char* const pages = static_cast<char*>(map_pages(bytes));
        if (pages == nullptr) return false;
        fibers = reinterpret_cast<fiber*>(pages);
        mapped_bytes = bytes;
        for (unsigned i = 0; i < wanted; ++i) {
            char* const guard = pages + table_bytes + i * (guard_bytes + stack_bytes);
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
    active_block = this;
    resume(&scheduler, fibers);
}

}  // namespace mptune_host

#endif
