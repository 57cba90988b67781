// Real by typedef, by using and through one another; a three-vector of the runtime.
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

typedef double Real;
using Length = Real;
typedef double3 Point;

__device__ Real squared(const Point& p) { return p.x * p.x + p.y * p.y + p.z * p.z; }

__global__ void pull(Point* force, const Point* position, Length softening, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Point sum = make_double3(0, 0, 0);
    for (int j = 0; j < n; j++) {
        Point d = make_double3(position[j].x - position[i].x, position[j].y - position[i].y, position[j].z - position[i].z);
        Real weight = 1 / sqrt(squared(d) + softening * softening);
        sum.x += weight * d.x;
        sum.y += weight * d.y;
        sum.z += weight * d.z;
    }
    force[i] = sum;
}

int main() {
    const int n = 200;
    std::vector<Point> position(n), force(n);
    for (int i = 0; i < n; i++) position[i] = make_double3(i * 31 % 97, i * 17 % 89, i * 7 % 83);
    Point *d_position, *d_force;
    cudaMalloc(&d_position, n * sizeof(Point));
    cudaMalloc(&d_force, n * sizeof(Point));
    cudaMemcpy(d_position, position.data(), n * sizeof(Point), cudaMemcpyHostToDevice);
    pull<<<4, 64>>>(d_force, d_position, 0.1, n);
    cudaMemcpy(force.data(), d_force, n * sizeof(Point), cudaMemcpyDeviceToHost);
    // Nothing from outside pulls: all forces together are none.
    double total = 0, size = 0;
    for (auto& f : force) total += f.x + f.y + f.z, size += fabs(f.x);
    bool good = fabs(total) < 1e-9 * size && size > 1;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
