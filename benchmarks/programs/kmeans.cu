// The squared distance of each point to the nearest of some cluster centres: the step of k-means that takes the time.
//
//     nvcc -O3 kmeans.cu -o kmeans && ./kmeans 500000
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#define FEATURES 15
#define CLUSTERS 40

// Points lie feature by feature, centres one after the other.
__global__ void nearest(const double* points, const double* centres, double* distance, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double best = 1e30;
    for (int c = 0; c < CLUSTERS; c++) {
        double sum = 0.0;
        for (int f = 0; f < FEATURES; f++) {
            double difference = points[f * n + i] - centres[c * FEATURES + f];
            sum += difference * difference;
        }
        if (sum < best) best = sum;
    }
    distance[i] = best;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 500000;

    std::mt19937_64 generator(7);
    std::normal_distribution<double> normal(0.0, 1.0);
    std::vector<double> points(FEATURES * n), centres(CLUSTERS * FEATURES), distance(n);
    for (double& c : centres) c = 0.9 * normal(generator);
    for (int i = 0; i < n; i++) {
        int cluster = generator() % CLUSTERS;
        for (int f = 0; f < FEATURES; f++) {
            points[f * n + i] = centres[cluster * FEATURES + f] + 0.4 * normal(generator);
        }
    }
    for (double& c : centres) c += 0.1 * normal(generator);

    double* d_points;
    double* d_centres;
    double* d_distance;
    cudaMalloc(&d_points, points.size() * sizeof(double));
    cudaMalloc(&d_centres, centres.size() * sizeof(double));
    cudaMalloc(&d_distance, distance.size() * sizeof(double));
    cudaMemcpy(d_points, points.data(), points.size() * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_centres, centres.data(), centres.size() * sizeof(double), cudaMemcpyHostToDevice);
    nearest<<<(n + 255) / 256, 256>>>(d_points, d_centres, d_distance, n);
    cudaMemcpy(distance.data(), d_distance, distance.size() * sizeof(double), cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int i = 0; i < n; i += 71) {
        double best = INFINITY;
        for (int c = 0; c < CLUSTERS; c++) {
            double sum = 0.0;
            for (int f = 0; f < FEATURES; f++) {
                double difference = points[f * n + i] - centres[c * FEATURES + f];
                sum += difference * difference;
            }
            best = fmin(best, sum);
        }
        worst = fmax(worst, fabs(distance[i] - best) / best);
    }
    printf("%d points, %s\n", n, worst < 1e-6 ? "PASS" : "FAIL");

    cudaFree(d_points);
    cudaFree(d_centres);
    cudaFree(d_distance);
    return worst < 1e-6 ? 0 : 1;
}
