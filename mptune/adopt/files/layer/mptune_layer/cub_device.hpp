// cub's functions for whole arrays in memory of the device, as calls of a library. The first call of each, without memory
// for its temporary data, asks how many bytes these are; here they are one.
#pragma once

#include "mptune_layer/cub.hpp"
#include "mptune_layer/thrust.hpp"

#include "mptune_layer/letters_begin.hpp"

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device begin
#endif

namespace cub {

template <class T>
struct DoubleBuffer {
    T* d_buffers[2];
    int selector = 0;
    DoubleBuffer() : d_buffers{nullptr, nullptr} {}
    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};
template <class T, class... Rest>
using CountingInputIterator = thrust::counting_iterator<T>;
template <class T, class... Rest>
using ConstantInputIterator = thrust::constant_iterator<T>;
template <class T, class F, class I, class... Rest>
using TransformInputIterator = thrust::transform_iterator<F, I>;

namespace device {

// Whether a call only asks for the size of its temporary data.
inline bool asks(void* temporary, size_t& bytes) {
    if (temporary == nullptr) bytes = 1;
    return temporary == nullptr;
}

// Memory of calls, known to the recorder; what is there as algorithms read it.
using thrust::directly;
template <class I>
using value_of = thrust::iterator_value_t<I>;
struct itself {
    template <class T>
    decltype(auto) operator()(T&& value) const { return static_cast<T&&>(value); }
};
template <class T, class I, class F>
T reduced(I first, ptrdiff_t count, F f, T start) {
    return count > 0 ? static_cast<T>(f(start, thrust::folded<T>(directly(first), count, f, itself()))) : start;
}
template <class T>
T lowest() { return std::numeric_limits<T>::is_specialized ? std::numeric_limits<T>::lowest() : T(-1e30f); }
template <class T>
T highest() { return std::numeric_limits<T>::is_specialized ? std::numeric_limits<T>::max() : T(1e30f); }
template <class O, class I>
using out_value = std::conditional_t<std::is_pointer_v<O> && !std::is_void_v<value_of<O>>, value_of<O>, value_of<I>>;

}  // namespace device

#define MPTUNE_STREAM cudaStream_t = 0, bool = false
#define MPTUNE_CALL(name, ...)                                                     \
    if (device::asks(temporary, bytes)) return cudaSuccess;                        \
    const mptune_layer::library_call here_("cub::" name, mptune_layer::changes, __VA_ARGS__)

struct DeviceReduce {
    template <class I, class O, class N, class F, class T>
    static cudaError_t Reduce(void* temporary, size_t& bytes, I in, O out, N count, F f, T start, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceReduce", in, out, f);
        *device::directly(out) = device::reduced<T>(in, count, f, start);
        return cudaSuccess;
    }
    template <class I, class O, class N>
    static cudaError_t Sum(void* temporary, size_t& bytes, I in, O out, N count, cudaStream_t stream = 0, bool = false) {
        typedef device::out_value<O, I> T;
        return Reduce(temporary, bytes, in, out, count, cub::Sum(), T(), stream);
    }
    template <class I, class O, class N>
    static cudaError_t Min(void* temporary, size_t& bytes, I in, O out, N count, cudaStream_t stream = 0, bool = false) {
        typedef device::value_of<I> T;
        return Reduce(temporary, bytes, in, out, count, cub::Min(), device::highest<T>(), stream);
    }
    template <class I, class O, class N>
    static cudaError_t Max(void* temporary, size_t& bytes, I in, O out, N count, cudaStream_t stream = 0, bool = false) {
        typedef device::value_of<I> T;
        return Reduce(temporary, bytes, in, out, count, cub::Max(), device::lowest<T>(), stream);
    }
    template <class I, class O, class N, class F, class U, class T>
    static cudaError_t TransformReduce(void* temporary, size_t& bytes, I in, O out, N count, F f, U value_of, T start, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceReduce", in, out, f, value_of);
        *device::directly(out) = device::reduced<T>(thrust::make_transform_iterator(device::directly(in), value_of), count, f, start);
        return cudaSuccess;
    }
#define MPTUNE_ARGUMENT(name, sign)                                                                                   \
    template <class I, class O, class N>                                                                              \
    static cudaError_t name(void* temporary, size_t& bytes, I in, O out, N count, MPTUNE_STREAM) {                    \
        MPTUNE_CALL("DeviceReduce", in, out);                                                                         \
        auto from = device::directly(in);                                                                             \
        N found = 0;                                                                                                  \
        for (N i = 1; i < count; ++i) found = from[i] sign from[found] ? i : found;                                   \
        auto to = device::directly(out);                                                                              \
        (*to).key = static_cast<int>(found);                                                                          \
        (*to).value = from[found];                                                                                    \
        return cudaSuccess;                                                                                           \
    }
    MPTUNE_ARGUMENT(ArgMin, <)
    MPTUNE_ARGUMENT(ArgMax, >)
#undef MPTUNE_ARGUMENT
    template <class K, class U, class I, class O, class R, class F, class N>
    static cudaError_t ReduceByKey(void* temporary, size_t& bytes, K keys, U unique, I in, O out, R runs, F f, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceReduce::ReduceByKey", keys, unique, in, out, runs, f);
        const auto first = device::directly(keys);
        const auto end = thrust::reduce_by_key(first, first + count, device::directly(in), device::directly(unique),
                                               device::directly(out), thrust::equal_to<>(), f);
        *device::directly(runs) = end.second - device::directly(out);
        return cudaSuccess;
    }
};

struct DeviceSegmentedReduce {
    template <class I, class O, class B, class E, class F, class T>
    static cudaError_t Reduce(void* temporary, size_t& bytes, I in, O out, int segments, B begins, E ends, F f, T start, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceSegmentedReduce", in, out, begins, ends, f);
        const auto from = device::directly(in);
        for (int i = 0; i < segments; ++i) {
            const auto first = device::directly(begins)[i];
            device::directly(out)[i] = device::reduced<T>(from + first, device::directly(ends)[i] - first, f, start);
        }
        return cudaSuccess;
    }
#define MPTUNE_SEGMENTED(name, start)                                                                                      \
    template <class I, class O, class B, class E>                                                                          \
    static cudaError_t name(void* temporary, size_t& bytes, I in, O out, int segments, B begins, E ends,                   \
                            cudaStream_t stream = 0, bool = false) {                                                       \
        typedef device::value_of<I> T;                                                                                     \
        return Reduce(temporary, bytes, in, out, segments, begins, ends, cub::name(), T(start), stream);                   \
    }
    MPTUNE_SEGMENTED(Sum, T())
    MPTUNE_SEGMENTED(Min, device::highest<T>())
    MPTUNE_SEGMENTED(Max, device::lowest<T>())
#undef MPTUNE_SEGMENTED
};

struct DeviceScan {
    template <class I, class O, class F, class T, class N>
    static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, I in, O out, F f, T start, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceScan", in, out, f);
        thrust::exclusive_scan(in, in + count, out, start, f);
        return cudaSuccess;
    }
    template <class I, class O, class F, class N>
    static cudaError_t InclusiveScan(void* temporary, size_t& bytes, I in, O out, F f, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceScan", in, out, f);
        thrust::inclusive_scan(in, in + count, out, f);
        return cudaSuccess;
    }
    template <class I, class O, class N>
    static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, I in, O out, N count, cudaStream_t stream = 0, bool = false) {
        return ExclusiveScan(temporary, bytes, in, out, cub::Sum(), device::value_of<I>(), count, stream);
    }
    template <class I, class O, class N>
    static cudaError_t InclusiveSum(void* temporary, size_t& bytes, I in, O out, N count, cudaStream_t stream = 0, bool = false) {
        return InclusiveScan(temporary, bytes, in, out, cub::Sum(), count, stream);
    }
    template <class T, class N>
    static std::enable_if_t<std::is_integral_v<N>, cudaError_t> ExclusiveSum(void* temporary, size_t& bytes, T* data, N count,
                                                                           cudaStream_t stream = 0) {
        return ExclusiveSum(temporary, bytes, data, data, count, stream);
    }
    template <class T, class N>
    static std::enable_if_t<std::is_integral_v<N>, cudaError_t> InclusiveSum(void* temporary, size_t& bytes, T* data, N count,
                                                                           cudaStream_t stream = 0) {
        return InclusiveSum(temporary, bytes, data, data, count, stream);
    }
};

namespace device {

// Keys in order, by some of their bits where these are given; with values that go with them.
template <class K>
auto bits_of(K key) {
    if constexpr (std::is_floating_point_v<K>) {
        std::conditional_t<sizeof(K) == 8, uint64_t, uint32_t> bits;
        memcpy(&bits, &key, sizeof bits);
        const auto sign = decltype(bits)(1) << (8 * sizeof bits - 1);
        return bits & sign ? ~bits : bits | sign;
    } else if constexpr (std::is_signed_v<K>) {
        typedef std::make_unsigned_t<K> bits;
        return static_cast<bits>(bits(key) ^ (bits(1) << (8 * sizeof(K) - 1)));
    } else {
        return key;
    }
}
template <class K, class V, class N>
void radix_sort(const K* keys, K* keys_out, const V* values, V* values_out, N count, int first_bit, int last_bit, bool is_down) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t(0));
    const std::vector<K> own(keys, keys + count);
    const auto part = [&](size_t i) {
        const uint64_t bits = static_cast<uint64_t>(bits_of(own[i])) >> first_bit;
        const int width = last_bit - first_bit;
        return width >= 64 ? bits : bits & ((uint64_t(1) << width) - 1);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return is_down ? part(b) < part(a) : part(a) < part(b); });
    for (size_t i = 0; i < order.size(); ++i) keys_out[i] = own[order[i]];
    if (values == nullptr) return;
    const std::vector<V> others(values, values + count);
    for (size_t i = 0; i < order.size(); ++i) values_out[i] = others[order[i]];
}

}  // namespace device

#define MPTUNE_SORT(name, is_down)                                                                                             \
    template <class K, class V, class N>                                                                                       \
    static cudaError_t SortPairs##name(void* temporary, size_t& bytes, const K* keys, K* keys_out, const V* values,            \
                                       V* values_out, N count, int first_bit = 0, int last_bit = 8 * sizeof(K),                \
                                       MPTUNE_STREAM) {                                                                        \
        MPTUNE_CALL("DeviceRadixSort", keys, keys_out, values, values_out);                                                    \
        device::radix_sort(keys, keys_out, values, values_out, count, first_bit, last_bit, is_down);                           \
        return cudaSuccess;                                                                                                    \
    }                                                                                                                          \
    template <class K, class V, class N>                                                                                       \
    static cudaError_t SortPairs##name(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values,         \
                                       N count, int first_bit = 0, int last_bit = 8 * sizeof(K), MPTUNE_STREAM) {              \
        return SortPairs##name(temporary, bytes, keys.Current(), keys.Current(), values.Current(), values.Current(), count,    \
                               first_bit, last_bit);                                                                           \
    }                                                                                                                          \
    template <class K, class N>                                                                                                \
    static cudaError_t SortKeys##name(void* temporary, size_t& bytes, const K* keys, K* keys_out, N count, int first_bit = 0,  \
                                      int last_bit = 8 * sizeof(K), MPTUNE_STREAM) {                                           \
        MPTUNE_CALL("DeviceRadixSort", keys, keys_out);                                                                        \
        device::radix_sort<K, char>(keys, keys_out, nullptr, nullptr, count, first_bit, last_bit, is_down);                    \
        return cudaSuccess;                                                                                                    \
    }                                                                                                                          \
    template <class K, class N>                                                                                                \
    static cudaError_t SortKeys##name(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, N count, int first_bit = 0,       \
                                      int last_bit = 8 * sizeof(K), MPTUNE_STREAM) {                                           \
        return SortKeys##name(temporary, bytes, keys.Current(), keys.Current(), count, first_bit, last_bit);                   \
    }
struct DeviceRadixSort {
    MPTUNE_SORT(, false)
    MPTUNE_SORT(Descending, true)
};
#undef MPTUNE_SORT
#define MPTUNE_SORT(name, is_down)                                                                                             \
    template <class K, class V, class N, class B, class E>                                                                     \
    static cudaError_t SortPairs##name(void* temporary, size_t& bytes, const K* keys, K* keys_out, const V* values,            \
                                       V* values_out, N, int segments, B begins, E ends, int first_bit = 0,                    \
                                       int last_bit = 8 * sizeof(K), MPTUNE_STREAM) {                                          \
        MPTUNE_CALL("DeviceSegmentedRadixSort", keys, keys_out, values, values_out, begins, ends);                             \
        for (int i = 0; i < segments; ++i) {                                                                                   \
            const ptrdiff_t at = device::directly(begins)[i], count = device::directly(ends)[i] - at;                          \
            device::radix_sort(keys + at, keys_out + at, values + at, values_out + at, count, first_bit, last_bit, is_down);   \
        }                                                                                                                      \
        return cudaSuccess;                                                                                                    \
    }                                                                                                                          \
    template <class K, class N, class B, class E>                                                                              \
    static cudaError_t SortKeys##name(void* temporary, size_t& bytes, const K* keys, K* keys_out, N, int segments, B begins,   \
                                      E ends, int first_bit = 0, int last_bit = 8 * sizeof(K), MPTUNE_STREAM) {                \
        MPTUNE_CALL("DeviceSegmentedRadixSort", keys, keys_out, begins, ends);                                                 \
        for (int i = 0; i < segments; ++i) {                                                                                   \
            const ptrdiff_t at = device::directly(begins)[i], count = device::directly(ends)[i] - at;                          \
            device::radix_sort<K, char>(keys + at, keys_out + at, nullptr, nullptr, count, first_bit, last_bit, is_down);      \
        }                                                                                                                      \
        return cudaSuccess;                                                                                                    \
    }
struct DeviceSegmentedRadixSort {
    MPTUNE_SORT(, false)
    MPTUNE_SORT(Descending, true)
};
#undef MPTUNE_SORT

struct DeviceMergeSort {
    template <class K, class N, class F>
    static cudaError_t SortKeys(void* temporary, size_t& bytes, K keys, N count, F is_less, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceMergeSort", keys);
        thrust::stable_sort(keys, keys + count, is_less);
        return cudaSuccess;
    }
    template <class K, class V, class N, class F>
    static cudaError_t SortPairs(void* temporary, size_t& bytes, K keys, V values, N count, F is_less, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceMergeSort", keys, values);
        thrust::stable_sort_by_key(keys, keys + count, values, is_less);
        return cudaSuccess;
    }
    template <class K, class N, class F>
    static cudaError_t StableSortKeys(void* temporary, size_t& bytes, K keys, N count, F is_less, cudaStream_t stream = 0) {
        return SortKeys(temporary, bytes, keys, count, is_less, stream);
    }
    template <class K, class V, class N, class F>
    static cudaError_t StableSortPairs(void* temporary, size_t& bytes, K keys, V values, N count, F is_less, cudaStream_t stream = 0) {
        return SortPairs(temporary, bytes, keys, values, count, is_less, stream);
    }
};

struct DeviceSelect {
    template <class I, class O, class S, class N, class P>
    static cudaError_t If(void* temporary, size_t& bytes, I in, O out, S selected, N count, P is_wanted, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceSelect", in, out, selected, is_wanted);
        *device::directly(selected) = thrust::copy_if(in, in + count, out, is_wanted) - out;
        return cudaSuccess;
    }
    template <class I, class G, class O, class S, class N>
    static cudaError_t Flagged(void* temporary, size_t& bytes, I in, G flags, O out, S selected, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceSelect", in, flags, out, selected);
        const auto is_set = [](const auto& flag) { return static_cast<bool>(flag); };
        *device::directly(selected) = thrust::copy_if(in, in + count, flags, out, is_set) - out;
        return cudaSuccess;
    }
    template <class I, class O, class S, class N>
    static cudaError_t Unique(void* temporary, size_t& bytes, I in, O out, S selected, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceSelect", in, out, selected);
        *device::directly(selected) = thrust::unique_copy(in, in + count, out) - out;
        return cudaSuccess;
    }
};

struct DevicePartition {
    template <class I, class O, class S, class N, class P>
    static cudaError_t If(void* temporary, size_t& bytes, I in, O out, S selected, N count, P is_wanted, MPTUNE_STREAM) {
        MPTUNE_CALL("DevicePartition", in, out, selected, is_wanted);
        const auto from = device::directly(in);
        const auto to = device::directly(out);
        N found = 0, others = count;
        for (N i = 0; i < count; ++i) {  // those that are not wanted come last, in reverse order
            if (is_wanted(from[i])) to[found++] = from[i];
            else to[--others] = from[i];
        }
        *device::directly(selected) = found;
        return cudaSuccess;
    }
};

struct DeviceRunLengthEncode {
    template <class I, class U, class L, class R, class N>
    static cudaError_t Encode(void* temporary, size_t& bytes, I in, U unique, L lengths, R runs, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceRunLengthEncode", in, unique, lengths, runs);
        const auto end = thrust::reduce_by_key(in, in + count, thrust::constant_iterator<int>(1), unique, lengths);
        *device::directly(runs) = end.second - lengths;
        return cudaSuccess;
    }
};

struct DeviceHistogram {
    // Bins of the same width between two limits; the samples outside are in none.
    template <class I, class C, class L, class N>
    static cudaError_t HistogramEven(void* temporary, size_t& bytes, I in, C* histogram, int levels, L lower, L upper, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceHistogram", in, histogram);
        const auto from = device::directly(in);
        for (int bin = 0; bin + 1 < levels; ++bin) histogram[bin] = 0;
        for (N i = 0; i < count; ++i) {
            const L sample = static_cast<L>(from[i]);
            if (sample < lower || !(sample < upper)) continue;
            const auto place = static_cast<long long>((sample - lower) * static_cast<double>(levels - 1) / (upper - lower));
            ++histogram[place < levels - 2 ? place : levels - 2];
        }
        return cudaSuccess;
    }
    template <class I, class C, class L, class N>
    static cudaError_t HistogramRange(void* temporary, size_t& bytes, I in, C* histogram, int levels, const L* limits, N count, MPTUNE_STREAM) {
        MPTUNE_CALL("DeviceHistogram", in, histogram, limits);
        const auto from = device::directly(in);
        for (int bin = 0; bin + 1 < levels; ++bin) histogram[bin] = 0;
        for (N i = 0; i < count; ++i) {
            const auto place = std::upper_bound(limits, limits + levels, static_cast<L>(from[i])) - limits;
            if (place > 0 && place < levels) ++histogram[place - 1];
        }
        return cudaSuccess;
    }
};

struct DeviceFor {
    template <class N, class F>
    static cudaError_t Bulk(N count, F f, cudaStream_t = 0) {
        thrust::for_each_n(thrust::counting_iterator<N>(0), count, f);
        return cudaSuccess;
    }
    template <class I, class N, class F>
    static cudaError_t ForEachN(I first, N count, F f, cudaStream_t = 0) {
        thrust::for_each_n(first, count, f);
        return cudaSuccess;
    }
};

#undef MPTUNE_CALL
#undef MPTUNE_STREAM

}  // namespace cub

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif

#include "mptune_layer/letters_end.hpp"
