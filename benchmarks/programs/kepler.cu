// How far planets are from their stars at the times of some observations: a mean anomaly from days that are counted from
// far in the past, and the root of Kepler's equation by Newton's method.
//
//     nvcc -O3 kepler.cu -o kepler && ./kepler 500000
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#define STEPS 6

// The part of a turn since the last passage of the point that is nearest to the star.
__device__ double turn_of(double day, double passage, double period) {
    double turns = (day - passage) / period;
    return turns - floor(turns);
}

__global__ void distance_of(const double* day, const double* passage, const double* period, const double* eccentricity,
                            const double* axis, double* distance, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double mean = 6.283185307179586 * turn_of(day[i], passage[i], period[i]);
        double e = eccentricity[i];
        double anomaly = mean + e * sin(mean);
        for (int step = 0; step < STEPS; step++) {
            double excess = anomaly - e * sin(anomaly) - mean;
            double slope = 1.0 - e * cos(anomaly);
            anomaly -= excess / slope;
        }
        distance[i] = axis[i] * (1.0 - e * cos(anomaly));
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 500000;

    std::mt19937_64 generator(8);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> day(n), passage(n), period(n), eccentricity(n), axis(n), distance(n);
    for (int i = 0; i < n; i++) {
        day[i] = 2455000.0 + 5000.0 * uniform(generator);
        passage[i] = 2451545.0 + 100.0 * uniform(generator);
        period[i] = 1.0 + 50.0 * uniform(generator);
        eccentricity[i] = 0.6 * uniform(generator);
        axis[i] = 0.02 * std::pow(period[i], 2.0 / 3.0);
    }

    size_t bytes = n * sizeof(double);
    double* d_day;
    double* d_passage;
    double* d_period;
    double* d_eccentricity;
    double* d_axis;
    double* d_distance;
    cudaMalloc(&d_day, bytes);
    cudaMalloc(&d_passage, bytes);
    cudaMalloc(&d_period, bytes);
    cudaMalloc(&d_eccentricity, bytes);
    cudaMalloc(&d_axis, bytes);
    cudaMalloc(&d_distance, bytes);
    cudaMemcpy(d_day, day.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_passage, passage.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_period, period.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_eccentricity, eccentricity.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_axis, axis.data(), bytes, cudaMemcpyHostToDevice);
    distance_of<<<(n + 127) / 128, 128>>>(d_day, d_passage, d_period, d_eccentricity, d_axis, d_distance, n);
    cudaMemcpy(distance.data(), d_distance, bytes, cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int i = 0; i < n; i += 31) {
        double turns = (day[i] - passage[i]) / period[i], mean = 6.283185307179586 * (turns - std::floor(turns));
        double anomaly = mean;
        for (int step = 0; step < 200; step++) anomaly = mean + eccentricity[i] * std::sin(anomaly);
        double wanted = axis[i] * (1.0 - eccentricity[i] * std::cos(anomaly));
        worst = fmax(worst, fabs(distance[i] - wanted) / wanted);
    }
    printf("%d planets, %s\n", n, worst < 1e-4 ? "PASS" : "FAIL");

    cudaFree(d_day);
    cudaFree(d_passage);
    cudaFree(d_period);
    cudaFree(d_eccentricity);
    cudaFree(d_axis);
    cudaFree(d_distance);
    return worst < 1e-4 ? 0 : 1;
}
