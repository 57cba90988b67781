// Kernels that call libraries: sums and maxima of a block, sums before each element, sums of rows by tiles, and random steps.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
#include <cuda_runtime.h>
#include <curand_kernel.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace cg = cooperative_groups;

#define THREADS 128

__device__ double larger_of(double a, double b) { return a > b ? a : b; }

struct Larger {
    __device__ double operator()(const double& a, const double& b) const { return larger_of(a, b); }
};

__global__ void norms(const double* x, double* sums, int n) {
    typedef cub::BlockReduce<double, THREADS> Reduce;
    __shared__ typename Reduce::TempStorage storage;
    double sum = 0.0, largest = 0.0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        sum += x[blockIdx.x * n + i];
        largest = larger_of(largest, x[blockIdx.x * n + i]);
    }
    sum = Reduce(storage).Sum(sum);
    __syncthreads();
    largest = Reduce(storage).Reduce(largest, Larger());
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = sum;
        sums[2 * blockIdx.x + 1] = largest;
    }
}

template <typename T, int ITEMS>
__global__ void running(const T* x, T* totals, int n) {
    using Load = cub::BlockLoad<T, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE>;
    using Scan = cub::BlockScan<T, THREADS>;
    using Store = cub::BlockStore<T, THREADS, ITEMS, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } storage;
    T items[ITEMS];
    const int first = blockIdx.x * THREADS * ITEMS;
    Load(storage.load).Load(x + first, items, n - first, T(0));
    __syncthreads();
    Scan(storage.scan).InclusiveSum(items, items);
    __syncthreads();
    Store(storage.store).Store(totals + first, items, n - first);
}

__global__ void rows(const double* x, double* means, int count, int width) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (row >= count) return;
    double sum = 0.0;
    for (int i = warp.thread_rank(); i < width; i += warp.size()) sum += x[row * width + i];
    sum = cg::reduce(warp, sum, cg::plus<double>{});
    if (warp.thread_rank() == 0) means[row] = sum / width;
}

__global__ void walk(curandState* states, double* places, int n, int steps, unsigned long long seed) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curand_init(seed, i, 0, &states[i]);
    double place = 0.0;
    for (int step = 0; step < steps; step++) place += 0.5 * curand_uniform_double(&states[i]);
    places[i] = place;
}

int main(int argc, char** argv) {
    const int blocks = argc > 1 ? atoi(argv[1]) : 4, n = 1000, count = blocks * 10;
    std::vector<double> x(blocks * n), sums(2 * blocks), totals(blocks * n), means(count), places(200);
    for (size_t i = 0; i < x.size(); i++) x[i] = 1.0 + 0.001 * (i * 37 % 1000);
    double *d_x, *d_sums, *d_totals, *d_means, *d_places;
    curandState* states;
    cudaMalloc(&d_x, x.size() * sizeof(double));
    cudaMalloc(&d_sums, sums.size() * sizeof(double));
    cudaMalloc(&d_totals, totals.size() * sizeof(double));
    cudaMalloc(&d_means, means.size() * sizeof(double));
    cudaMalloc(&d_places, places.size() * sizeof(double));
    cudaMalloc(&states, places.size() * sizeof(curandState));
    cudaMemcpy(d_x, x.data(), x.size() * sizeof(double), cudaMemcpyHostToDevice);
    norms<<<blocks, THREADS>>>(d_x, d_sums, n);
    running<double, 4><<<(blocks * n + 511) / 512, THREADS>>>(d_x, d_totals, blocks * n);
    rows<<<(count + 3) / 4, 128>>>(d_x, d_means, count, 100);
    walk<<<2, 128>>>(states, d_places, 200, 10, 1234);
    cudaMemcpy(sums.data(), d_sums, sums.size() * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(totals.data(), d_totals, totals.size() * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(means.data(), d_means, means.size() * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(places.data(), d_places, places.size() * sizeof(double), cudaMemcpyDeviceToHost);
    bool is_right = true;
    for (int b = 0; b < blocks; b++) {
        double sum = 0, largest = 0;
        for (int i = 0; i < n; i++) {
            sum += x[b * n + i];
            largest = x[b * n + i] > largest ? x[b * n + i] : largest;
        }
        is_right = is_right && sum - sums[2 * b] < 1 && sums[2 * b] - sum < 1 && largest - sums[2 * b + 1] < 0.01;
    }
    printf("%.17g %.17g %.17g %.17g\n", sums[2], sums[3], totals[511], means[3]);
    printf("%s\n", is_right ? "PASS" : "FAIL");
    return 0;
}
