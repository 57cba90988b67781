// A function template with literals of its type, called by a kernel template that gets a struct by value, and a class
// template whose type is written out where it is named.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Shape {
    double keep, source;
    int side;
};

template <typename T>
struct Plane {
    T *cells;
    T *others;
    int side;
    __device__ T at(int x, int y) const { return cells[y * side + x]; }
};

template <typename T>
__device__ T lap(const T *u, int i, int side) {
    T sides = u[i - 1] + u[i + 1] + u[i - side] + u[i + side];
    T corners = u[i - side - 1] + u[i - side + 1] + u[i + side - 1] + u[i + side + 1];
    return T(0.2) * sides + T(0.05) * corners - u[i];
}

template <typename T>
__global__ void spread(Shape shape, const T *now, T *next) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < 1 || y < 1 || x >= shape.side - 1 || y >= shape.side - 1) return;
    int i = y * shape.side + x;
    T change = lap<T>(now, i, shape.side);
    next[i] = T(shape.keep) * (now[i] + T(0.7) * change) + T(shape.source);
}

__global__ void mean(Plane<double> plane) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < 1 || y < 1 || x >= plane.side - 1 || y >= plane.side - 1) return;
    plane.others[y * plane.side + x] = 0.3 * (plane.at(x - 1, y) + plane.at(x, y) + plane.at(x + 1, y));
}

int main() {
    const int side = 96, cells = side * side;
    Shape shape{0.9 + 0.1 / side, 0.1 / side, side};
    std::vector<double> heat(cells), smooth(cells);
    for (int i = 0; i < cells; i++) heat[i] = 1 + 0.3 * std::sin(0.37 * i);
    double *now, *next;
    Plane<double> plane;
    plane.side = side;
    cudaMalloc(&now, cells * sizeof(double));
    cudaMalloc(&next, cells * sizeof(double));
    cudaMalloc(&plane.cells, cells * sizeof(double));
    cudaMalloc(&plane.others, cells * sizeof(double));
    cudaMemcpy(now, heat.data(), cells * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(next, heat.data(), cells * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(plane.cells, heat.data(), cells * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(plane.others, 0, cells * sizeof(double));
    for (int step = 0; step < 10; step++) {
        spread<double><<<dim3((side + 31) / 32, side), 32>>>(shape, now, next);
        double *last = now;
        now = next;
        next = last;
    }
    mean<<<dim3((side + 31) / 32, side), 32>>>(plane);
    cudaMemcpy(heat.data(), now, cells * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(smooth.data(), plane.others, cells * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < cells; i++) sum += heat[i] / cells;
    printf("mean %.4f: %s\n", sum, sum > 0.3 && sum < 1 && smooth[0] == 0 ? "PASS" : "FAIL");
    return !(sum > 0.3 && sum < 1 && smooth[0] == 0);
}
