// Bodies that draw each other: vectors that are chosen from memory, or made, so that the last tile has no more than it has.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

__global__ void draw(int n, const double4* bodies, double3* forces) {
    __shared__ double4 tile[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    double4 own = i < n ? bodies[i] : make_double4(0, 0, 0, 0);
    double3 sum = make_double3(0, 0, 0);
    for (int start = 0; start < n; start += 64) {
        const int j = start + threadIdx.x;
        tile[threadIdx.x] = j < n ? bodies[j] : make_double4(own.x, 0., 1e3, 0);
        __syncthreads();
        for (int k = 0; k < 64; k++) {
            const double4 other = tile[k].w > 0.5 ? tile[k] : tile[0].w > 0.5 ? make_double4(0.0, 0, 0, 0) : tile[0];
            const double dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
            const double r2 = dx * dx + dy * dy + dz * dz + 0.01, weight = other.w / (r2 * sqrt(r2));
            sum.x += weight * dx, sum.y += weight * dy, sum.z += weight * dz;
        }
        __syncthreads();
    }
    if (i < n) forces[i] = sum;
}

int main() {
    const int n = 150;
    double4 bodies[n], *d_bodies;
    double3 forces[n], *d_forces;
    for (int i = 0; i < n; i++) bodies[i] = make_double4(sin(i * 1.3), cos(i * 0.7), i % 7 * 0.2, 0.4 + i % 3);
    cudaMalloc(&d_bodies, sizeof(bodies));
    cudaMalloc(&d_forces, sizeof(forces));
    cudaMemcpy(d_bodies, bodies, sizeof(bodies), cudaMemcpyHostToDevice);
    draw<<<(n + 63) / 64, 64>>>(n, d_bodies, d_forces);
    cudaMemcpy(forces, d_forces, sizeof(forces), cudaMemcpyDeviceToHost);
    double total = 0;
    for (int i = 0; i < n; i++) total += fabs(forces[i].x) + fabs(forces[i].y) + fabs(forces[i].z);
    printf(std::isfinite(total) && total > 1 ? "PASSED\n" : "FAILED\n");
}
