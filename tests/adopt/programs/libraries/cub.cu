// cub's functions of whole arrays on what a kernel computes: printed with the name of the call.
#include <cub/cub.cuh>

#include <cstdio>
#include <vector>

__global__ void fill(double* x, int* keys, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = (i * 37 % 101) * 0.5 - 7;
        keys[i] = i * 53 % 97 - 40;
    }
}

struct smaller {
    double than;
    __host__ __device__ bool operator()(double x) const { return x < than; }
};

template <class T>
void show(const char* name, const T* device, int n) {
    std::vector<T> values(n);
    cudaMemcpy(values.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost);
    printf("%s", name);
    for (T value : values) printf(" %.17g", (double)value);
    printf("\n");
}

template <class F>
void twice(F call) {
    void* room = nullptr;
    size_t bytes = 0;
    call(room, bytes);
    cudaMalloc(&room, bytes);
    call(room, bytes);
    cudaFree(room);
}

int main() {
    const int n = 600;
    double *x, *y;
    int *keys, *sorted, *count;
    cudaMalloc(&x, n * sizeof(double));
    cudaMalloc(&y, n * sizeof(double));
    cudaMalloc(&keys, n * sizeof(int));
    cudaMalloc(&sorted, n * sizeof(int));
    cudaMalloc(&count, 8 * sizeof(int));
    fill<<<(n + 127) / 128, 128>>>(x, keys, n);
    twice([&](void* room, size_t& bytes) { cub::DeviceReduce::Sum(room, bytes, x, y, n); });
    show("sum", y, 1);
    twice([&](void* room, size_t& bytes) { cub::DeviceReduce::Min(room, bytes, x, y, n); });
    show("min", y, 1);
    twice([&](void* room, size_t& bytes) { cub::DeviceScan::ExclusiveSum(room, bytes, x, y, n); });
    show("exclusive_sum", y, n);
    twice([&](void* room, size_t& bytes) { cub::DeviceScan::InclusiveScan(room, bytes, x, y, cub::Max(), n); });
    show("running_max", y, n);
    twice([&](void* room, size_t& bytes) { cub::DeviceRadixSort::SortPairs(room, bytes, keys, sorted, x, y, n); });
    show("sorted", sorted, n);
    show("sorted_values", y, n);
    twice([&](void* room, size_t& bytes) { cub::DeviceRadixSort::SortKeysDescending(room, bytes, x, y, n); });
    show("descending", y, n);
    twice([&](void* room, size_t& bytes) { cub::DeviceSelect::If(room, bytes, x, y, count, n, smaller{-2}); });
    show("selected", count, 1);
    show("selected_values", y, 100);
    twice([&](void* room, size_t& bytes) { cub::DeviceHistogram::HistogramEven(room, bytes, x, count, 9, -7.0, 33.0, n); });
    show("histogram", count, 8);
    return 0;
}
