// CUDA's runtime on this machine's processor: memory, launches on a pool of threads, and what programs ask of a device.
//
// $MPTUNE_MEMORY_BYTES bounds what the device has, $MPTUNE_WORKERS the threads; with $MPTUNE_BACKWARDS=1 a grid runs from its
// last thread to its first. With $MPTUNE_APART=1 the host cannot touch the device's memory, as on a GPU.
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#define MPTUNE_HOST 1
#define MPTUNE_RUNTIME_APART 1
#define MPTUNE_RUNTIME_HERE 1
#define MPTUNE_RUNTIME __attribute__((visibility("hidden")))
#define MPTUNE_ONCE_A_LAUNCH
#define MPTUNE_OFTEN
// Of a program that was written for more than the prelude's 64 KiB.
#define MPTUNE_STACK_BYTES (256 * 1024)

#include "mptune_layer/api.hpp"

#define MPTUNE_LAYER
#define MPTUNE_INLINE inline __attribute__((always_inline))
static thread_local dim3 threadIdx, blockDim;

namespace mptune_host {
extern __thread __attribute__((visibility("hidden"))) void* dynamic_shared;
static thread_local bool has_warps;
}  // namespace mptune_host

#include "warps.hpp"
#include "host_fiber.hpp"
#include "host_pool.hpp"

// The pool's own entry points are for libraries of one kernel.
namespace mptune_host {
const entry launched = {nullptr, nullptr, {0, 0, 0}, 0, nullptr};
}

extern "C" unsigned long long mptune_nanoseconds();

namespace mptune_layer {
struct code {
    void (*row)(const void* call, uint3 first, unsigned count, uint3 grid, uint3 block);
    void (*enter)(uint3 index, uint3 grid, uint3 block);
    void (*thread)(const void* call, uint3 index);
    bool in_order;
    bool first_alone;
};

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

// -- memory --------------------------------------------------------------------------------------

enum class kind { device, managed, mapped, registered };

struct block_of_memory {
    char* start;
    size_t bytes;
    kind of;
};

std::map<char*, block_of_memory>& memory() {
    static auto* const all = new std::map<char*, block_of_memory>;
    return *all;
}
size_t allocated_bytes = 0;

block_of_memory* find(const void* pointer) {
    char* const p = static_cast<char*>(const_cast<void*>(pointer));
    auto after = memory().upper_bound(p);
    if (after == memory().begin()) return nullptr;
    block_of_memory& found = (--after)->second;
    return p < found.start + found.bytes ? &found : nullptr;
}

size_t memory_bytes() {
    static const size_t bytes =
        from_environment("MPTUNE_MEMORY_BYTES", static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE) / 2);
    return bytes;
}

cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

// Kernels of real programs read past the ends of buffers, which a GPU lets pass; so there is some room on both sides.
constexpr size_t margin = 1 << 16;

// While there is one, the host may touch the device's memory, where it is kept apart.
class opened {
  public:
    opened() { set(PROT_READ | PROT_WRITE); }
    ~opened() { set(PROT_NONE); }
    opened(const opened&) = delete;
    opened& operator=(const opened&) = delete;

    static void set(int allowed) {
        static const bool is_apart = from_environment("MPTUNE_APART", 0) != 0;
        if (!is_apart) return;
        for (const auto& [start, block] : memory()) {
            if (block.of == kind::device) mprotect(start - margin, block.bytes + 2 * margin, allowed);
        }
    }
};

cudaError_t allocate(void** pointer, size_t bytes, kind of) {
    const held now(turn());
    if (pointer == nullptr) return failed(cudaErrorInvalidValue);
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > memory_bytes() || allocated_bytes + bytes > memory_bytes()) return failed(cudaErrorMemoryAllocation);
    // Zeroed, as fresh memory of a GPU is: two runs then see the same.
    // At the same addresses in each run, too, where nothing else is there: pointers in memory are then the same.
    static char* next = reinterpret_cast<char*>(0x100000000000);
    const size_t whole = (bytes + 2 * margin + 4095) / 4096 * 4096;
    void* const room = mmap(next, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
    next += whole;
    char* const start = static_cast<char*>(room) + margin;
    if (bytes >= 1 << 22) madvise(room, bytes + 2 * margin, MADV_HUGEPAGE);
    allocated_bytes += bytes;
    memory()[start] = block_of_memory{start, bytes, of};
    const opened until_here;
    *pointer = start;
    return cudaSuccess;
}

cudaError_t release(void* pointer) {
    const held now(turn());
    if (pointer == nullptr) return cudaSuccess;
    const auto found = memory().find(static_cast<char*>(pointer));
    if (found == memory().end()) return failed(cudaErrorInvalidValue);
    const block_of_memory& block = found->second;
    if (block.of != kind::registered) {
        allocated_bytes -= block.bytes;
        munmap(block.start - margin, block.bytes + 2 * margin);
    }
    memory().erase(found);
    return cudaSuccess;
}

// -- launches ------------------------------------------------------------------------------------

struct running_grid {
    const code* run;
    const void* call;
};

void fiber_thread() {
    const mptune_host::job& work = *static_cast<mptune_host::job*>(mptune_host::active_block->argument);
    const auto& grid = *reinterpret_cast<const running_grid*>(work.arguments);
    const dim3 self = mptune_host::active_block->current->thread;
    grid.run->thread(grid.call, self);
}

bool prepare_fibers(mptune_host::job& work, mptune_host::worker& self) {
    return self.fibers.prepare(work.block, fiber_thread, &work);
}

void run_fibers(mptune_host::job& work, mptune_host::worker& self, mptune_host::row part) {
    const auto& grid = *reinterpret_cast<const running_grid*>(work.arguments);
    for (int i = 0; i < part.count; ++i) {
        grid.run->enter(uint3{part.first.x + i, part.first.y, part.first.z}, work.grid, work.block);
        self.fibers.run();
    }
}

void run_loops(mptune_host::job& work, mptune_host::worker&, mptune_host::row part) {
    const auto& grid = *reinterpret_cast<const running_grid*>(work.arguments);
    grid.run->row(grid.call, part.first, part.count, work.grid, work.block);
}

constexpr mptune_host::entry as_fibers = {prepare_fibers, run_fibers, {0, 0, 0}, 0, nullptr};
constexpr mptune_host::entry as_loops = {nullptr, run_loops, {0, 0, 0}, 0, nullptr};

u64 processor_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// A grid of one worker, on the thread that launches. Returns whether there was room for it.
bool run_here(const mptune_host::entry& kernel, running_grid& grid, dim3 extent, dim3 block_extents, size_t shared) {
    static thread_local mptune_host::worker* const self = new mptune_host::worker{};
    static thread_local auto* const memory = new std::vector<char>;
    if (memory->size() < shared + 64) memory->resize(shared + 64);
    mptune_host::dynamic_shared = reinterpret_cast<void*>((reinterpret_cast<size_t>(memory->data()) + 63) / 64 * 64);
    mptune_host::job work{};
    work.kernel = &kernel;
    work.arguments = reinterpret_cast<void**>(&grid);
    work.grid = extent;
    work.block = block_extents;
    if (kernel.prepare != nullptr && !kernel.prepare(work, *self)) return false;
    for (unsigned z = 0; z < extent.z; ++z) {
        for (unsigned y = 0; y < extent.y; ++y) kernel.run(work, *self, {{0, y, z}, static_cast<int>(extent.x)});
    }
    return true;
}

// A grid from its last thread to its first, one after the other.
void run_backwards(const code& run, const void* call, dim3 grid, dim3 threads) {
    const dim3 working = run.first_alone ? dim3{1, 1, 1} : threads;
    const auto last_to_first = [](dim3 extent, auto each) {
        for (unsigned z = extent.z; z-- > 0;)
            for (unsigned y = extent.y; y-- > 0;)
                for (unsigned x = extent.x; x-- > 0;) each(uint3{x, y, z});
    };
    last_to_first(grid, [&](uint3 index) {
        run.enter(index, grid, threads);
        last_to_first(working, [&](uint3 thread) { run.thread(call, thread); });
    });
}

}  // namespace

// For a library that works on the device's memory.
void open_memory(bool is_open) { opened::set(is_open ? PROT_READ | PROT_WRITE : PROT_NONE); }

cudaError_t check_shape(const extents& shape) {
    const dim3 grid = shape.grid, threads = shape.block;
    const u64 in_block = static_cast<u64>(threads.x) * threads.y * threads.z;
    const u64 blocks = static_cast<u64>(grid.x) * grid.y * grid.z;
    const bool is_too_large = in_block > 1024 || grid.x > INT_MAX || grid.y > 65535 || grid.z > 65535 || threads.z > 64;
    const bool is_wrong = in_block == 0 || blocks == 0 || is_too_large || shape.shared > 256 * 1024;
    return is_wrong ? failed(cudaErrorInvalidConfiguration) : cudaSuccess;
}

cudaError_t run_grid(const code& run, const void* call, const extents& shape) {
    const held now(turn());
    if (const cudaError_t error = check_shape(shape)) return error;
    const dim3 grid = shape.grid, threads = shape.block;
    const u64 in_block = static_cast<u64>(threads.x) * threads.y * threads.z;
    const u64 blocks = static_cast<u64>(grid.x) * grid.y * grid.z;
    const opened for_kernel;
    static const unsigned all_workers = from_environment("MPTUNE_WORKERS", std::thread::hardware_concurrency());
    // A short launch is over before another thread wakes up, all the more where others want the processors. How long a
    // block takes, the launches before tell: the time of a thread that runs it, not that of who waits for a processor.
    constexpr double worth_waking_ns = 1e6, unknown_ns_of_thread = 10;
    static auto* const known = new std::unordered_map<const void*, double>;
    double& block_ns = known->try_emplace(reinterpret_cast<const void*>(run.thread), unknown_ns_of_thread * in_block).first->second;
    const bool is_short = block_ns * static_cast<double>(blocks) < worth_waking_ns;
    static const bool is_backwards = from_environment("MPTUNE_BACKWARDS", 0) != 0;
    if (is_backwards && run.row != nullptr && !run.in_order) {
        run_backwards(run, call, grid, threads);
        return cudaSuccess;
    }
    const unsigned workers = run.in_order || is_short ? 1 : all_workers < blocks ? all_workers : blocks;
    const u64 worked = processor_ns();
    double taken_ns = 0;
    running_grid work{&run, call};
    const mptune_host::entry& kernel = run.row == nullptr ? as_fibers : as_loops;
    if (workers <= 1) {
        if (!run_here(kernel, work, grid, threads, shape.shared)) return failed(cudaErrorLaunchOutOfResources);
        taken_ns = static_cast<double>(processor_ns() - worked);
    } else {
        const unsigned extent[] = {grid.x, grid.y, grid.z}, block_extents[] = {threads.x, threads.y, threads.z};
        const long long time = mptune_host::launch(kernel, reinterpret_cast<void**>(&work), extent, block_extents,
                                                   static_cast<unsigned>(shape.shared), all_workers);
        if (time < 0) return failed(cudaErrorLaunchOutOfResources);
        taken_ns = static_cast<double>(time) * workers;
    }
    block_ns = taken_ns / static_cast<double>(blocks);
    return cudaSuccess;
}

}  // namespace mptune_layer

using namespace mptune_layer;

// -- device functions ----------------------------------------------------------------------------

extern "C" {

void mptune_wait_for_block() { mptune_host::wait_for_block(); }
void mptune_gather(unsigned warp_size, unsigned long long mask, int site,
                   void (*settle)(mptune_host::lane* lanes, unsigned long long group)) {
    mptune_host::gather(warp_size, mask, site, settle);
}
mptune_host::lane* mptune_own_lane() { return &mptune_host::own_lane(); }
unsigned mptune_votes(bool is) { return mptune_host::votes(is); }

unsigned long long mptune_nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double mptune_seconds() { return static_cast<double>(mptune_nanoseconds()) * 1e-9; }

void mptune_trap() { abort(); }

// -- memory --------------------------------------------------------------------------------------

cudaError_t MPTUNE_REAL(cudaMalloc)(void** pointer, size_t bytes) { return allocate(pointer, bytes, kind::device); }
cudaError_t MPTUNE_REAL(cudaMallocManaged)(void** pointer, size_t bytes, unsigned) {
    return allocate(pointer, bytes, kind::managed);
}
cudaError_t MPTUNE_REAL(cudaMallocPitch)(void** pointer, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(pointer, *pitch * height, kind::device);
}
cudaError_t MPTUNE_REAL(cudaHostAlloc)(void** pointer, size_t bytes, unsigned flags) {
    if (flags & cudaHostAllocMapped) return allocate(pointer, bytes, kind::mapped);
    *pointer = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *pointer != nullptr || bytes == 0 ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return MPTUNE_REAL(cudaHostAlloc)(pointer, bytes, 0); }
cudaError_t MPTUNE_REAL(cudaFree)(void* pointer) { return release(pointer); }
cudaError_t MPTUNE_REAL(cudaFreeHost)(void* pointer) {
    if (find(pointer) != nullptr) return release(pointer);
    free(pointer);
    return cudaSuccess;
}
cudaError_t MPTUNE_REAL(cudaHostRegister)(void* pointer, size_t bytes, unsigned) {
    const held now(turn());
    if (find(pointer) != nullptr) return failed(cudaErrorHostMemoryAlreadyRegistered);
    char* const start = static_cast<char*>(pointer);
    memory()[start] = block_of_memory{start, bytes, kind::registered};
    return cudaSuccess;
}
cudaError_t MPTUNE_REAL(cudaHostUnregister)(void* pointer) {
    const held now(turn());
    const block_of_memory* const found = find(pointer);
    return found != nullptr && found->of == kind::registered ? release(pointer) : failed(cudaErrorInvalidValue);
}
// A pool is where memory comes from; all of them are one here.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
    *pool = reinterpret_cast<cudaMemPool_t>(1);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    if (attribute < cudaMemPoolAttrReleaseThreshold) *static_cast<int*>(value) = 1;
    else *static_cast<u64*>(value) = attribute == cudaMemPoolAttrReleaseThreshold ? 0 : allocated_bytes;
    return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t stream) {
    return cudaMallocAsync(pointer, bytes, stream);
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* channels, cudaExtent extent, unsigned) {
    const auto axis = [](size_t n) { return n > 0 ? n : 1; };
    const size_t element = (channels->x + channels->y + channels->z + channels->w) / 8;
    const size_t bytes = element * axis(extent.width) * axis(extent.height) * axis(extent.depth);
    *array = new cudaArray{static_cast<char*>(calloc(bytes, 1)), *channels, extent, element};
    return (*array)->start != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* channels, size_t width, size_t height,
                            unsigned flags) {
    return cudaMalloc3DArray(array, channels, cudaExtent{width, height, 0}, flags);
}
cudaError_t cudaFreeArray(cudaArray_t array) {
    if (array != nullptr) free(array->start);
    delete array;
    return cudaSuccess;
}
static std::map<u64, texture>& textures() {
    static auto* const all = new std::map<u64, texture>;
    return *all;
}
cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* description, const cudaResourceViewDesc*) {
    const held now(turn());
    texture made{};
    if (description != nullptr) made.how = *description;
    const auto& from = resource->res;
    switch (resource->resType) {
    case cudaResourceTypeArray: {
        const cudaArray& array = *from.array.array;
        made.start = array.start;
        made.channels = array.channels;
        made.extent = array.extent;
        made.pitch = array.extent.width * array.element_bytes;
        break;
    }
    case cudaResourceTypeLinear: {
        const auto& c = made.channels = from.linear.desc;
        made.start = static_cast<char*>(from.linear.devPtr);
        made.pitch = from.linear.sizeInBytes;
        made.extent = cudaExtent{from.linear.sizeInBytes / ((c.x + c.y + c.z + c.w) / 8), 0, 0};
        break;
    }
    case cudaResourceTypePitch2D:
        made.start = static_cast<char*>(from.pitch2D.devPtr);
        made.channels = from.pitch2D.desc;
        made.extent = cudaExtent{from.pitch2D.width, from.pitch2D.height, 0};
        made.pitch = from.pitch2D.pitchInBytes;
        break;
    default: return failed(cudaErrorNotSupported);
    }
    static u64 number = 0;
    const auto kept = textures().emplace(++number, made).first;
    *object = reinterpret_cast<u64>(&kept->second);
    return cudaSuccess;
}
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
    const held now(turn());
    for (auto at = textures().begin(); at != textures().end(); ++at) {
        if (reinterpret_cast<u64>(&at->second) == object) return textures().erase(at), cudaSuccess;
    }
    return failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
    return cudaCreateTextureObject(object, resource, nullptr, nullptr);
}
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) { return cudaDestroyTextureObject(object); }

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    const held now(turn());
    *device = host;
    return find(host) != nullptr ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    *total = memory_bytes();
    *available = memory_bytes() - allocated_bytes;
    return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    const held now(turn());
    const block_of_memory* const found = find(pointer);
    void* const address = const_cast<void*>(pointer);
    if (found == nullptr) *attributes = {cudaMemoryTypeUnregistered, 0, nullptr, address};
    else if (found->of == kind::device) *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
    else if (found->of == kind::managed) *attributes = {cudaMemoryTypeManaged, 0, address, address};
    else *attributes = {cudaMemoryTypeHost, 0, address, address};
    return cudaSuccess;
}

cudaError_t MPTUNE_REAL(cudaMemcpy)(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    if (to == nullptr || from == nullptr) return failed(cudaErrorInvalidValue);
    const held now(turn());
    const opened both;
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t MPTUNE_REAL(cudaMemset)(void* pointer, int value, size_t bytes) {
    const held now(turn());
    const opened target;
    memset(pointer, value, bytes);
    return cudaSuccess;
}

unsigned mptune_memory_of_textures(const void** found, unsigned most) {
    const held now(turn());
    unsigned count = 0;
    for (const auto& [number, each] : textures()) {
        if (count < most) found[count++] = each.start;
    }
    return count;
}

// -- streams and events --------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    static size_t number = 16;
    *stream = reinterpret_cast<cudaStream_t>(number += 16);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t called, void* data, unsigned) {
    called(stream, cudaSuccess, data);
    return cudaSuccess;
}

struct CUevent_st {
    unsigned long long recorded;
};
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new CUevent_st{0};
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    if (event == nullptr) return failed(cudaErrorInvalidResourceHandle);
    event->recorded = mptune_nanoseconds();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
    if (start == nullptr || stop == nullptr || start->recorded == 0 || stop->recorded == 0) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    *milliseconds = static_cast<float>(static_cast<double>(stop->recorded - start->recorded) * 1e-6);
    return cudaSuccess;
}

// -- the device ----------------------------------------------------------------------------------

cudaError_t cudaDeviceSynchronize() { return last_error == cudaErrorIllegalAddress ? last_error : cudaSuccess; }
cudaError_t cudaThreadSynchronize() { return cudaSuccess; }
cudaError_t cudaThreadExit() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return failed(cudaErrorInvalidDevice);
    cudaDeviceProp p;
    memset(&p, 0, sizeof p);
    strcpy(p.name, "this machine's processor");
    strcpy(p.gcnArchName, "processor");
    p.totalGlobalMem = memory_bytes();
    p.sharedMemPerBlock = 48 * 1024;
    p.sharedMemPerBlockOptin = p.sharedMemPerMultiprocessor = 96 * 1024;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.memPitch = INT_MAX;
    p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = INT_MAX;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.clockRate = 1500000;
    p.totalConstMem = 65536;
    p.major = 8;
    p.textureAlignment = p.texturePitchAlignment = 512;
    p.multiProcessorCount = static_cast<int>(std::thread::hardware_concurrency());
    p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.managedMemory = 1;
    p.concurrentManagedAccess = p.hostNativeAtomicSupported = p.deviceOverlap = p.asyncEngineCount = 1;
    p.memoryClockRate = 1500000;
    p.memoryBusWidth = 128;
    p.l2CacheSize = 4 << 20;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = 32;
    p.singleToDoublePrecisionPerfRatio = 2;
    *properties = p;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess) return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxPitch: *value = INT_MAX; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrTotalConstantMemory:
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrClockRate: *value = p.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = p.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess: *value = 1; break;
    default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
    *value = 1 << 16;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return failed(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return failed(cudaErrorPeerAccessNotEnabled); }
cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};
const char* cudaGetErrorString(cudaError_t error) {
    for (const auto& known : errors) {
        if (known.error == error) return known.text;
    }
    return "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t error) {
    for (const auto& known : errors) {
        if (known.error == error) return known.name;
    }
    return "cudaErrorUnknown";
}

}  // extern "C"
