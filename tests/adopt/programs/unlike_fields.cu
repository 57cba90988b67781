// Structs and vectors whose parts are of other magnitudes: what is large must not hide what becomes of what is small.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

struct Point {
    double place, speed, idle;
};

__global__ void launch(Point* points, double2* pairs, double2* alike, const double* start, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double place = 1e6 + start[i];
    points[i].place = place;
    points[i].speed = (place - 1e6) * 1e-3;
    points[i].idle = 0;
    pairs[i] = make_double2(place, (place - 1e6) * 1e-3);
    alike[i] = make_double2(place, 2 * place);
}

int main() {
    const int n = 1000;
    std::vector<double> start(n);
    std::vector<Point> points(n);
    std::vector<double2> pairs(n), alike(n);
    for (int i = 0; i < n; i++) start[i] = 0.01 * (1 + i % 97);
    double* d_start;
    Point* d_points;
    double2 *d_pairs, *d_alike;
    cudaMalloc(&d_start, n * sizeof(double));
    cudaMalloc(&d_points, n * sizeof(Point));
    cudaMalloc(&d_pairs, n * sizeof(double2));
    cudaMalloc(&d_alike, n * sizeof(double2));
    cudaMemcpy(d_start, start.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    launch<<<(n + 127) / 128, 128>>>(d_points, d_pairs, d_alike, d_start, n);
    cudaMemcpy(points.data(), d_points, n * sizeof(Point), cudaMemcpyDeviceToHost);
    cudaMemcpy(pairs.data(), d_pairs, n * sizeof(double2), cudaMemcpyDeviceToHost);
    cudaMemcpy(alike.data(), d_alike, n * sizeof(double2), cudaMemcpyDeviceToHost);
    double all = 0;
    for (int i = 0; i < n; i++) all += points[i].speed + pairs[i].y + alike[i].y * 1e-9;
    printf("%s\n", std::isfinite(all) ? "PASSED" : "FAILED");
}
