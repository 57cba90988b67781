// Stands in for CUDA's runtime where there is no GPU: what nvcc compiled registers its kernels and variables with it. What
// it calls the device's memory, the host cannot touch while no kernel or copy is at work. What the kernels of recorded.cu
// do, run() does.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <string>

namespace {

constexpr size_t page = 4096;

struct block {
    size_t bytes;
    bool is_shared;
};
std::map<char*, block>& blocks() {
    static std::map<char*, block> all;
    return all;
}
std::map<const void*, std::string>& kernels() {
    static std::map<const void*, std::string> all;
    return all;
}
struct variable {
    std::string name;
    char* device;
};
std::map<const void*, variable>& variables() {
    static std::map<const void*, variable> all;
    return all;
}
cudaError_t last = cudaSuccess;

cudaError_t failed(cudaError_t error) { return last = error; }

struct at_work {
    at_work() { set(PROT_READ | PROT_WRITE); }
    ~at_work() { set(PROT_NONE); }
    static void set(int allowed) {
        for (const auto& [start, each] : blocks())
            if (!each.is_shared) mprotect(start, each.bytes, allowed);
    }
};

char* take(size_t bytes, bool is_shared) {
    const size_t whole = (bytes + page - 1) / page * page;
    void* const start = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(start, 0xab, whole);  // nobody says that it is zero
    blocks()[static_cast<char*>(start)] = block{whole, is_shared};
    const at_work until_here;
    return static_cast<char*>(start);
}

void* of_variable(const char* name) {
    for (const auto& [host, each] : variables())
        if (each.name == name) return each.device;
    abort();
}

template <class T>
T given(void** arguments, int number) {
    return *static_cast<T*>(arguments[number]);
}

struct Line {
    double* values;
    int n;
    double by;
};

void run(const std::string& name, dim3 grid, dim3 block, void** arguments) {
    const int threads = static_cast<int>(grid.x * block.x);
    if (name.find("scale") != std::string::npos) {
        const Line line = given<Line>(arguments, 0);
        const double* const factors = static_cast<double*>(of_variable("factors"));
        for (int i = 0; i < threads && i < line.n; ++i) line.values[i] *= factors[i % 2] * line.by;
    } else if (name.find("shift") != std::string::npos) {
        double* const values = given<double*>(arguments, 0);
        for (int i = 0; i < threads && i < given<int>(arguments, 1); ++i) values[i] += 3;
    } else if (name.find("total") != std::string::npos) {
        const double* const values = given<const double*>(arguments, 0);
        for (int i = 0; i < given<int>(arguments, 2); ++i) *given<double*>(arguments, 1) += values[i];
        ++*static_cast<int*>(of_variable("calls"));
    } else {
        fprintf(stderr, "no kernel %s\n", name.c_str());
        abort();
    }
}

struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed;

}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    kernels()[host] = name;
}
void __cudaRegisterVar(void**, char* host, char*, const char* name, int, size_t bytes, int, int) {
    variables()[host] = variable{name, take(bytes, false)};
    const at_work now;
    memset(variables()[host].device, 0, bytes);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    pushed = configuration{grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *static_cast<cudaStream_t*>(stream) = pushed.stream;
    return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t) {
    if (block.x > 1024) return failed(cudaErrorInvalidConfiguration);
    const at_work now;
    run(kernels().at(host), grid, block, arguments);
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    *pointer = take(bytes, false);
    return cudaSuccess;
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
    *pointer = take(bytes, true);
    return cudaSuccess;
}
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(pointer, *pitch * height);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
    *pointer = calloc(1, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaFree(void* pointer) {
    const auto found = blocks().find(static_cast<char*>(pointer));
    if (found == blocks().end()) return pointer == nullptr ? cudaSuccess : failed(cudaErrorInvalidValue);
    munmap(pointer, found->second.bytes);
    blocks().erase(found);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
    free(pointer);
    return cudaSuccess;
}
// (only for CUDA's arrays, which the program has none of)
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms*) { return cudaErrorNotSupported; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    if (to == nullptr || from == nullptr) return failed(cudaErrorInvalidValue);
    const at_work now;
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    const at_work now;
    memset(pointer, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** pointer, const void* host) {
    *pointer = variables().at(host).device;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceReset() { abort(); }  // it takes away what the recorder still has to tell
cudaError_t cudaGetLastError() {
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return last; }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int) {
    memset(about, 0, sizeof *about);
    strcpy(about->name, "a stand-in");
    return cudaSuccess;
}
}
