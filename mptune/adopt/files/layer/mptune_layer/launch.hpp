// What `kernel<<<grid, block, shared, stream>>>(arguments)` becomes: a grid whose blocks a pool of threads runs. The
// threads of a block run one after the other in a loop or, where they wait for each other, as fibers.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "mptune_layer/device.hpp"

namespace mptune_layer {

struct site {
    const char* kernel;
    const char* file;
    int line;
};

struct extents {
    dim3 grid, block;
    size_t shared;

    extents(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr)
        : grid(grid), block(block), shared(shared) {}
};

// One argument of a launch: 'p' a pointer, 'f' a floating-point number, 'i', 'u' and 'b' other numbers, 's' the rest.
struct argument {
    const void* address;
    unsigned bytes;
    char kind;
    void (*without_padding)(void* elements, size_t bytes);  // of a pointer to structs: clears what is between fields
    size_t element_bytes;
};

template <class T>
constexpr char kind_of = std::is_pointer_v<T>           ? 'p'
                         : std::is_floating_point_v<T>  ? 'f'
                         : std::is_same_v<T, bool>      ? 'b'
                         : std::is_enum_v<T>            ? 'i'
                         : !std::is_integral_v<T>       ? 's'
                         : std::is_signed_v<T>          ? 'i'
                                                        : 'u';

template <class T, size_t = sizeof(T)>
constexpr bool is_complete(int) {
    return true;
}
template <class T>
constexpr bool is_complete(...) {
    return false;
}

template <class P>
argument argument_of(const P& given) {
    using element = std::remove_cv_t<std::remove_pointer_t<P>>;
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
    if constexpr (std::is_pointer_v<P> && std::is_class_v<element> && is_complete<element>(0)) {
        if constexpr (std::is_trivially_copyable_v<element>) {
            const auto without_padding = [](void* elements, size_t bytes) {
                for (auto* each = static_cast<element*>(elements); bytes >= sizeof(element); bytes -= sizeof(element), ++each)
                    __builtin_clear_padding(each);
            };
            return {&given, sizeof given, kind_of<P>, without_padding, sizeof(element)};
        }
    }
#endif
    return {&given, sizeof given, kind_of<P>, nullptr, 0};
}

// How a kernel is run. A kernel whose atomics decide over the order of its sums runs block by block, for the same
// numbers each time.
struct code {
    void (*row)(const void* call, uint3 first, unsigned count, uint3 grid, uint3 block);  // null: as fibers
    void (*enter)(uint3 index, uint3 grid, uint3 block);
    void (*thread)(const void* call, uint3 index);
    bool in_order;
    const char* const* types;  // of the arguments, as spelled() gives them
};

void launch(const site& at, const code& run, const void* call, const argument* arguments, unsigned count,
            const extents& shape);

// What a type or a number is, in the compiler's words: "... [with T = double]".
template <class T>
inline const char* spelled() {
    return __PRETTY_FUNCTION__;
}
template <auto Value>
inline const char* spelled() {
    if constexpr (std::is_enum_v<decltype(Value)>) {
        return spelled<static_cast<std::underlying_type_t<decltype(Value)>>(Value)>();
    } else {
        return __PRETTY_FUNCTION__;
    }
}

// The name of a kernel with its template arguments; the same place for the same name, for good.
const char* label(const char* name, const char* const* arguments, unsigned count);
template <unsigned N>
const char* label(const char* name, const char* const (&arguments)[N]) {
    return label(name, arguments, N);
}

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
};

inline void enter(uint3 index, uint3 grid, uint3 block) {
    blockIdx = index;
    gridDim = grid;
    blockDim = block;
}

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

// Facts about a kernel, from its source: whether its threads wait for each other, whether it has atomics, whether it is in
// phases.
enum : int { waits = 1, counts = 2, in_phases = 4 };

template <int Facts, class F, class... P>
void launch_call(const site& at, const extents& shape, F function, P... parameters) {
    using made = call<F, P...>;
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
    // What is between the fields of a struct differs from run to run.
    ([](auto& parameter) {
        if constexpr (kind_of<P> == 's' && std::is_trivially_copyable_v<P>) __builtin_clear_padding(&parameter);
    }(parameters), ...);
#endif
    const made self{function, std::tuple<P...>(parameters...)};
    static const char* const types[] = {spelled<P>()..., nullptr};
    const code run{Facts & waits ? nullptr : made::template row<(Facts & in_phases) != 0>, enter, made::thread, (Facts & counts) != 0, types};
    std::apply(
        [&](const P&... kept) {
            const argument arguments[] = {argument_of(kept)..., argument{}};
            launch(at, run, &self, arguments, sizeof...(P), shape);
        },
        self.arguments);
}

// A kernel by its address converts its arguments as a call does.
template <auto Kernel, int Facts, class Signature = decltype(Kernel)>
struct launcher;
template <auto Kernel, int Facts, class... P>
struct launcher<Kernel, Facts, void (*)(P...)> {
    site at;
    extents shape;

    void operator()(P... parameters) const {
        launch_call<Facts>(at, shape, [](auto&... p) { Kernel(p...); }, parameters...);
    }
};

// A kernel whose template arguments follow from the call, or one known when the program runs.
template <int Facts, class F>
struct caller {
    F function;
    site at;
    extents shape;

    template <class... P>
    void operator()(P... parameters) const {
        launch_call<Facts>(at, shape, function, parameters...);
    }
};
template <int Facts, class F>
caller<Facts, F> calling(F function, site at, extents shape) {
    return {function, at, shape};
}

}  // namespace mptune_layer
