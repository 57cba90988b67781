// What a program does on the device, recorded while it runs: its memory, copies and launches, and the files it writes.
//
// It stands before the functions of a runtime (MPTUNE_RECORDED) and has these do the work (MPTUNE_REAL), be they those of
// runtime.cpp or CUDA's own. What the device alone may read comes here by copies. A copy or a launch is done when its call
// returns: so the record has one order, and every piece of data its time.
//
// What is recorded goes to the folder $MPTUNE_CAPTURE:
//   operations.jsonl  each operation that differs from all before it, one a line
//   sequence.bin      the operations as they happened: for each the number of its line (4 bytes)
//   contents.bin, contents.jsonl   data of copies to the host, each once: offset and length in the file
//   ended.json        how the record ended, and what kernels took; a program that crashed, or was told to end
//                     (SIGTERM), leaves "crashed" or "stopped" with the launch it was in
// With $MPTUNE_LIVE, a socket's number, nothing is kept: each operation is told there, and somebody else does it. A message
// is the number of the line (4 bytes), behind a new number the line's length (4 bytes) and the line; a copy to the device is
// followed by its data, and of a copy to the host the data are the answer. The end of the socket is the end of the record.
// Kernels that $MPTUNE_OWN names, each between commas, count as part of the host: their memory is copied to it and back, as
// is that of a call of a library.
// Memory that host and device share is copied to the host after each launch that is given it.
// $MPTUNE_CAPTURE_PLAN names a file with the numbers of the copies to the host whose data are kept. With $MPTUNE_LEFT, all
// memory of the device is copied to the host before it is given back. $MPTUNE_WRITES is the folder for files that the
// program writes. With $MPTUNE_CLOCK=N the program's clocks run N times as fast.

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#if !defined(MPTUNE_ON_GPU)
#include "mptune_layer/api.hpp"
#include "mptune_layer/library_calls.hpp"
#endif
#include "recorded.hpp"

extern "C" {
cudaError_t MPTUNE_REAL(cudaMalloc)(void** pointer, size_t bytes);
cudaError_t MPTUNE_REAL(cudaMallocManaged)(void** pointer, size_t bytes, unsigned flags);
cudaError_t MPTUNE_REAL(cudaMallocPitch)(void** pointer, size_t* pitch, size_t width, size_t height);
cudaError_t MPTUNE_REAL(cudaHostAlloc)(void** pointer, size_t bytes, unsigned flags);
cudaError_t MPTUNE_REAL(cudaHostRegister)(void* pointer, size_t bytes, unsigned flags);
cudaError_t MPTUNE_REAL(cudaHostUnregister)(void* pointer);
cudaError_t MPTUNE_REAL(cudaFree)(void* pointer);
cudaError_t MPTUNE_REAL(cudaFreeHost)(void* pointer);
cudaError_t MPTUNE_REAL(cudaMemcpy)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t MPTUNE_REAL(cudaMemset)(void* pointer, int value, size_t bytes);
#if defined(MPTUNE_ON_GPU)
cudaError_t MPTUNE_REAL(cudaMemcpy3D)(const cudaMemcpy3DParms* copy);
#endif

// Of host_memory.cpp, where that is linked.
__attribute__((weak)) bool mptune_host_memory(const void* pointer, void** start, size_t* bytes);
}

namespace mptune_layer {
namespace {

typedef unsigned long long u64;

// Like all that is here, it outlives what the program does at its end.
std::recursive_mutex& turn() {
    static auto* const one = new std::recursive_mutex;
    return *one;
}
typedef std::lock_guard<std::recursive_mutex> held;

u64 from_environment(const char* name, u64 otherwise) {
    const char* const text = getenv(name);
    return text != nullptr && *text != 0 ? strtoull(text, nullptr, 10) : otherwise;
}

u64 nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// -- memory --------------------------------------------------------------------------------------

struct allocation {
    unsigned id;
    char* start;
    size_t bytes;
    const char* kind;  // device, managed, mapped, host, symbol
    std::string name;  // of a symbol
    u64 seen;          // hash of what managed memory held when the device was last through with it
    bool told;         // what was left in it came to the host
    void (*without_padding)(void*, size_t) = nullptr;  // of structs that kernels were given it as
    size_t element_bytes = 0;
};

std::map<char*, allocation>& allocations() {
    static auto* const all = new std::map<char*, allocation>;
    return *all;
}
unsigned next_id = 0;

allocation* find(const void* pointer) {
    char* const p = static_cast<char*>(const_cast<void*>(pointer));
    auto after = allocations().upper_bound(p);
    if (after == allocations().begin()) return nullptr;
    allocation& found = (--after)->second;
    return p < found.start + found.bytes || (p == found.start && found.bytes == 0) ? &found : nullptr;
}

// -- the record ----------------------------------------------------------------------------------

struct digest {
    u64 a, b;
    bool operator==(const digest& other) const { return a == other.a && b == other.b; }
};
struct digest_hash {
    size_t operator()(const digest& d) const { return d.a; }
};

// Eight lanes of a multiplicative hash, so that it runs at the speed of memory.
digest digest_of(const void* data, size_t bytes) {
    u64 lanes[8];
    for (int i = 0; i < 8; ++i) lanes[i] = 0x9e3779b97f4a7c15ull * (i + 1) ^ bytes;
    const char* p = static_cast<const char*>(data);
    size_t left = bytes;
    for (; left >= 64; left -= 64, p += 64) {
        u64 words[8];
        memcpy(words, p, 64);
        for (int i = 0; i < 8; ++i) {
            lanes[i] = (lanes[i] ^ words[i]) * 0xff51afd7ed558ccdull;
            lanes[i] ^= lanes[i] >> 29;
        }
    }
    for (; left > 0; --left, ++p) lanes[left & 7] = (lanes[left & 7] ^ static_cast<unsigned char>(*p)) * 0xc4ceb9fe1a85ec53ull;
    digest d{bytes, ~bytes};
    for (int i = 0; i < 8; ++i) {
        d.a = (d.a ^ lanes[i]) * 0xff51afd7ed558ccdull, d.a ^= d.a >> 33;
        d.b = (d.b + lanes[i]) * 0xc4ceb9fe1a85ec53ull, d.b ^= d.b >> 31;
    }
    return d;
}

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
    char room[512];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(room, sizeof room, format, arguments);
    va_end(arguments);
    return std::string(room, length < static_cast<int>(sizeof room) ? length : sizeof room - 1);
}

std::string quoted(const char* s) {
    std::string out = "\"";
    for (; *s != 0; ++s) {
        if (*s == '"' || *s == '\\') out += '\\';
        if (static_cast<unsigned char>(*s) < ' ') out += ' ';
        else out += *s;
    }
    return out + '"';
}

// The type or number in what a compiler calls a function: "const char* spelled() [with T = double]". g++ writes
// "double* const*" where clang++ writes "double *const *".
std::string after_equals(const char* function) {
    const std::string whole = function;
    const size_t start = whole.find("= ") + 2, end = whole.find(';', start);
    std::string found;
    for (const char c : whole.substr(start, (end == std::string::npos ? whole.rfind(']') : end) - start)) {
        const char last = found.empty() ? '\0' : found.back();
        if (last == ' ' && (c == '*' || c == '&')) found.pop_back();
        if (last == '*' && isalpha(static_cast<unsigned char>(c))) found += ' ';
        found += c;
    }
    return found;
}

// What the launches of a kernel took so far. For a signal as well: in memory that stays where it is.
struct spent {
    const char* kernel;
    u64 launches, nanoseconds;
};
spent all_spent[64];
unsigned spent_count = 0;

void spend(const char* kernel, u64 nanoseconds) {
    unsigned i = 0;
    while (i < spent_count && all_spent[i].kernel != kernel && strcmp(all_spent[i].kernel, kernel) != 0) ++i;
    if (i == sizeof all_spent / sizeof *all_spent) return;
    if (i == spent_count) all_spent[spent_count++].kernel = kernel;
    ++all_spent[i].launches;
    all_spent[i].nanoseconds += nanoseconds;
}

// The same as JSON; returns its length.
int write_spent(char* room, size_t size) {
    int length = snprintf(room, size, "[");
    for (unsigned i = 0; i < spent_count && length < static_cast<int>(size); ++i) {
        const spent& s = all_spent[i];
        length += snprintf(room + length, size - length, "%s{\"kernel\": \"%s\", \"launches\": %llu, \"seconds\": %.6f}",
                           i > 0 ? ", " : "", s.kernel, s.launches, s.nanoseconds * 1e-9);
    }
    if (length < static_cast<int>(size)) length += snprintf(room + length, size - length, "]");
    return length;
}

class recorder {
  public:
    recorder() {
        const char* const path = getenv("MPTUNE_CAPTURE");
        if (path == nullptr || *path == 0) return;
        folder = path;
        if (const u64 number = from_environment("MPTUNE_LIVE", 0)) {
            fcntl(static_cast<int>(number), F_SETFD, FD_CLOEXEC);
            live = fdopen(static_cast<int>(number), "w");
            socket_number = static_cast<int>(number);
            return;
        }
        operations = open_in_folder("operations.jsonl");
        sequence = open_in_folder("sequence.bin");
        const char* const plan = getenv("MPTUNE_CAPTURE_PLAN");
        if (plan != nullptr && *plan != 0) {
            if (FILE* const file = fopen(plan, "r")) {
                u64 number;
                while (fscanf(file, "%llu", &number) == 1) wanted.insert(number);
                fclose(file);
            }
            data = open_in_folder("contents.bin");
            index = open_in_folder("contents.jsonl");
        }
    }

    bool is_on() const { return operations != nullptr || live != nullptr; }
    // Whether somebody else does the operations.
    bool is_live() const { return live != nullptr; }
    // Whether the data of the next operation are wanted.
    bool wants() const { return wanted.count(count) != 0; }
    // Whether a kernel runs here even if somebody else does the operations.
    bool runs_itself(const char* kernel) const {
        const std::string name = "," + std::string(kernel, strcspn(kernel, "<")) + ",";
        const char* const all = getenv("MPTUNE_OWN");
        return all != nullptr && strstr(all, name.c_str()) != nullptr;
    }

    // Notes an operation; a line that was there before is not written again.
    void note(const std::string& line) {
        if (!is_on()) return;
        ++count;
        if (line_bytes > line_limit) {
            ++operations_left_out;
            return;
        }
        auto [at, is_new] = lines.try_emplace(digest_of(line.data(), line.size()), static_cast<unsigned>(lines.size()));
        if (live != nullptr) {
            const unsigned length = line.size();
            tell(&at->second, sizeof at->second);
            if (is_new) tell(&length, sizeof length), tell(line.data(), length);
            return;
        }
        if (is_new) {
            fwrite(line.data(), 1, line.size(), operations);
            fputc('\n', operations);
            line_bytes += line.size();
        }
        fwrite(&at->second, sizeof at->second, 1, sequence);
    }

    // Keeps data and returns their key as JSON.
    std::string keep(const void* start, size_t bytes) {
        const auto [at, is_new] = keys.try_emplace(digest_of(start, bytes), static_cast<unsigned>(keys.size()));
        if (is_new) {
            fwrite(start, 1, bytes, data);
            fprintf(index, "{\"offset\": %llu, \"bytes\": %zu}\n", written, bytes);
            written += bytes;
        }
        return text("%u", at->second);
    }

    // Data of the operation that was noted last: to whoever does it, or from there.
    void tell(const void* data, size_t bytes) {
        if (fwrite(data, 1, bytes, live) != bytes) hang_up();
    }
    void ask(void* data, size_t bytes) {
        if (fflush(live) != 0) hang_up();
        for (char* p = static_cast<char*>(data); bytes > 0;) {
            const ssize_t found = ::read(socket_number, p, bytes);
            if (found < 0 && errno == EINTR) continue;
            if (found <= 0) hang_up();
            p += found, bytes -= found;
        }
    }

    bool is_of_this_process() const { return getpid() == owner; }

    void runs_on(const char* name) { device = name; }

    void wrote_file(const char* asked, const char* real) { files[asked] = real; }

    void end(const char* how) {
        if (!is_on()) return;
        for (FILE* const each : {live, operations, sequence, data, index})
            if (each != nullptr) fflush(each);
        if (FILE* const file = open_in_folder("ended.json")) {
            fprintf(file, "{\"ended\": %s, \"device\": %s, \"operations\": %llu, \"operations_left_out\": %llu, ", quoted(how).c_str(),
                    quoted(device.c_str()).c_str(), count, operations_left_out);
            static char kernels[1 << 16];
            write_spent(kernels, sizeof kernels);
            fprintf(file, "\"kernels\": %s, \"files\": {", kernels);
            const char* comma = "";
            for (const auto& [asked, real] : files) {
                fprintf(file, "%s%s: %s", comma, quoted(asked.c_str()).c_str(), quoted(real.c_str()).c_str());
                comma = ", ";
            }
            fputs("}}\n", file);
            fclose(file);
        }
    }

    // A fork of the program may have the socket open for longer.
    void hang_up_in_order() {
        if (live != nullptr && is_of_this_process()) fflush(live), shutdown(socket_number, SHUT_RDWR);
    }

    // For a signal: notes where a program was with nothing but system calls.
    void ended_by(int number, const site* at, u64 since) {
        if (!is_on()) return;
        static char path[PATH_MAX], message[1 << 14];
        snprintf(path, sizeof path, "%s/ended.json", folder.c_str());
        const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
        if (file < 0) return;
        int length = snprintf(message, sizeof message, "{\"ended\": \"%s\", \"signal\": %d, \"kernels\": ",
                              number == SIGTERM ? "stopped" : "crashed", number);
        length += write_spent(message + length, sizeof message / 2);
        if (at != nullptr) {
            length += snprintf(message + length, sizeof message - length,
                               ", \"kernel\": \"%s\", \"file\": \"%s\", \"line\": %d, \"running_s\": %.3f", at->kernel,
                               at->file, at->line, (nanoseconds() - since) * 1e-9);
        }
        length += snprintf(message + length, sizeof message - length, "}\n");
        if (::write(file, message, length) < 0) return;
        ::close(file);
    }

  private:
    // Nobody does the operations any more.
    [[noreturn]] static void hang_up() { syscall(SYS_exit_group, 97), __builtin_unreachable(); }

    FILE* open_in_folder(const char* name) { return fopen((folder + "/" + name).c_str(), "w"); }

    static constexpr size_t line_limit = 1 << 27;
    const pid_t owner = getpid();
    std::string folder, device;
    FILE *operations = nullptr, *sequence = nullptr, *data = nullptr, *index = nullptr, *live = nullptr;
    int socket_number = -1;
    std::set<u64> wanted;
    std::unordered_map<digest, unsigned, digest_hash> lines, keys;
    std::map<std::string, std::string> files;
    u64 count = 0, written = 0, operations_left_out = 0;
    size_t line_bytes = 0;
};

const site* running = nullptr;
u64 running_since = 0;

recorder& record();

void crash(int number) {
    record().ended_by(number, running, running_since);
    signal(number, SIG_DFL);
    raise(number);
}

void at_end();

recorder& record() {
    static recorder* const one = [] {
        auto* const made = new recorder;
        if (made->is_on()) {
            atexit(at_end);
            at_quick_exit(at_end);
            // On a stack of its own: that of a fiber may be what is full.
            static char stack[1 << 16];
            stack_t alternate{};
            alternate.ss_sp = stack;
            alternate.ss_size = sizeof stack;
            sigaltstack(&alternate, nullptr);
            struct sigaction action {};
            action.sa_handler = crash;
            action.sa_flags = SA_ONSTACK | SA_RESETHAND;
            for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM}) sigaction(number, &action, nullptr);
        }
        return made;
    }();
    return *one;
}

bool is_shared_with_host(const allocation& a) { return a.kind[0] == 'm' || a.kind[0] == 'h'; }

void note_allocation(const allocation& a) {
    record().note(text("{\"op\": \"allocate\", \"id\": %u, \"bytes\": %zu, \"kind\": \"%s\", \"name\": %s}", a.id, a.bytes,
                       a.kind, quoted(a.name.c_str()).c_str()));
}

std::string place(const allocation& a, const void* p) {
    return text("[%u, %lld]", a.id, static_cast<long long>(static_cast<const char*>(p) - a.start));
}

// Where the host can read what is in memory, until the next call; null if it cannot be had. The device's own is copied:
// there the host has no access.
const void* readable(const allocation& a, const void* at, size_t bytes) {
    if (is_shared_with_host(a)) return at;
    static char* room = nullptr;
    static size_t room_bytes = 0;
    if (bytes > room_bytes) {
        free(room);
        room = static_cast<char*>(malloc(bytes));
        room_bytes = room != nullptr ? bytes : 0;
    }
    return room != nullptr && MPTUNE_REAL(cudaMemcpy)(room, at, bytes, cudaMemcpyDeviceToHost) == cudaSuccess ? room : nullptr;
}

// Of structs that come to the host the fields are told; what is between them differs from run to run.
u64 digest_of_fields(const allocation& a, const void* at, const void* content, size_t bytes) {
    const size_t offset = static_cast<const char*>(at) - a.start;
    if (a.without_padding == nullptr || offset % a.element_bytes != 0) return digest_of(content, bytes).a;
    std::vector<max_align_t> room(bytes / sizeof(max_align_t) + 1);
    memcpy(room.data(), content, bytes);
    a.without_padding(room.data(), bytes);
    return digest_of(room.data(), bytes).a;
}

// Structs of one type are in an allocation if kernels are given it as nothing else.
void see_elements(const argument& a) {
    if (a.kind != 'p') return;
    const void* pointer;
    memcpy(&pointer, a.address, sizeof pointer);
    allocation* const target = pointer != nullptr ? find(pointer) : nullptr;
    if (target == nullptr) return;
    const bool is_first = target->element_bytes == 0, is_same = target->without_padding == a.without_padding;
    target->without_padding = is_first || is_same ? a.without_padding : nullptr;
    target->element_bytes = target->without_padding != nullptr ? a.element_bytes : SIZE_MAX;
}

void note_copy(const char* kind, const std::string& to, const std::string& from, size_t bytes, const std::string& more = "") {
    record().note(text("{\"op\": \"copy\", \"kind\": \"%s\", \"to\": %s, \"from\": %s, \"bytes\": %zu%s}", kind, to.c_str(),
                       from.c_str(), bytes, more.c_str()));
}

// What the host gave the device: at a place there, from where it can be read.
void note_copy_to_device(const allocation& target, const void* to, const void* content, size_t bytes,
                         const std::string& more = "") {
    recorder& r = record();
    if (!r.is_on()) return;
    const char* const first = static_cast<const char*>(content);
    const bool is_zero = !r.is_live() && *first == 0 && memcmp(first, first + 1, bytes - 1) == 0;
    note_copy("to_device", place(target, to), "null", bytes, (is_zero ? ", \"zero\": true" : "") + more);
    if (r.is_live()) r.tell(content, bytes);
}

// The number of a place in the host's memory that something is copied to: in the order in which they come.
int host_place(const void* to, size_t bytes) {
    static auto* const known = new std::map<std::pair<const void*, size_t>, int>;
    return known->try_emplace({to, bytes}, static_cast<int>(known->size())).first->second;
}

// What the host took back. In place of a place on the host -2: for a kernel that is part of the host, or a call of a library
// that only answers; -4: for a call of a library that changes memory.
void note_copy_to_host(const allocation& source, const void* from, void* content, size_t bytes, int at,
                       const std::string& by = "") {
    recorder& r = record();
    if (!r.is_on()) return;
    std::string more = text(", \"host\": %d", at) + by;
    if (!r.is_live()) {
        more += text(", \"digest\": \"%016llx\"", digest_of_fields(source, from, content, bytes));
        if (r.wants()) more += ", \"contents\": " + r.keep(content, bytes);
    }
    note_copy("to_host", "null", place(source, from), bytes, more);
    if (r.is_live()) r.ask(content, bytes);
}

// The same of memory that the host shares.
void tell_host(allocation& a) {
    note_copy_to_host(a, a.start, a.start, a.bytes, -1);
    a.seen = digest_of(a.start, a.bytes).a;
}

// The host may write memory that it shares with the device whenever no kernel runs; that is a copy to the device.
void see_writes_of_host() {
    if (!record().is_on()) return;
    for (auto& [start, a] : allocations()) {
        if (!is_shared_with_host(a)) continue;
        const u64 now = digest_of(a.start, a.bytes).a;
        if (now == a.seen) continue;
        a.seen = now;
        note_copy_to_device(a, a.start, a.start, a.bytes);
    }
}

// Memory goes away that the program may never have looked at.
void tell_left(allocation& a) {
    if (a.kind[0] != 'd' || a.told || !from_environment("MPTUNE_LEFT", 0)) return;
    a.told = true;
    if (const void* const content = readable(a, a.start, a.bytes)) {
        note_copy_to_host(a, a.start, const_cast<void*>(content), a.bytes, -1);
    }
}

void at_end() {
    if (!record().is_on() || !record().is_of_this_process()) return;  // a fork ends, too
    const held now(turn());
    for (auto& [start, a] : allocations()) tell_left(a);
    record().end("normally");
}

// -- allocations, copies, fills ------------------------------------------------------------------

// Where a variable is in the device's memory, which the host knows by another address; null if that cannot be had.
void* address_of(const void* variable) {
#if defined(MPTUNE_ON_GPU)
    void* found = nullptr;
    return (cudaGetSymbolAddress)(&found, variable) == cudaSuccess ? found : nullptr;
#else
    return const_cast<void*>(variable);
#endif
}

// Nothing is left of what was there before: two runs then see the same. The memory of runtime.cpp is so by itself.
void clear([[maybe_unused]] void* start, [[maybe_unused]] size_t bytes) {
#if defined(MPTUNE_ON_GPU)
    MPTUNE_REAL(cudaMemset)(start, 0, bytes);
    cudaDeviceSynchronize();
#endif
}

// Called when the device is first used. CUDA's runtime, which began after the record did, takes its memory away before the
// record ends: what the host may have read there is told earlier, since what is registered last is called first.
void begin_device() {
    static bool has_begun = false;
    if (has_begun || !record().is_on()) return;
    has_begun = true;
    atexit(at_end);
    int device = 0;
    cudaDeviceProp about;
    if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&about, device) == cudaSuccess) {
        record().runs_on(about.name);
    }
}

cudaError_t allocated(cudaError_t error, void** pointer, size_t bytes, const char* kind) {
    if (error != cudaSuccess || *pointer == nullptr) return error;
    begin_device();
    char* const start = static_cast<char*>(*pointer);
    allocation made{next_id++, start, bytes, kind, "", 0, false};
    if (strcmp(kind, "mapped") != 0) clear(start, bytes);
    if (is_shared_with_host(made) && record().is_on()) made.seen = digest_of(start, bytes).a;
    note_allocation(allocations()[start] = made);
    return error;
}

// Memory is about to be given back.
void forget(void* pointer) {
    const auto found = allocations().find(static_cast<char*>(pointer));
    if (found == allocations().end() || found->second.kind[0] == 's') return;
    tell_left(found->second);
    record().note(text("{\"op\": \"free\", \"id\": %u}", found->second.id));
    allocations().erase(found);
}

allocation* symbol(const char* name, const void* variable, size_t bytes) {
    char* const start = static_cast<char*>(address_of(variable));
    if (start == nullptr) return nullptr;
    if (allocation* const known = find(start)) return known;
    while (*name == '&' || *name == ' ' || *name == '(') ++name;
    begin_device();
    allocation& kept = allocations()[start] = allocation{next_id++, start, bytes, "symbol", name, 0, false};
    note_allocation(kept);
    if (record().is_live()) {  // no kernel has written to it here
        note_copy("to_device", place(kept, start), "null", bytes, ", \"host\": -3");
        record().tell(start, bytes);
    }
    return &kept;
}

// The error of a runtime that is given what it cannot take.
cudaError_t refused() { return MPTUNE_REAL(cudaMemcpy)(nullptr, nullptr, 1, cudaMemcpyHostToHost); }

bool is_within(const allocation* a, const void* p, size_t bytes) {
    return a == nullptr || static_cast<const char*>(p) + bytes <= a->start + a->bytes;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, const std::string& by = "") {
    if (bytes == 0) return cudaSuccess;
    if (to == nullptr || from == nullptr) return refused();
    const held now(turn());
    cudaDeviceSynchronize();
    see_writes_of_host();
    allocation *const target = find(to), *const source = find(from);
    if (!is_within(target, to, bytes) || !is_within(source, from, bytes)) return refused();
    const bool is_elsewhere = record().is_live() && (target != nullptr || source != nullptr);
    const cudaError_t error = is_elsewhere ? cudaSuccess : MPTUNE_REAL(cudaMemcpy)(to, from, bytes, kind);
    if (error != cudaSuccess) return error;
    if (target != nullptr && source != nullptr) note_copy("on_device", place(*target, to), place(*source, from), bytes, by);
    else if (target != nullptr) note_copy_to_device(*target, to, from, bytes, by);
    else if (source != nullptr) note_copy_to_host(*source, from, to, bytes, host_place(to, bytes), by);
    if (target != nullptr && is_shared_with_host(*target) && record().is_on()) {
        if (source != nullptr) tell_host(*target);
        else target->seen = digest_of(target->start, target->bytes).a;
    }
    return cudaSuccess;
}

cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                      cudaMemcpyKind kind) {
    if (width == to_pitch && width == from_pitch) return copy(to, from, width * height, kind);
    if (width > to_pitch || width > from_pitch) return refused();
    for (size_t i = 0; i < height; ++i) {
        const cudaError_t error =
            copy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, width, kind);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t fill(void* pointer, int value, size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    const held now(turn());
    cudaDeviceSynchronize();
    allocation* const target = find(pointer);
    if (target == nullptr || !is_within(target, pointer, bytes)) return refused();
    see_writes_of_host();
    const cudaError_t error = record().is_live() ? cudaSuccess : MPTUNE_REAL(cudaMemset)(pointer, value, bytes);
    if (error != cudaSuccess) return error;
    cudaDeviceSynchronize();
    record().note(text("{\"op\": \"fill\", \"to\": %s, \"byte\": %d, \"bytes\": %zu}", place(*target, pointer).c_str(),
                       value & 255, bytes));
    if (is_shared_with_host(*target) && record().is_on()) tell_host(*target);
    return cudaSuccess;
}

// -- launches ------------------------------------------------------------------------------------

// Memory of the host that a kernel is given is the device's, too, from then on.
void take_host_memory(const argument* arguments, unsigned count) {
    if (mptune_host_memory == nullptr) return;
    for (unsigned i = 0; i < count; ++i) {
        for (unsigned at = 0; at + sizeof(void*) <= arguments[i].bytes && strchr("ps", arguments[i].kind); at += sizeof(void*)) {
            void *pointer, *start;
            size_t bytes;
            memcpy(&pointer, static_cast<const char*>(arguments[i].address) + at, sizeof pointer);
            if (pointer == nullptr || find(pointer) != nullptr || !mptune_host_memory(pointer, &start, &bytes)) continue;
            allocation made{next_id++, static_cast<char*>(start), bytes, "host", "", 0, false};
            if (record().is_on()) made.seen = ~digest_of(start, bytes).a;  // what is in it is new
            note_allocation(allocations()[made.start] = made);
        }
    }
}

// Whether there is memory at an address: fields that nobody set have what was there before.
bool is_address(const void* pointer) {
    const size_t page = sysconf(_SC_PAGE_SIZE), address = reinterpret_cast<size_t>(pointer);
    unsigned char is_there;
    return address >> 32 != 0 && address >> 47 == 0 && mincore(reinterpret_cast<void*>(address / page * page), 1, &is_there) == 0;
}

std::string described(const argument& a) {
    std::string hex;
    for (unsigned i = 0; i < a.bytes; ++i) hex += text("%02x", static_cast<const unsigned char*>(a.address)[i]);
    if (a.kind == 'p') {
        const void* pointer;
        memcpy(&pointer, a.address, sizeof pointer);
        if (pointer == nullptr) return "{\"kind\": \"pointer\", \"to\": null}";
        allocation* const target = find(pointer);
        if (target == nullptr) return "{\"kind\": \"pointer\", \"to\": \"unknown\"}";
        return "{\"kind\": \"pointer\", \"to\": " + place(*target, pointer) + "}";
    }
    if (a.kind != 's') return text("{\"kind\": \"%c%u\", \"value\": \"%s\"}", a.kind, a.bytes, hex.c_str());
    // Pointers in a structure are found by what they point to.
    std::string pointers;
    for (unsigned i = 0; i + sizeof(void*) <= a.bytes; i += sizeof(void*)) {
        const void* pointer;
        memcpy(&pointer, static_cast<const char*>(a.address) + i, sizeof pointer);
        allocation* const target = pointer != nullptr ? find(pointer) : nullptr;
        if (target == nullptr && !is_address(pointer)) continue;
        // Addresses differ from run to run, what they point to does not.
        hex.replace(2 * i, 2 * sizeof(void*), std::string(2 * sizeof(void*), '0'));
        const std::string to = target != nullptr ? place(*target, pointer) : "\"unknown\"";
        pointers += (pointers.empty() ? "" : ", ") + text("[%u, %s]", i, to.c_str());
    }
    return text("{\"kind\": \"struct\", \"bytes\": %u, \"value\": \"", a.bytes) + hex + "\", \"pointers\": [" + pointers + "]}";
}

// The allocations that a launch can reach through its arguments, and all variables in device memory. With types, what is
// passed as const is left out.
std::vector<allocation*> reached(const argument* arguments, unsigned count, const char* const* types = nullptr) {
    std::set<allocation*> found;
    for (unsigned i = 0; i < count; ++i) {
        const std::string type = types != nullptr ? after_equals(types[i]) : "";
        if (type.rfind("const ", 0) == 0 && type.find('*') == type.size() - 1) continue;
        for (unsigned at = 0; at + sizeof(void*) <= arguments[i].bytes; at += sizeof(void*)) {
            const void* pointer;
            memcpy(&pointer, static_cast<const char*>(arguments[i].address) + at, sizeof pointer);
            if (allocation* const a = pointer != nullptr ? find(pointer) : nullptr) found.insert(a);
        }
    }
    for (auto& [start, a] : allocations()) {
        if (a.kind[0] == 's') found.insert(&a);
    }
#if !defined(MPTUNE_ON_GPU)
    const void* textures[256];
    for (unsigned i = mptune_memory_of_textures(textures, 256); i-- > 0;) {
        if (allocation* const a = find(textures[i])) found.insert(a);
    }
#endif
    return {found.begin(), found.end()};
}

// Adds the allocations that pointers in memory lead to.
void reach_further(const allocation& from, std::vector<allocation*>& found) {
    const void* const content = record().is_live() ? from.start : readable(from, from.start, from.bytes);
    if (content == nullptr) return;
    const char* const first = allocations().begin()->first;
    const char* const last = allocations().rbegin()->first + allocations().rbegin()->second.bytes;
    for (size_t at = 0; at + sizeof(void*) <= from.bytes; at += sizeof(void*)) {
        const char* pointer;
        memcpy(&pointer, static_cast<const char*>(content) + at, sizeof pointer);
        if (pointer < first || pointer >= last) continue;
        allocation* const a = find(pointer);
        if (a != nullptr && std::find(found.begin(), found.end(), a) == found.end()) found.push_back(a);
    }
}

// Memory comes to the host, where something is about to work on it in place of the device.
void bring_to_host(const std::vector<allocation*>& touched, int at, const std::string& by = "") {
    for (allocation* const a : touched) {
        void* const content = record().is_live() ? a->start : const_cast<void*>(readable(*a, a->start, a->bytes));
        if (content == nullptr) continue;
        note_copy_to_host(*a, a->start, content, a->bytes, at, by);
        a->seen = digest_of(content, a->bytes).a;
    }
}

// What that has changed goes back.
void give_back(const std::vector<allocation*>& touched, const std::string& by = "") {
    for (allocation* const a : touched) {
        const void* const content = readable(*a, a->start, a->bytes);
        if (content == nullptr) continue;
        const u64 now = digest_of(content, a->bytes).a;
        if (now != a->seen) note_copy_to_device(*a, a->start, content, a->bytes, ", \"host\": -2" + by);
        a->seen = now;
    }
}

}  // namespace

const char* label(const char* name, const char* const* arguments, unsigned count) {
    static auto* const known = new std::set<std::string>;
    const held now(turn());
    std::string whole = std::string(name) + "<";
    for (unsigned i = 0; i < count; ++i) whole += (i > 0 ? ", " : "") + after_equals(arguments[i]);
    return known->insert(whole + ">").first->c_str();
}

void launch(const site& at, const prepared& kernel, const extents& shape) {
    const held now(turn());
    const dim3 grid = shape.grid, threads = shape.block;
    const argument* const arguments = kernel.arguments;
    const unsigned count = kernel.count;
    recorder& r = record();
    std::string line;
    std::vector<allocation*> touched;
    begin_device();
    take_host_memory(arguments, count);
    if (r.is_on()) {
        see_writes_of_host();
        line = "{\"op\": \"launch\", \"kernel\": " + quoted(at.kernel) + ", \"file\": " + quoted(at.file) +
               text(", \"line\": %d, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared_bytes\": %zu, ", at.line, grid.x,
                    grid.y, grid.z, threads.x, threads.y, threads.z, shape.shared);
        line += "\"types\": [";
        for (unsigned i = 0; i < count; ++i) line += (i > 0 ? ", " : "") + quoted(after_equals(kernel.types[i]).c_str());
        line += "], \"arguments\": [";
        for (unsigned i = 0; i < count; ++i) line += (i > 0 ? ", " : "") + described(arguments[i]);
        line += "]";
    }
    const bool is_own = r.is_on() && r.runs_itself(at.kernel);
    if (is_own) {
        touched = reached(arguments, count);
        for (size_t i = 0; i < touched.size(); ++i) {
            bring_to_host({touched[i]}, -2);
            reach_further(*touched[i], touched);
        }
    }
    const site* const outer = running;
    running = &at;
    const u64 began = running_since = nanoseconds();
#if defined(MPTUNE_ON_GPU)
    cudaError_t error = kernel.start(kernel.call, shape);
#else
    cudaError_t error = r.is_live() && !is_own ? check_shape(shape) : kernel.start(kernel.call, shape);
#endif
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    spend(at.kernel, nanoseconds() - began);
    running = outer;
    if (error != cudaSuccess) return;
    for (unsigned i = 0; i < count; ++i) see_elements(arguments[i]);
    if (is_own) {
        give_back(touched);
    } else if (r.is_on()) {
        r.note(line + "}");
        // (What is const may be in memory that nobody can write.)
        for (allocation* const a : reached(arguments, count, kernel.types)) {
            if (is_shared_with_host(*a)) tell_host(*a);
        }
    }
}

#if !defined(MPTUNE_ON_GPU)
// -- calls of libraries --------------------------------------------------------------------------

void open_memory(bool is_open);  // of runtime.cpp

namespace {

// The outermost call: a function of a library may use others.
struct {
    unsigned depth = 0;
    std::vector<std::pair<allocation*, std::string>> touched;
} library;

std::string told_by(const char* name, const char* element) {
    return text(", \"by\": \"%s\"", name) + (*element != 0 ? text(", \"type\": \"%s\"", element) : "");
}

}  // namespace

cudaError_t copy_for_library(const char* name, const char* element, void* to, const void* from, size_t bytes) {
    return copy(to, from, bytes, cudaMemcpyDefault, told_by(name, element));
}

void begin_library_call(const char* name, library_call_kind kind, const given* arguments, unsigned count) {
    turn().lock();
    if (library.depth++ > 0) return;
    begin_device();
    see_writes_of_host();
    std::map<allocation*, const char*> found;
    for (unsigned i = 0; i < count && record().is_on(); ++i) {
        const argument each{arguments[i].address, arguments[i].bytes, 0, nullptr, 0};
        const bool is_pointer = *arguments[i].element != 0;
        for (allocation* const a : reached(&each, 1)) {
            if (a->kind[0] == 's' && is_pointer) continue;
            const char*& element = found.try_emplace(a, "").first->second;
            if (is_pointer) element = arguments[i].element;
        }
    }
    for (const auto& [a, element] : found) {
        library.touched.emplace_back(a, told_by(name, element));
        bring_to_host({a}, kind == answers ? -2 : -4, library.touched.back().second);
    }
    open_memory(true);
}

void end_library_call() {
    if (--library.depth == 0) {
        open_memory(false);
        for (const auto& [a, by] : library.touched) give_back({a}, by);
        library.touched.clear();
    }
    turn().unlock();
}
#endif

}  // namespace mptune_layer

using namespace mptune_layer;

// -- graphs --------------------------------------------------------------------------------------

// What a stream does while it is captured, and the streams that wait for it: in the order of the calls.
struct CUgraph_st {
    std::vector<std::shared_ptr<deferred>> operations;
};
struct CUgraphExec_st {
    CUgraph_st graph;
};
static CUgraph_st* captured = nullptr;

namespace mptune_layer {
bool is_captured(cudaStream_t stream) { return captured != nullptr && stream != nullptr; }
void defer(deferred* operation) { captured->operations.emplace_back(operation); }
}  // namespace mptune_layer

// Does something of a stream, or leaves it to the graph that the stream is captured for.
template <class F>
static cudaError_t in_stream(cudaStream_t stream, F operation) {
    const held now(turn());
    if (!is_captured(stream)) return operation();
    defer_call(operation);
    return cudaSuccess;
}

// -- what stands before the runtime --------------------------------------------------------------

extern "C" {

cudaError_t MPTUNE_RECORDED(cudaStreamBeginCapture)(cudaStream_t, cudaStreamCaptureMode) {
    const held now(turn());
    if (captured != nullptr) return refused();
    captured = new CUgraph_st;
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaStreamEndCapture)(cudaStream_t, cudaGraph_t* graph) {
    const held now(turn());
    if (captured == nullptr) return refused();
    *graph = captured;
    captured = nullptr;
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaStreamIsCapturing)(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    *status = is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaGraphInstantiate)(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
    if (graph == nullptr) return refused();
    *ready = new CUgraphExec_st{*graph};
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaGraphInstantiateWithFlags)(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
    return MPTUNE_RECORDED(cudaGraphInstantiate)(ready, graph, 0);
}
cudaError_t MPTUNE_RECORDED(cudaGraphUpload)(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t MPTUNE_RECORDED(cudaGraphLaunch)(cudaGraphExec_t ready, cudaStream_t) {
    const held now(turn());
    if (ready == nullptr) return refused();
    for (const auto& operation : ready->graph.operations) operation->run();
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaGraphGetNodes)(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
        nodes[i] = i < graph->operations.size() ? reinterpret_cast<cudaGraphNode_t>(graph->operations[i].get()) : nullptr;
    }
    *count = graph->operations.size();
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaGraphExecDestroy)(cudaGraphExec_t ready) {
    delete ready;
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaGraphDestroy)(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t MPTUNE_RECORDED(cudaMalloc)(void** pointer, size_t bytes) {
    const held now(turn());
    return allocated(MPTUNE_REAL(cudaMalloc)(pointer, bytes), pointer, bytes, "device");
}
cudaError_t MPTUNE_RECORDED(cudaMallocAsync)(void** pointer, size_t bytes, cudaStream_t) {
    return MPTUNE_RECORDED(cudaMalloc)(pointer, bytes);
}
cudaError_t MPTUNE_RECORDED(cudaMallocManaged)(void** pointer, size_t bytes, unsigned flags) {
    const held now(turn());
    return allocated(MPTUNE_REAL(cudaMallocManaged)(pointer, bytes, flags), pointer, bytes, "managed");
}
cudaError_t MPTUNE_RECORDED(cudaMallocPitch)(void** pointer, size_t* pitch, size_t width, size_t height) {
    const held now(turn());
    const cudaError_t error = MPTUNE_REAL(cudaMallocPitch)(pointer, pitch, width, height);
    return error != cudaSuccess ? error : allocated(error, pointer, *pitch * height, "device");
}
cudaError_t MPTUNE_RECORDED(cudaMalloc3D)(cudaPitchedPtr* pitched, cudaExtent extent) {
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return MPTUNE_RECORDED(cudaMallocPitch)(&pitched->ptr, &pitched->pitch, extent.width, extent.height * extent.depth);
}
// Memory of the host that kernels do not see is the host's own affair.
cudaError_t MPTUNE_RECORDED(cudaHostAlloc)(void** pointer, size_t bytes, unsigned flags) {
    const held now(turn());
    const cudaError_t error = MPTUNE_REAL(cudaHostAlloc)(pointer, bytes, flags);
    return flags & cudaHostAllocMapped ? allocated(error, pointer, bytes, "mapped") : error;
}
cudaError_t MPTUNE_RECORDED(cudaHostRegister)(void* pointer, size_t bytes, unsigned flags) {
    const held now(turn());
    const cudaError_t error = MPTUNE_REAL(cudaHostRegister)(pointer, bytes, flags);
    if (error != cudaSuccess) return error;
    char* const start = static_cast<char*>(pointer);
    note_allocation(allocations()[start] = allocation{next_id++, start, bytes, "mapped", "registered", 0, false});
    return error;
}
cudaError_t MPTUNE_RECORDED(cudaHostUnregister)(void* pointer) {
    const held now(turn());
    const allocation* const found = find(pointer);
    if (found != nullptr && found->name == "registered") forget(found->start);
    return MPTUNE_REAL(cudaHostUnregister)(pointer);
}
cudaError_t MPTUNE_RECORDED(cudaFree)(void* pointer) {
    const held now(turn());
    cudaDeviceSynchronize();
    forget(pointer);
    return MPTUNE_REAL(cudaFree)(pointer);
}
cudaError_t MPTUNE_RECORDED(cudaFreeAsync)(void* pointer, cudaStream_t) { return MPTUNE_RECORDED(cudaFree)(pointer); }
cudaError_t MPTUNE_RECORDED(cudaFreeHost)(void* pointer) {
    const held now(turn());
    cudaDeviceSynchronize();
    forget(pointer);
    return MPTUNE_REAL(cudaFreeHost)(pointer);
}
// What was allocated stays until the program ends: the host may have read what it shares.
cudaError_t MPTUNE_RECORDED(cudaDeviceReset)() { return cudaDeviceSynchronize(); }

cudaError_t MPTUNE_RECORDED(cudaMemcpy)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return copy(to, from, bytes, kind);
}
cudaError_t MPTUNE_RECORDED(cudaMemcpyAsync)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                             cudaStream_t stream) {
    return in_stream(stream, [=] { return copy(to, from, bytes, kind); });
}
cudaError_t MPTUNE_RECORDED(cudaMemcpyPeer)(void* to, int, const void* from, int, size_t bytes) {
    return copy(to, from, bytes, cudaMemcpyDefault);
}
cudaError_t MPTUNE_RECORDED(cudaMemcpyPeerAsync)(void* to, int, const void* from, int, size_t bytes, cudaStream_t) {
    return copy(to, from, bytes, cudaMemcpyDefault);
}
cudaError_t MPTUNE_RECORDED(cudaMemcpy2D)(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                          size_t height, cudaMemcpyKind kind) {
    return copy_rows(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t MPTUNE_RECORDED(cudaMemcpy2DAsync)(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                               size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return in_stream(stream, [=] { return copy_rows(to, to_pitch, from, from_pitch, width, height, kind); });
}
cudaError_t MPTUNE_RECORDED(cudaMemcpy3D)(const cudaMemcpy3DParms* p) {
#if defined(MPTUNE_ON_GPU)
    if (p->srcArray != nullptr || p->dstArray != nullptr) return MPTUNE_REAL(cudaMemcpy3D)(p);
#else
    if (p->srcArray != nullptr || p->dstArray != nullptr) {  // whose places and extents are in elements
        cudaMemcpy3DParms rows = *p;
        const cudaArray& array = *(p->srcArray != nullptr ? p->srcArray : p->dstArray);
        const auto as_rows = [](const cudaArray* a, cudaPitchedPtr& at, cudaPos& first) {
            if (a == nullptr) return;
            const size_t pitch = a->extent.width * a->element_bytes;
            at = {a->start, pitch, pitch, a->extent.height > 0 ? a->extent.height : 1};
            first.x *= a->element_bytes;
        };
        as_rows(p->srcArray, rows.srcPtr, rows.srcPos);
        as_rows(p->dstArray, rows.dstPtr, rows.dstPos);
        rows.extent.width *= array.element_bytes;
        rows.srcArray = rows.dstArray = nullptr;
        return MPTUNE_RECORDED(cudaMemcpy3D)(&rows);
    }
#endif
    for (size_t z = 0; z < p->extent.depth; ++z) {
        const auto at = [z](const cudaPitchedPtr& whole, const cudaPos& first) {
            const size_t rows = (first.z + z) * whole.ysize + first.y;
            return static_cast<char*>(whole.ptr) + rows * whole.pitch + first.x;
        };
        const cudaError_t error = copy_rows(at(p->dstPtr, p->dstPos), p->dstPtr.pitch, at(p->srcPtr, p->srcPos),
                                            p->srcPtr.pitch, p->extent.width, p->extent.height, p->kind);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}
cudaError_t MPTUNE_RECORDED(cudaMemcpy3DAsync)(const cudaMemcpy3DParms* p, cudaStream_t stream) {
    return in_stream(stream, [kept = *p] { return MPTUNE_RECORDED(cudaMemcpy3D)(&kept); });
}
cudaError_t MPTUNE_RECORDED(cudaMemset)(void* pointer, int value, size_t bytes) { return fill(pointer, value, bytes); }
cudaError_t MPTUNE_RECORDED(cudaMemsetAsync)(void* pointer, int value, size_t bytes, cudaStream_t stream) {
    return in_stream(stream, [=] { return fill(pointer, value, bytes); });
}
cudaError_t MPTUNE_RECORDED(cudaLaunchHostFunc)(cudaStream_t stream, cudaHostFn_t called, void* data) {
    return in_stream(stream, [=] { return called(data), cudaSuccess; });
}
cudaError_t MPTUNE_RECORDED(cudaMemset2D)(void* pointer, size_t pitch, int value, size_t width, size_t height) {
    for (size_t i = 0; i < height; ++i) {
        const cudaError_t error = fill(static_cast<char*>(pointer) + i * pitch, value, width);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

#if !defined(MPTUNE_ON_GPU)
// Arrays are the host's own memory: no kernel that is tuned is given one.
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t from_pitch, size_t width,
                                size_t height, cudaMemcpyKind kind) {
    const size_t pitch = to->extent.width * to->element_bytes;
    return copy_rows(to->start + y * pitch + x, pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return in_stream(stream, [=] { return cudaMemcpy2DToArray(to, x, y, from, from_pitch, width, height, kind); });
}
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return copy(to->start + y * to->extent.width * to->element_bytes + x, from, bytes, kind);
}
cudaError_t cudaMemcpy2DFromArray(void* to, size_t to_pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, cudaMemcpyKind kind) {
    const size_t pitch = from->extent.width * from->element_bytes;
    return copy_rows(to, to_pitch, from->start + y * pitch + x, pitch, width, height, kind);
}
#endif

cudaError_t mptune_symbol_address(void** pointer, const char* name, const void* variable, size_t bytes) {
    const held now(turn());
    const allocation* const found = symbol(name, variable, bytes);
    if (found == nullptr) return refused();
    *pointer = found->start;
    return cudaSuccess;
}
cudaError_t mptune_copy_to_symbol(const char* name, const void* variable, size_t whole, const void* from, size_t bytes,
                                  size_t offset) {
    const held now(turn());
    const allocation* const found = symbol(name, variable, whole);
    return found == nullptr ? refused() : copy(found->start + offset, from, bytes, cudaMemcpyDefault);
}
cudaError_t mptune_copy_from_symbol(void* to, const char* name, const void* variable, size_t whole, size_t bytes,
                                    size_t offset) {
    const held now(turn());
    const allocation* const found = symbol(name, variable, whole);
    return found == nullptr ? refused() : copy(to, found->start + offset, bytes, cudaMemcpyDefault);
}

// Memory of the host goes away that a kernel was given.
void mptune_host_memory_ends(void* start) {
    const held now(turn());
    const auto found = allocations().find(static_cast<char*>(start));
    if (found == allocations().end() || found->second.kind[0] != 'h') return;
    record().note(text("{\"op\": \"free\", \"id\": %u}", found->second.id));
    allocations().erase(found);
}

// -- files ---------------------------------------------------------------------------------------

// A program writes its files to a folder of their own, and reads there what it has written.

static std::string redirected(const char* path, bool writes, bool truncates) {
    const char* const folder = getenv("MPTUNE_WRITES");
    if (folder == nullptr || *folder == 0 || path == nullptr || *path == 0 || strncmp(path, "/dev/", 5) == 0 ||
        strncmp(path, "/proc/", 6) == 0) {
        return path != nullptr ? path : "";
    }
    const char* const capture = getenv("MPTUNE_CAPTURE");
    if (capture != nullptr && strncmp(path, capture, strlen(capture)) == 0) return path;
    std::string inside;
    for (const char* p = path; *p != 0; ++p) inside += *p == '/' || (p[0] == '.' && p[1] == '.') ? '_' : *p;
    const std::string target = std::string(folder) + "/" + inside;
    struct stat about;
    const bool is_there = stat(target.c_str(), &about) == 0;
    if (!writes) return is_there ? target : path;
    if (!is_there && !truncates) {
        static const auto real_fopen = reinterpret_cast<FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "fopen"));
        FILE* const from = real_fopen(path, "r");
        FILE* const to = from != nullptr ? real_fopen(target.c_str(), "w") : nullptr;
        char room[65536];
        for (size_t n; to != nullptr && (n = fread(room, 1, sizeof room, from)) > 0;) fwrite(room, 1, n, to);
        if (from != nullptr) fclose(from);
        if (to != nullptr) fclose(to);
    }
    record().wrote_file(path, target.c_str());
    return target;
}

static FILE* open_stream(const char* name, const char* path, const char* mode) {
    const auto real = reinterpret_cast<FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, name));
    const bool writes = mode[0] != 'r' || strchr(mode, '+') != nullptr;
    return real(redirected(path, writes, mode[0] == 'w').c_str(), mode);
}
FILE* fopen(const char* path, const char* mode) { return open_stream("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream("fopen64", path, mode); }

// -- clocks --------------------------------------------------------------------------------------

int clock_gettime(clockid_t id, timespec* now) noexcept {
    static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
    static const long long speed = from_environment("MPTUNE_CLOCK", 1);
    static std::atomic<long long> first[16];
    const int error = real(id, now);
    if (error != 0 || speed == 1 || id < 0 || id >= 16) return error;
    const long long second = 1000000000, here = now->tv_sec * second + now->tv_nsec;
    long long begun = 0;
    if (first[id].compare_exchange_strong(begun, here)) begun = here;
    const long long told = begun + speed * (here - begun);
    now->tv_sec = told / second;
    now->tv_nsec = told % second;
    return 0;
}
int gettimeofday(timeval* now, void*) noexcept {
    timespec told;
    clock_gettime(CLOCK_REALTIME, &told);
    now->tv_sec = told.tv_sec;
    now->tv_usec = told.tv_nsec / 1000;
    return 0;
}
time_t time(time_t* now) noexcept {
    timespec told;
    clock_gettime(CLOCK_REALTIME, &told);
    return now != nullptr ? *now = told.tv_sec : told.tv_sec;
}
clock_t clock() noexcept {
    timespec told;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &told);
    return told.tv_sec * CLOCKS_PER_SEC + told.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}

// A program that ends without the functions for its end: what it did is known nevertheless.
void _exit(int code) {
    at_end();
    record().hang_up_in_order();
    syscall(SYS_exit_group, code);
    __builtin_unreachable();
}
void _Exit(int code) noexcept { _exit(code); }

static int open_descriptor(const char* name, const char* path, int flags, int mode) {
    const auto real = reinterpret_cast<int (*)(const char*, int, ...)>(dlsym(RTLD_NEXT, name));
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    return real(redirected(path, writes, (flags & O_TRUNC) != 0).c_str(), flags, mode);
}
#define MPTUNE_MODE_OF(flags)              \
    va_list arguments;                     \
    va_start(arguments, flags);            \
    const int mode = va_arg(arguments, int); \
    va_end(arguments)

int open(const char* path, int flags, ...) {
    MPTUNE_MODE_OF(flags);
    return open_descriptor("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    MPTUNE_MODE_OF(flags);
    return open_descriptor("open64", path, flags, mode);
}
int creat(const char* path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

}  // extern "C"

// The record begins with the program, also of one that launches nothing.
__attribute__((constructor)) static void begin() { record(); }
__attribute__((destructor)) static void finish() { record().hang_up_in_order(); }
