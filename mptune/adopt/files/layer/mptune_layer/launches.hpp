// What `kernel<<<grid, block, shared, stream>>>(arguments)` becomes: a kernel with what it is given, for the recorder to have
// run. Included where it is known how to start one: call, which holds both, and by_address.
#pragma once

#include <stddef.h>

#include <tuple>
#include <type_traits>

#include "recorded.hpp"

namespace mptune_layer {

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

template <unsigned N>
const char* label(const char* name, const char* const (&arguments)[N]) {
    return label(name, arguments, N);
}

// What is between the fields of a struct differs from run to run.
template <class P>
void clear_padding([[maybe_unused]] P& parameter) {
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
    if constexpr (kind_of<P> == 's' && std::is_trivially_copyable_v<P>) __builtin_clear_padding(&parameter);
#endif
}

template <int Facts, class F, class... P>
void launch_call(const site& at, const extents& shape, F function, P... parameters) {
    using made = call<F, P...>;
    if (is_captured(shape.stream)) {
        const extents later(shape.grid, shape.block, shape.shared);
        return defer_call([=] { launch_call<Facts>(at, later, function, parameters...); });
    }
    (clear_padding(parameters), ...);
    const made self{function, std::tuple<P...>(parameters...)};
    static const char* const types[] = {spelled<P>()..., nullptr};
    std::apply(
        [&](const P&... kept) {
            const argument arguments[] = {argument_of(kept)..., argument{}};
            launch(at, prepared{made::template start<Facts>, &self, types, arguments, sizeof...(P)}, shape);
        },
        self.arguments);
}

// The address of a kernel, also where functions of CUDA that return something have its name.
template <class... P>
constexpr auto kernel(void (*address)(P...)) {
    return address;
}

// A kernel by its address converts its arguments as a call does.
template <auto Kernel, int Facts, class Signature = decltype(Kernel)>
struct launcher;
template <auto Kernel, int Facts, class... P>
struct launcher<Kernel, Facts, void (*)(P...)> {
    site at;
    extents shape;

    void operator()(P... parameters) const {
        launch_call<Facts>(at, shape, by_address<Kernel>{}, parameters...);
    }

    // cudaLaunchKernel is given where the arguments are.
    void packed(void** given) const {
        packed(given, std::index_sequence_for<P...>{});
    }
    template <std::size_t... Index>
    void packed(void** given, std::index_sequence<Index...>) const {
        (*this)(*static_cast<P*>(given[Index])...);
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
