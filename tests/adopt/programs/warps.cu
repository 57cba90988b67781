// Moments of the rows of a matrix, a warp for each row; where each row is largest; and a sum before each number.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define ALL 0xffffffffu

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
    return value;
}

__global__ void moments(const double* rows, double* means, double* deviations, int height, int width) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;
    if (row >= height) return;
    double sum = 0.0, squares = 0.0;
    for (int x = lane; x < width; x += warpSize) sum += rows[row * width + x];
    double mean = warp_sum(sum) / width;
    for (int x = lane; x < width; x += warpSize) {
        double distance = rows[row * width + x] - mean;
        squares += distance * distance;
    }
    squares = warp_sum(squares);
    if (lane == 0) {
        means[row] = mean;
        deviations[row] = sqrt(squares / width);
    }
}

__global__ void largest(const double* rows, int* places, int width) {
    __shared__ double values[32];
    __shared__ int indices[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, place = -1;
    double value = -1e300;
    for (int x = threadIdx.x; x < width; x += blockDim.x) {
        if (rows[blockIdx.x * width + x] > value) {
            value = rows[blockIdx.x * width + x];
            place = x;
        }
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        double other = __shfl_down_sync(ALL, value, offset);
        int its_place = __shfl_down_sync(ALL, place, offset);
        if (other > value || (other == value && its_place < place)) {
            value = other;
            place = its_place;
        }
    }
    if (lane == 0) {
        values[warp] = value;
        indices[warp] = place;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int each = 1; each < blockDim.x / 32; each++) {
            if (values[each] > values[0] || (values[each] == values[0] && indices[each] < indices[0])) {
                values[0] = values[each];
                indices[0] = indices[each];
            }
        }
        places[blockIdx.x] = indices[0];
    }
}

// The sum of each row: of its warps, and of their sums by the first one.
__global__ void totals(const double* rows, double* sums, int width) {
    __shared__ double parts[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double sum = 0.0;
    for (int x = threadIdx.x; x < width; x += blockDim.x) sum += rows[blockIdx.x * width + x];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(ALL, sum, offset);
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? parts[lane] : 0.0;
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
    }
    if (threadIdx.x == 0) atomicAdd(sums + blockIdx.x, sum);
}

// How many numbers of a block are above a limit, and their sum up to each thread of a warp.
__global__ void above(const double* x, double* before, int* counts, double limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool is = x[i] > limit;
    unsigned mask = __ballot_sync(ALL, is);
    double sum = is ? x[i] : 0.0;
    for (int offset = 1; offset < 32; offset *= 2) {
        double other = __shfl_up_sync(ALL, sum, offset);
        if (lane >= offset) sum += other;
    }
    before[i] = __any_sync(ALL, is) ? sum : 0.0;
    int count = __syncthreads_count(is);
    if (lane == 0) counts[i / 32] = count * 100 + __popc(mask);
}

int main(int argc, char** argv) {
    const int height = argc > 1 ? std::atoi(argv[1]) : 50, width = 100, n = 1024;
    std::vector<double> rows(height * width), means(height), deviations(height), sums(height), x(n), before(n);
    std::vector<int> places(height), counts(n / 32);
    for (int i = 0; i < height * width; i++) rows[i] = 2.0 + std::sin(0.7 * i) * (1 + i % 13);
    for (int i = 0; i < n; i++) x[i] = 1.0 + 0.5 * std::cos(1.3 * i);
    double *d_rows, *d_means, *d_deviations, *d_sums, *d_x, *d_before;
    int *d_places, *d_counts;
    cudaMalloc(&d_rows, height * width * sizeof(double));
    cudaMalloc(&d_means, height * sizeof(double));
    cudaMalloc(&d_deviations, height * sizeof(double));
    cudaMalloc(&d_sums, height * sizeof(double));
    cudaMalloc(&d_x, n * sizeof(double));
    cudaMalloc(&d_before, n * sizeof(double));
    cudaMalloc(&d_places, height * sizeof(int));
    cudaMalloc(&d_counts, n / 32 * sizeof(int));
    cudaMemcpy(d_rows, rows.data(), height * width * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_x, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    moments<<<(height + 3) / 4, 128>>>(d_rows, d_means, d_deviations, height, width);
    largest<<<height, 64>>>(d_rows, d_places, width);
    cudaMemset(d_sums, 0, height * sizeof(double));
    totals<<<height, 64>>>(d_rows, d_sums, width);
    above<<<n / 256, 256>>>(d_x, d_before, d_counts, 1.25);
    cudaMemcpy(means.data(), d_means, height * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(deviations.data(), d_deviations, height * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(sums.data(), d_sums, height * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(places.data(), d_places, height * sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpy(before.data(), d_before, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(counts.data(), d_counts, n / 32 * sizeof(int), cudaMemcpyDeviceToHost);
    bool is_right = true;
    for (int row = 0; row < height; row++) {
        double sum = 0.0, squares = 0.0;
        int place = 0;
        for (int k = 0; k < width; k++) {
            sum += rows[row * width + k];
            if (rows[row * width + k] > rows[row * width + place]) place = k;
        }
        for (int k = 0; k < width; k++) squares += std::pow(rows[row * width + k] - sum / width, 2);
        is_right = is_right && std::fabs(means[row] - sum / width) < 1e-2 && places[row] == place;
        is_right = is_right && std::fabs(sums[row] - sum) < 1.0;
        is_right = is_right && std::fabs(deviations[row] - std::sqrt(squares / width)) < 1e-2;
    }
    for (int first = 0; first < n; first += 32) {
        double sum = 0.0;
        int in_warp = 0, in_block = 0;
        for (int i = first; i < first + 32; i++) {
            in_warp += x[i] > 1.25;
            sum += x[i] > 1.25 ? x[i] : 0.0;
            is_right = is_right && std::fabs(before[i] - sum) < 1e-2;
        }
        for (int i = first / 256 * 256; i < first / 256 * 256 + 256; i++) in_block += x[i] > 1.25;
        is_right = is_right && counts[first / 32] == in_block * 100 + in_warp;
    }
    std::printf("%s\n", is_right ? "PASS" : "FAIL");
    return is_right ? 0 : 1;
}
