// The memory of a program without a device: where each block of it begins and how long it is. Linked to programs whose
// loops are cut out, which give kernels what the host has.

#include <stddef.h>
#include <string.h>

#include <map>
#include <mutex>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);

// Of recorder.cpp: a block that a kernel was given goes away.
void mptune_host_memory_ends(void* start);
}

namespace {

// Memory for the table itself, which is not in it.
template <class T>
struct apart {
    typedef T value_type;
    apart() = default;
    template <class U>
    apart(const apart<U>&) {}
    T* allocate(size_t count) { return static_cast<T*>(__libc_malloc(count * sizeof(T))); }
    void deallocate(T* block, size_t) { __libc_free(block); }
    template <class U>
    bool operator==(const apart<U>&) const {
        return true;
    }
    template <class U>
    bool operator!=(const apart<U>&) const {
        return false;
    }
};

struct block {
    size_t bytes;
    bool is_given;  // to a kernel
};

typedef std::map<char*, block, std::less<char*>, apart<std::pair<char* const, block>>> table;

// Made when first needed, which is before anything of the program is, and never destroyed.
template <class T>
T& for_ever() {
    alignas(T) static char room[sizeof(T)];
    static T* const one = new (room) T;
    return *one;
}
std::mutex& turn() { return for_ever<std::mutex>(); }
table& blocks() { return for_ever<table>(); }

void* noted(void* start, size_t bytes) {
    if (start != nullptr) {
        const std::lock_guard<std::mutex> now(turn());
        blocks()[static_cast<char*>(start)] = block{bytes, false};
    }
    return start;
}

void forget(void* start) {
    bool is_given = false;
    {
        const std::lock_guard<std::mutex> now(turn());
        const auto found = blocks().find(static_cast<char*>(start));
        if (found == blocks().end()) return;
        is_given = found->second.is_given;
        blocks().erase(found);
    }
    if (is_given) mptune_host_memory_ends(start);
}

}  // namespace

extern "C" {

// Finds the block that a pointer points into; it is now given to a kernel.
bool mptune_host_memory(const void* pointer, void** start, size_t* bytes) {
    const std::lock_guard<std::mutex> now(turn());
    char* const p = static_cast<char*>(const_cast<void*>(pointer));
    auto after = blocks().upper_bound(p);
    if (after == blocks().begin()) return false;
    auto& [first, found] = *--after;
    if (p >= first + found.bytes) return false;
    found.is_given = true;
    *start = first;
    *bytes = found.bytes;
    return true;
}

// All is zero at first, for two runs to see the same.
void* malloc(size_t bytes) { return noted(__libc_calloc(1, bytes), bytes); }
void* calloc(size_t count, size_t bytes) { return noted(__libc_calloc(count, bytes), count * bytes); }
void* memalign(size_t alignment, size_t bytes) {
    void* const start = __libc_memalign(alignment, bytes);
    if (start != nullptr) memset(start, 0, bytes);
    return noted(start, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** start, size_t alignment, size_t bytes) {
    *start = memalign(alignment, bytes);
    return *start == nullptr ? 12 : 0;  // ENOMEM
}
void free(void* start) {
    if (start == nullptr) return;
    forget(start);
    __libc_free(start);
}
void* realloc(void* start, size_t bytes) {
    if (start != nullptr) forget(start);
    return noted(__libc_realloc(start, bytes), bytes);
}

}  // extern "C"

namespace mptune_layer {
void note_host_array(const volatile void* start, size_t bytes) { noted(const_cast<void*>(start), bytes); }
void forget_host_array(const volatile void* start) { forget(const_cast<void*>(start)); }
}  // namespace mptune_layer
