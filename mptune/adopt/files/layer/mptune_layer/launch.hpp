// What a launch starts on this machine's processor: a grid whose blocks a pool of threads runs. The threads of a block run
// one after the other in a loop or, where they wait for each other, as fibers.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "mptune_layer/api.hpp"
#include "mptune_layer/device.hpp"
#include "mptune_layer/recorded.hpp"

namespace mptune_layer {

// How a kernel is run. A kernel whose atomics decide over the order of its sums runs block by block, for the same
// numbers each time.
struct code {
    void (*row)(const void* call, uint3 first, unsigned count, uint3 grid, uint3 block);  // null: as fibers
    void (*enter)(uint3 index, uint3 grid, uint3 block);
    void (*thread)(const void* call, uint3 index);
    bool in_order;
    bool first_alone;  // the first thread of a block does what all do
};

cudaError_t run_grid(const code& run, const void* call, const extents& shape);

inline void enter(uint3 index, uint3 grid, uint3 block) {
    blockIdx = index;
    gridDim = grid;
    blockDim = block;
}

// Facts about a kernel, from its source: whether its threads wait for each other, whether it has atomics, whether it is in
// phases.
enum : int { waits = 1, counts = 2, in_phases = 4 };

template <class F, class... P>
struct call {
    F function;
    std::tuple<P...> arguments;

    template <class G>
    static void with(const void* self, G given) {
        std::apply(given, static_cast<const call*>(self)->arguments);
    }

    // Arguments are copied to where the compiler sees that nobody changes them. Of a kernel in phases the first thread of a
    // block does it all.
    template <bool FirstAlone>
    static __attribute__((flatten)) void row(const void* self, uint3 first, unsigned count, uint3 grid, uint3 block) {
        const uint3 threads = FirstAlone ? uint3{1, 1, 1} : block;
        const F& function = static_cast<const call*>(self)->function;
        with(self, [&](P... arguments) {
            gridDim = grid;
            blockDim = block;
            for (unsigned i = 0; i < count; ++i) {
                blockIdx = uint3{first.x + i, first.y, first.z};
                for (unsigned z = 0; z < threads.z; ++z) {
                    for (unsigned y = 0; y < threads.y; ++y) {
                        // The threads of a block may run in any order.
#if defined(__clang__)
                        _Pragma("clang loop vectorize(assume_safety)")
#else
                        _Pragma("GCC ivdep")
#endif
                        for (unsigned x = 0; x < threads.x; ++x) {
                            threadIdx = uint3{x, y, z};
                            function(arguments...);
                        }
                    }
                }
            }
        });
    }

    static void thread(const void* self, uint3 index) {
        threadIdx = index;
        const F& function = static_cast<const call*>(self)->function;
        with(self, [&](P... arguments) { function(arguments...); });
    }

    template <int Facts>
    static cudaError_t start(const void* self, const extents& shape) {
        static const code run{Facts & waits ? nullptr : row<(Facts & in_phases) != 0>, enter, thread, (Facts & counts) != 0,
                              (Facts & in_phases) != 0};
        return run_grid(run, self, shape);
    }
};

template <auto Kernel>
struct by_address {
    template <class... P>
    void operator()(P&... arguments) const {
        Kernel(arguments...);
    }
};

// Memory of the host that is given to kernels: an array of a function or a file, for as long as it is there. What is on
// the heap is known by itself.
void note_host_array(const volatile void* start, size_t bytes);
void forget_host_array(const volatile void* start);

class host_array {
  public:
    host_array(const volatile void* start, size_t bytes) : start(start) { note_host_array(start, bytes); }
    ~host_array() { forget_host_array(start); }
    host_array(const host_array&) = delete;
    host_array& operator=(const host_array&) = delete;

  private:
    const volatile void* start;
};

}  // namespace mptune_layer

#include "mptune_layer/launches.hpp"
