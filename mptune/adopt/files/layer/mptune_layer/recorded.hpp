// What a program tells the recorder: its launches, and the names of variables in the device's memory. The same whether a
// program runs on this machine's processor or, with MPTUNE_ON_GPU, on the GPU that CUDA's own runtime is for.
#pragma once

#if defined(MPTUNE_ON_GPU)
#include <cuda_runtime.h>
// The linker puts the recorder before the functions of CUDA's runtime (--wrap).
#define MPTUNE_RECORDED(name) __wrap_##name
#define MPTUNE_REAL(name) __real_##name
#else
#include "mptune_layer/types.hpp"
#define MPTUNE_RECORDED(name) name
#define MPTUNE_REAL(name) mptune_real_##name
#endif

namespace mptune_layer {

struct site {
    const char* kernel;
    const char* file;
    int line;
};

struct extents {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;

    extents(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr)
        : grid(grid), block(block), shared(shared), stream(stream) {}
};

// One argument of a launch: 'p' a pointer, 'f' a floating-point number, 'i', 'u' and 'b' other numbers, 's' the rest.
struct argument {
    const void* address;
    unsigned bytes;
    char kind;
    void (*without_padding)(void* elements, size_t bytes);  // of a pointer to structs: clears what is between fields
    size_t element_bytes;
};

// A kernel and what it is given, still to be run.
struct prepared {
    cudaError_t (*start)(const void* call, const extents& shape);
    const void* call;
    const char* const* types;  // of the arguments, as spelled() gives them
    const argument* arguments;
    unsigned count;
};

// The error of a launch that no device takes, as the processor's runtime has it.
cudaError_t check_shape(const extents& shape);

// Runs a kernel to its end, and records that.
void launch(const site& at, const prepared& kernel, const extents& shape);

// What a captured stream does later, when its graph is launched.
struct deferred {
    virtual void run() = 0;
    virtual ~deferred() {}
};
bool is_captured(cudaStream_t stream);
void defer(deferred* operation);

template <class F>
struct deferred_call : deferred {
    F function;

    explicit deferred_call(F function) : function(function) {}
    void run() override { function(); }
};
template <class F>
void defer_call(F function) {
    defer(new deferred_call<F>(function));
}

// The name of a kernel with its template arguments; the same place for the same name, for good.
const char* label(const char* name, const char* const* arguments, unsigned count);

}  // namespace mptune_layer

extern "C" {
#if !defined(MPTUNE_ON_GPU)
// Where the textures are that a program has: memory that kernels read without being given it.
unsigned mptune_memory_of_textures(const void** found, unsigned most);
#endif
cudaError_t mptune_symbol_address(void** pointer, const char* name, const void* symbol, size_t bytes);
cudaError_t mptune_copy_to_symbol(const char* name, const void* symbol, size_t whole, const void* from, size_t bytes,
                                  size_t offset);
cudaError_t mptune_copy_from_symbol(void* to, const char* name, const void* symbol, size_t whole, size_t bytes,
                                    size_t offset);
}

namespace mptune_layer {
template <class T, class P>
inline cudaError_t symbol_address(const char* name, P** pointer, const T& symbol) {
    return mptune_symbol_address((void**)pointer, name, &symbol, sizeof symbol);
}
template <class T>
inline cudaError_t to_symbol(const char* name, const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                             cudaMemcpyKind = cudaMemcpyHostToDevice, cudaStream_t = 0) {
    return mptune_copy_to_symbol(name, &symbol, sizeof symbol, from, bytes, offset);
}
template <class T>
inline cudaError_t from_symbol(const char* name, void* to, const T& symbol, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyDeviceToHost, cudaStream_t = 0) {
    return mptune_copy_from_symbol(to, name, &symbol, sizeof symbol, bytes, offset);
}
template <class T>
inline cudaError_t symbol_size(size_t* bytes, const T&) {
    *bytes = sizeof(T);
    return cudaSuccess;
}
}  // namespace mptune_layer

#if defined(MPTUNE_READING)
#define MPTUNE_OF_SYMBOL(name) \
    template <class... A>      \
    cudaError_t name(A&&... arguments);
MPTUNE_OF_SYMBOL(cudaGetSymbolAddress)
MPTUNE_OF_SYMBOL(cudaGetSymbolSize)
MPTUNE_OF_SYMBOL(cudaMemcpyToSymbol)
MPTUNE_OF_SYMBOL(cudaMemcpyToSymbolAsync)
MPTUNE_OF_SYMBOL(cudaMemcpyFromSymbol)
MPTUNE_OF_SYMBOL(cudaMemcpyFromSymbolAsync)
#undef MPTUNE_OF_SYMBOL
#else
#define cudaGetSymbolAddress(pointer, symbol) ::mptune_layer::symbol_address(#symbol, pointer, symbol)
#define cudaGetSymbolSize(bytes, symbol) ::mptune_layer::symbol_size(bytes, symbol)
#define cudaMemcpyToSymbol(symbol, ...) ::mptune_layer::to_symbol(#symbol, symbol, __VA_ARGS__)
#define cudaMemcpyToSymbolAsync(symbol, ...) ::mptune_layer::to_symbol(#symbol, symbol, __VA_ARGS__)
#define cudaMemcpyFromSymbol(to, symbol, ...) ::mptune_layer::from_symbol(#symbol, to, symbol, __VA_ARGS__)
#define cudaMemcpyFromSymbolAsync(to, symbol, ...) ::mptune_layer::from_symbol(#symbol, to, symbol, __VA_ARGS__)
#endif
