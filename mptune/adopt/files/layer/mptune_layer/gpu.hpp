// Stands before every file of a program that nvcc compiles for a GPU that is here: its launches and variables are told to
// the recorder. What else it calls of CUDA's runtime, the recorder sees by the linker.
#pragma once

#include <tuple>

#include "recorded.hpp"

namespace mptune_layer {

template <class F, class... P>
struct call {
    F function;
    std::tuple<P...> arguments;

    // An error of an earlier call stays until the program asks for it; the same one of a launch is then not told from it.
    template <int>
    static cudaError_t start(const void* self, const extents& shape) {
        const call& made = *static_cast<const call*>(self);
        const cudaError_t before = cudaPeekAtLastError();
        std::apply([&](const P&... given) { made.function(shape, given...); }, made.arguments);
        const cudaError_t after = cudaPeekAtLastError();
        return after == before ? cudaSuccess : after;
    }
};

template <auto Kernel>
struct by_address {
    template <class... P>
    void operator()(const extents& shape, const P&... arguments) const {
        Kernel<<<shape.grid, shape.block, shape.shared, shape.stream>>>(arguments...);
    }
};

}  // namespace mptune_layer

#include "launches.hpp"
