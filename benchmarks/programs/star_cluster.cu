// The gravitational potential in each star of a cluster that is far from the origin of its coordinates.
//
//     nvcc -O3 star_cluster.cu -o star_cluster && ./star_cluster 8192
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

__global__ void potential_of(const double* x, const double* y, const double* z, const double* mass, double* potential,
                             double softening, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0.0;
    for (int j = 0; j < n; j++) {
        double dx = x[j] - x[i];
        double dy = y[j] - y[i];
        double dz = z[j] - z[i];
        double square = dx * dx + dy * dy + dz * dz + softening * softening;
        double weight = mass[j] * rsqrt(square);
        sum += weight;
    }
    potential[i] = sum;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 8192;
    double softening = 0.01;  // parsec

    std::mt19937_64 generator(10);
    std::normal_distribution<double> normal(0.0, 1.0);
    std::vector<double> x(n), y(n), z(n), mass(n), potential(n);
    for (int i = 0; i < n; i++) {
        x[i] = 8178.0 + normal(generator);
        y[i] = -2310.0 + normal(generator);
        z[i] = 20.8 + normal(generator);
        mass[i] = std::exp(0.5 * normal(generator));
    }

    size_t bytes = n * sizeof(double);
    double* d_x;
    double* d_y;
    double* d_z;
    double* d_mass;
    double* d_potential;
    cudaMalloc(&d_x, bytes);
    cudaMalloc(&d_y, bytes);
    cudaMalloc(&d_z, bytes);
    cudaMalloc(&d_mass, bytes);
    cudaMalloc(&d_potential, bytes);
    cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_y, y.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_z, z.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_mass, mass.data(), bytes, cudaMemcpyHostToDevice);
    potential_of<<<(n + 127) / 128, 128>>>(d_x, d_y, d_z, d_mass, d_potential, softening, n);
    cudaMemcpy(potential.data(), d_potential, bytes, cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int i = 0; i < n; i += 71) {
        double sum = 0.0;
        for (int j = 0; j < n; j++) {
            double dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
            sum += mass[j] / sqrt(dx * dx + dy * dy + dz * dz + softening * softening);
        }
        worst = fmax(worst, fabs(potential[i] - sum) / sum);
    }
    printf("%d stars, %s\n", n, worst < 1e-5 ? "PASS" : "FAIL");

    cudaFree(d_x);
    cudaFree(d_y);
    cudaFree(d_z);
    cudaFree(d_mass);
    cudaFree(d_potential);
    return worst < 1e-5 ? 0 : 1;
}
