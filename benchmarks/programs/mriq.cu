// The Q matrix of MRI reconstruction: for every voxel the sum over samples of weight times exp(2 pi i k.r).
//
//     nvcc -O3 mriq.cu -o mriq && ./mriq 16 2048
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#define TWO_PI 6.283185307179586

__global__ void compute_q(
    const double* x, const double* y, const double* z, const double* kx, const double* ky, const double* kz,
    const double* weight, double2* q, int voxels, int samples) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= voxels) return;
    double xi = x[i], yi = y[i], zi = z[i];
    double real = 0.0, imaginary = 0.0;
    for (int k = 0; k < samples; k++) {
        double angle = TWO_PI * (kx[k] * xi + ky[k] * yi + kz[k] * zi);
        real += weight[k] * cos(angle);
        imaginary += weight[k] * sin(angle);
    }
    q[i] = make_double2(real, imaginary);
}

int main(int argc, char** argv) {
    int side = argc > 1 ? atoi(argv[1]) : 16;
    int samples = argc > 2 ? atoi(argv[2]) : 2048;
    int voxels = side * side * side;
    double view = 24.0;  // cm

    std::vector<double> x(voxels), y(voxels), z(voxels);
    for (int i = 0; i < voxels; i++) {
        x[i] = (i % side - 0.5 * (side - 1)) * view / side;
        y[i] = (i / side % side - 0.5 * (side - 1)) * view / side;
        z[i] = (i / (side * side) - 0.5 * (side - 1)) * view / side;
    }
    // Spokes through the centre of k-space.
    std::mt19937_64 generator(3);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> kx(samples), ky(samples), kz(samples), weight(samples);
    int readout = (int)sqrt((double)samples), spokes = (samples + readout - 1) / readout;
    double delay = 0.0;
    for (int k = 0; k < samples; k++) {
        if (k % readout == 0) delay = uniform(generator);
        double radius = ((k % readout + delay) / readout - 0.5) * side / view;
        double height = (k / readout + 0.5) / spokes, turn = TWO_PI * 1.618033988749895 * (k / readout);
        kx[k] = radius * cos(turn) * sqrt(1.0 - height * height);
        ky[k] = radius * sin(turn) * sqrt(1.0 - height * height);
        kz[k] = radius * height;
        weight[k] = exp(-2.0 * radius * radius);
    }

    double* d_x;
    double* d_y;
    double* d_z;
    double* d_kx;
    double* d_ky;
    double* d_kz;
    double* d_weight;
    double2* d_q;
    cudaMalloc(&d_x, voxels * sizeof(double));
    cudaMalloc(&d_y, voxels * sizeof(double));
    cudaMalloc(&d_z, voxels * sizeof(double));
    cudaMalloc(&d_kx, samples * sizeof(double));
    cudaMalloc(&d_ky, samples * sizeof(double));
    cudaMalloc(&d_kz, samples * sizeof(double));
    cudaMalloc(&d_weight, samples * sizeof(double));
    cudaMalloc(&d_q, voxels * sizeof(double2));
    cudaMemcpy(d_x, x.data(), voxels * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_y, y.data(), voxels * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_z, z.data(), voxels * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_kx, kx.data(), samples * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_ky, ky.data(), samples * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_kz, kz.data(), samples * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_weight, weight.data(), samples * sizeof(double), cudaMemcpyHostToDevice);

    int threads = 128;
    compute_q<<<(voxels + threads - 1) / threads, threads>>>(
        d_x, d_y, d_z, d_kx, d_ky, d_kz, d_weight, d_q, voxels, samples);
    std::vector<double2> q(voxels);
    cudaMemcpy(q.data(), d_q, voxels * sizeof(double2), cudaMemcpyDeviceToHost);

    double worst = 0.0, largest = 0.0;
    for (int i = 0; i < voxels; i += 29) {
        double a = 0.0, b = 0.0;
        for (int k = 0; k < samples; k++) {
            double angle = TWO_PI * (kx[k] * x[i] + ky[k] * y[i] + kz[k] * z[i]);
            a += weight[k] * cos(angle);
            b += weight[k] * sin(angle);
        }
        worst = fmax(worst, fmax(fabs(q[i].x - a), fabs(q[i].y - b)));
        largest = fmax(largest, fabs(a));
    }
    printf("%d voxels, %d samples, %s\n", voxels, samples, worst < 1e-6 * largest ? "PASS" : "FAIL");

    cudaFree(d_x);
    cudaFree(d_y);
    cudaFree(d_z);
    cudaFree(d_kx);
    cudaFree(d_ky);
    cudaFree(d_kz);
    cudaFree(d_weight);
    cudaFree(d_q);
    return worst < 1e-6 * largest ? 0 : 1;
}
