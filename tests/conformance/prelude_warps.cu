// Warp functions of values of every type; test_prelude_warps.py runs it on the host and compiles it for GPUs.

constexpr unsigned all_lanes = 0xffffffffu;

// A sum of a warp's values down a tree, a sum before each thread, values of other threads, and of groups of eight.
template <class T>
__device__ void exchange(const T* given, T* out) {
    const int n = blockDim.x * gridDim.x, i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
    local<T> sum = given[i];
    for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_down_sync(all_lanes, sum, offset);
    out[i] = __shfl_sync(all_lanes, sum, 0);
    local<T> before = given[i];
    for (unsigned offset = 1; offset < 8; offset *= 2) {
        const local<T> other = __shfl_up_sync(all_lanes, before, offset, 8);
        if (lane % 8 >= offset) before += other;
    }
    out[n + i] = before;
    out[2 * n + i] = __shfl_xor_sync(all_lanes, given[i], 5);
    out[3 * n + i] = __shfl(given[i], lane + 3, 8);
    // Only every third thread of the warp is there.
    out[4 * n + i] = 0.0_num;
    if (lane % 3 == 0) out[4 * n + i] = __shfl_sync(0x49249249u, given[i], lane < 30 ? lane + 3 : 0);
}

extern "C" __global__ void warps(const double* d, const float* f, const half* h, const bfloat16* b, const mp::fp32x2* c,
                                 const int* k, double* d_out, float* f_out, half* h_out, bfloat16* b_out, mp::fp32x2* c_out,
                                 int* k_out, unsigned* votes) {
    exchange<double>(d, d_out);
    exchange<float>(f, f_out);
    exchange<half>(h, h_out);
    exchange<bfloat16>(b, b_out);
    exchange<mp::fp32x2>(c, c_out);
    exchange<int>(k, k_out);
    const int n = blockDim.x * gridDim.x, i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
    votes[i] = __ballot_sync(all_lanes, k[i] > 50);
    votes[n + i] = __any_sync(all_lanes, k[i] > 95) + 2 * __all_sync(all_lanes, k[i] < 99);
    votes[2 * n + i] = __match_any_sync(all_lanes, k[i] % 5);
    votes[3 * n + i] = __reduce_add_sync(all_lanes, k[i]);
    votes[4 * n + i] = __reduce_max_sync(all_lanes, k[i]);
    votes[5 * n + i] = __syncthreads_count(k[i] > 50);
    votes[6 * n + i] = __syncthreads_and(k[i] >= 0) + 2 * __syncthreads_or(k[i] > 1000);
    // Two branches, and a loop that threads leave at different times.
    unsigned there = 0;
    if (lane % 2 == 0) there = __activemask();
    else there = __ballot(k[i] > 50);
    votes[7 * n + i] = there;
    unsigned turns = 0;
    for (int turn = 0; turn < k[i]; turn += 40) turns += __popc(__activemask());
    votes[8 * n + i] = turns + 1000 * __popc(__ballot(1));
    __syncwarp();
    int are_all = 0;
    votes[9 * n + i] = __match_all_sync(all_lanes, blockIdx.x, &are_all) + are_all;
}
#if defined(MPTUNE_HOST)
MPTUNE_HOST_ENTRY(warps)
#endif
