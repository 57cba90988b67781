// Reads of textures and surfaces as CUDA's programming guide has them: addresses, filters, and numbers made of integers.
// A fetch is 8 bits of fraction exact, as a GPU's filter is.
#pragma once

#include "mptune_layer/device.hpp"

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device begin
#endif
namespace mptune_layer {

struct texel {
    float of[4];
};

inline const texture& texture_of(unsigned long long object) { return *reinterpret_cast<const texture*>(object); }

// The place of a coordinate along an axis; -1 outside, where a border is.
inline long addressed(double at, size_t size, cudaTextureAddressMode mode) {
    const long extent = static_cast<long>(size > 0 ? size : 1), i = static_cast<long>(floor(at));
    if (mode == cudaAddressModeBorder) return i < 0 || i >= extent ? -1 : i;
    if (mode == cudaAddressModeWrap) return (i % extent + extent) % extent;
    if (mode == cudaAddressModeMirror) {
        const long turn = (i % (2 * extent) + 2 * extent) % (2 * extent);
        return turn < extent ? turn : 2 * extent - 1 - turn;
    }
    return i < 0 ? 0 : i >= extent ? extent - 1 : i;
}

inline char* element_at(const texture& t, long x, long y, long z) {
    const size_t bytes = (t.channels.x + t.channels.y + t.channels.z + t.channels.w) / 8;
    return t.start + (z * (t.extent.height > 0 ? t.extent.height : 1) + y) * t.pitch + x * bytes;
}

template <class N>
float read_as(const char* at, bool is_share) {
    N number;
    __builtin_memcpy(&number, at, sizeof number);
    constexpr double largest = static_cast<N>(-1) > 0 ? static_cast<N>(-1) : (1ull << (8 * sizeof(N) - 1)) - 1;
    const double share = static_cast<double>(number) / largest;
    return static_cast<float>(!is_share ? static_cast<double>(number) : share < -1 ? -1 : share);
}

inline texel numbers_at(const texture& t, long x, long y, long z) {
    texel found{};
    if (x < 0 || y < 0 || z < 0) {
        for (int i = 0; i < 4; ++i) found.of[i] = t.how.borderColor[i];
        return found;
    }
    const char* const at = element_at(t, x, y, z);
    const int bits = t.channels.x, count = (t.channels.x + t.channels.y + t.channels.z + t.channels.w) / bits;
    const bool is_share = t.how.readMode == cudaReadModeNormalizedFloat;
    for (int i = 0; i < count; ++i) {
        const char* const p = at + i * bits / 8;
        if (t.channels.f == cudaChannelFormatKindFloat) __builtin_memcpy(&found.of[i], p, sizeof(float));
        else if (t.channels.f == cudaChannelFormatKindUnsigned)
            found.of[i] = bits == 8 ? read_as<unsigned char>(p, is_share) : read_as<unsigned short>(p, is_share);
        else found.of[i] = bits == 8 ? read_as<signed char>(p, is_share) : read_as<short>(p, is_share);
    }
    return found;
}

template <class T>
T fetched(unsigned long long object, double x, double y, double z) {
    const texture& t = texture_of(object);
    if (t.how.normalizedCoords) x *= t.extent.width, y *= t.extent.height, z *= t.extent.depth;
    // Only coordinates from 0 to 1 are repeated.
    const auto mode = [&](int axis) {
        const cudaTextureAddressMode asked = t.how.addressMode[axis];
        return t.how.normalizedCoords || asked == cudaAddressModeBorder ? asked : cudaAddressModeClamp;
    };
    const auto place = [&](double at, int axis) {
        const size_t extents[] = {t.extent.width, t.extent.height, t.extent.depth};
        return extents[axis] > 0 ? addressed(at, extents[axis], mode(axis)) : 0;
    };
    T found{};
    if (t.how.filterMode == cudaFilterModePoint && t.how.readMode == cudaReadModeElementType) {
        const long i = place(x, 0), j = place(y, 1), k = place(z, 2);
        if (i >= 0 && j >= 0 && k >= 0) __builtin_memcpy(&found, element_at(t, i, j, k), sizeof(T));
        return found;
    }
    texel sum{};
    if (t.how.filterMode == cudaFilterModePoint) sum = numbers_at(t, place(x, 0), place(y, 1), place(z, 2));
    else {
        const double start[] = {x - 0.5, t.extent.height > 0 ? y - 0.5 : 0, t.extent.depth > 0 ? z - 0.5 : 0};
        for (int corner = 0; corner < 8; ++corner) {
            double weight = 1;
            long at[3];
            for (int axis = 0; axis < 3; ++axis) {
                const bool is_next = corner >> axis & 1;
                const double share = floor((start[axis] - floor(start[axis])) * 256 + 0.5) / 256;
                weight *= is_next ? share : 1 - share;
                at[axis] = place(start[axis] + is_next, axis);
            }
            if (weight == 0) continue;
            const texel one = numbers_at(t, at[0], at[1], at[2]);
            for (int i = 0; i < 4; ++i) sum.of[i] += static_cast<float>(weight * one.of[i]);
        }
    }
    __builtin_memcpy(&found, sum.of, sizeof(T) < sizeof sum.of ? sizeof(T) : sizeof sum.of);
    return found;
}

// A place of a surface, whose x is in bytes; null where nothing is read or written.
template <class T>
char* surface_at(unsigned long long object, int x, int y, int z, cudaSurfaceBoundaryMode mode) {
    const texture& t = texture_of(object);
    const long at[] = {x / static_cast<long>(sizeof(T)), y, z};
    const size_t extents[] = {t.extent.width, t.extent.height, t.extent.depth};
    long place[3];
    for (int axis = 0; axis < 3; ++axis) {
        const auto how = mode == cudaBoundaryModeClamp ? cudaAddressModeClamp : cudaAddressModeBorder;
        place[axis] = extents[axis] > 0 ? addressed(at[axis], extents[axis], how) : 0;
        if (place[axis] >= 0) continue;
        if (mode == cudaBoundaryModeTrap) mptune_trap();
        return nullptr;
    }
    return element_at(t, place[0], place[1], place[2]);
}

}  // namespace mptune_layer

template <class T>
T tex1Dfetch(cudaTextureObject_t object, int i) {
    const mptune_layer::texture& t = mptune_layer::texture_of(object);
    if (t.how.readMode == cudaReadModeNormalizedFloat) return mptune_layer::fetched<T>(object, i, 0, 0);
    T found{};
    if (i >= 0 && static_cast<size_t>(i) < t.extent.width) __builtin_memcpy(&found, t.start + i * sizeof(T), sizeof(T));
    return found;
}
#define MPTUNE_LIST(...) __VA_ARGS__
#define MPTUNE_FETCH(name, coordinates, ...)                                 \
    template <class T>                                                       \
    T name(cudaTextureObject_t object, coordinates) {                        \
        return mptune_layer::fetched<T>(object, __VA_ARGS__);                \
    }                                                                        \
    template <class T>                                                       \
    void name(T* found, cudaTextureObject_t object, coordinates) {           \
        *found = mptune_layer::fetched<T>(object, __VA_ARGS__);              \
    }
MPTUNE_FETCH(tex1D, float x, x, 0, 0)
MPTUNE_FETCH(tex2D, MPTUNE_LIST(float x, float y), x, y, 0)
MPTUNE_FETCH(tex3D, MPTUNE_LIST(float x, float y, float z), x, y, z)
#undef MPTUNE_FETCH
#define MPTUNE_SURFACE(axes, coordinates, ...)                                                                        \
    template <class T>                                                                                                \
    T surf##axes##read(cudaSurfaceObject_t object, coordinates,                                                       \
                       cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                                         \
        T found{};                                                                                                    \
        const char* const at = mptune_layer::surface_at<T>(object, __VA_ARGS__, mode);                                \
        if (at != nullptr) __builtin_memcpy(&found, at, sizeof(T));                                                   \
        return found;                                                                                                 \
    }                                                                                                                 \
    template <class T>                                                                                                \
    void surf##axes##read(T* found, cudaSurfaceObject_t object, coordinates,                                          \
                          cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                                      \
        *found = surf##axes##read<T>(object, __VA_ARGS__, mode);                                                      \
    }                                                                                                                 \
    template <class T>                                                                                                \
    void surf##axes##write(T value, cudaSurfaceObject_t object, coordinates,                                          \
                           cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                                     \
        char* const at = mptune_layer::surface_at<T>(object, __VA_ARGS__, mode);                                      \
        if (at != nullptr) __builtin_memcpy(at, &value, sizeof(T));                                                   \
    }
MPTUNE_SURFACE(1D, int x, x, 0, 0)
MPTUNE_SURFACE(2D, MPTUNE_LIST(int x, int y), x, y, 0)
MPTUNE_SURFACE(3D, MPTUNE_LIST(int x, int y, int z), x, y, z)
#undef MPTUNE_SURFACE
#undef MPTUNE_LIST
#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif
