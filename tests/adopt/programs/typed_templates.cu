// Templates whose one type is that of the buffers, of numbers passed by value and of the arithmetic.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

template <typename T>
struct Rod {
    T *now, *next;
    T rate;
    int cells;
    __device__ T change(int i) const {
        T around = now[i - 1] + now[i + 1];
        return rate * (around - T(2) * now[i]);
    }
};

template <typename T>
__device__ T at_least(T value, T low) { return value < low ? low : value; }

template <typename T>
__global__ void diffuse(Rod<T> rod) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1 || i >= rod.cells - 1) return;
    T moved = rod.now[i] + rod.change(i);
    rod.next[i] = at_least(moved, T(0.001));
}

template <typename T>
__global__ void damp(T* rod, T by, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < cells) rod[i] = rod[i] * by;
}

template <typename T>
__global__ void lift(T* rod, const T by, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T lifted = i < cells ? rod[i] + by : T(0);
    if (i < cells) rod[i] = lifted;
}

template <typename T>
double solve(int cells, int steps) {
    std::vector<T> heat(cells);
    double before = 0, after = 0;
    for (int i = 0; i < cells; i++) before += heat[i] = 1 + i % 13;
    Rod<T> rod;
    rod.cells = cells;
    rod.rate = 0.25;
    cudaMalloc(&rod.now, cells * sizeof(T));
    cudaMalloc(&rod.next, cells * sizeof(T));
    cudaMemcpy(rod.now, heat.data(), cells * sizeof(T), cudaMemcpyHostToDevice);
    cudaMemcpy(rod.next, heat.data(), cells * sizeof(T), cudaMemcpyHostToDevice);
    for (int step = 0; step < steps; step++) {
        diffuse<<<(cells + 63) / 64, 64>>>(rod);
        damp<<<(cells + 63) / 64, 64>>>(rod.next, 0.5, cells);
        lift<T><<<(cells + 63) / 64, 64>>>(rod.next, 3.5, cells);
        T* last = rod.now;
        rod.now = rod.next;
        rod.next = last;
    }
    cudaMemcpy(heat.data(), rod.now, cells * sizeof(T), cudaMemcpyDeviceToHost);
    for (int i = 0; i < cells; i++) after += heat[i];
    return after / before;
}

int main() {
    double kept = solve<double>(3000, 10);
    printf("%.5f of the heat is left: %s\n", kept, fabs(kept - 1) < 0.01 ? "PASSED" : "FAILED");
    return fabs(kept - 1) >= 0.01;
}
