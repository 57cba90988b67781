// The libraries for kernels on values of every type; test_prelude_libraries.py runs it on the host and compiles it for GPUs.

namespace cg = cooperative_groups;

constexpr int threads = 96, items = 3;

struct Larger {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};
// A function that is asked what comes before a block's numbers.
struct Before {
    int total;
    __device__ int operator()(int of_block) {
        const int before = total;
        total += of_block;
        return before;
    }
};

// Lines of n: sums and maxima of blocks (of the first `valid` threads), scans before and with each thread, loads and stores.
template <class T>
__device__ void of_block(const T* given, T* out, int n, int valid) {
    using Reduce = cub::BlockReduce<T, 16, cub::BLOCK_REDUCE_RAKING, 3, 2>;
    using Scan = cub::BlockScan<T, 16, cub::BLOCK_SCAN_WARP_SCANS, 3, 2>;
    using Load = cub::BlockLoad<T, 16, items, cub::BLOCK_LOAD_TRANSPOSE, 3, 2>;
    using Store = cub::BlockStore<T, 16, items, cub::BLOCK_STORE_WARP_TRANSPOSE, 3, 2>;
    __shared__ union {
        typename Reduce::TempStorage reduce;
        typename Scan::TempStorage scan;
        typename Load::TempStorage load;
        typename Store::TempStorage store;
    } shared;
    const int thread = threadIdx.x + 16 * (threadIdx.y + 3 * threadIdx.z), i = blockIdx.x * threads + thread;
    const T own = given[i];
    const T sum = Reduce(shared.reduce).Sum(own);
    __syncthreads();
    const T largest = Reduce(shared.reduce).Reduce(own, Larger(), valid);
    __syncthreads();
    if (thread == 0) {
        out[i] = sum;
        out[i + 1] = largest;
    }
    T before, with, total;
    Scan(shared.scan).ExclusiveSum(own, before, total);
    __syncthreads();
    Scan(shared.scan).InclusiveScan(own, with, Larger());
    __syncthreads();
    out[n + i] = before;
    out[2 * n + i] = with;
    out[3 * n + i] = total;
    T several[items];
    const int first = blockIdx.x * threads / items;
    Load(shared.load).Load(given + first, several, threads, T(0));
    __syncthreads();
    Scan(shared.scan).ExclusiveScan(several, several, T(2), cub::Sum());
    __syncthreads();
    Store(shared.store).Store(out + 4 * n + blockIdx.x * threads * items, several);
}

// Lines of n: sums of a warp's quarters, and scans of a warp.
template <class T>
__device__ void of_warp(const T* given, T* out, int n) {
    __shared__ typename cub::WarpReduce<T, 8>::TempStorage reduce[threads / 8];
    __shared__ typename cub::WarpScan<T>::TempStorage scan[threads / 32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
    const T sum = cub::WarpReduce<T, 8>(reduce[threadIdx.x / 8]).Sum(given[i]);
    out[i] = threadIdx.x % 8 == 0 ? sum : T(0);
    T with, before;
    cub::WarpScan<T>(scan[warp]).InclusiveSum(given[i], with);
    __syncwarp();
    cub::WarpScan<T>(scan[warp]).ExclusiveScan(given[i], before, T(1), cub::Max());
    out[n + i] = with;
    out[2 * n + i] = before;
    const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    out[3 * n + i] = cg::reduce(tile, given[i], cg::plus<T>());
    out[4 * n + i] = cg::exclusive_scan(tile, given[i]) + tile.shfl_down(given[i], 2);
}

extern "C" __global__ void blocks(const double* d, const float* f, const half* h, const bfloat16* b, const mp::fp32x2* c,
                                  const int* k, double* d_out, float* f_out, half* h_out, bfloat16* b_out,
                                  mp::fp32x2* c_out, int* k_out, int n, int valid) {
    of_block(d, d_out, n, valid);
    of_block(f, f_out, n, valid);
    of_block(h, h_out, n, valid);
    of_block(b, b_out, n, valid);
    of_block(c, c_out, n, valid);
    of_block(k, k_out, n, valid);
}

extern "C" __global__ void warps(const double* d, const float* f, const half* h, const bfloat16* b, const mp::fp32x2* c,
                                 const int* k, double* d_out, float* f_out, half* h_out, bfloat16* b_out,
                                 mp::fp32x2* c_out, int* k_out, int n, int) {
    of_warp(d, d_out, n);
    of_warp(f, f_out, n);
    of_warp(h, h_out, n);
    of_warp(b, b_out, n);
    of_warp(c, c_out, n);
    of_warp(k, k_out, n);
}

// What has one type: a scan that goes on from block to block, the largest with its place, ranks and votes of a group.
extern "C" __global__ void numbers(const int* k, int* out, int n) {
    using Scan = cub::BlockScan<int, threads>;
    using Pair = cub::KeyValuePair<int, int>;
    __shared__ Scan::TempStorage scan;
    const int thread = threadIdx.x;
    Before before{100};
    for (int first = 0; first < n; first += threads) {
        int sum;
        Scan(scan).ExclusiveSum(k[first + thread], sum, before);
        out[first + thread] = sum;
        __syncthreads();
    }
    const Pair largest = cub::BlockReduce<Pair, threads>().Reduce(Pair(thread, k[thread]), cub::ArgMax());
    if (thread == 0) out[n] = largest.key;
    const auto block = cg::this_thread_block();
    const cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    block.sync();
    const int at = 2 * n + thread;
    out[at] = tile.meta_group_rank() * 1000 + tile.thread_rank() * 10 + tile.size();
    out[at + threads] = static_cast<int>(tile.ballot(k[thread] % 2)) + 1000 * tile.any(k[thread] > 90);
    out[at + 2 * threads] = static_cast<int>(block.thread_rank() + block.group_index().x + block.group_dim().x);
    if (thread % 3 == 0) {
        const auto together = cg::coalesced_threads();
        if (together.thread_rank() == 0) atomicAdd(out + n + 1, static_cast<int>(together.size()));
        out[at + 3 * threads] = together.shfl(thread, together.thread_rank());
    }
}

extern "C" __global__ void draws(unsigned long long seed, unsigned* bits, float* uniform, double* normal, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandState state;
    curand_init(seed, i, 2 * i, &state);
    bits[i] = curand(&state);
    uniform[i] = curand_uniform(&state);
    normal[i] = curand_normal(&state) + curand_normal_double(&state);
    curandStatePhilox4_32_10_t philox;
    curand_init(seed, i, 3, &philox);
    bits[n + i] = curand(&philox);
    bits[2 * n + i] = curand4(&philox).w;
    uniform[n + i] = curand_uniform4(&philox).y;
    normal[n + i] = curand_normal2(&philox).x * curand_uniform_double(&philox);
}
