// The potential of a charged film in the points of a plane beside it.
//
//     nvcc -O3 coulombic.cu -o coulombic && ./coulombic 256 160 800
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

struct Charge {
    double x, y, z, q;
};

__global__ void potential_of(const double4* charges, double* potential, double spacing, int count, int width, int height) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    double x = column * spacing, y = row * spacing;
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        double4 charge = charges[i];
        double dx = x - charge.x, dy = y - charge.y;
        sum += charge.w * rsqrt(dx * dx + dy * dy + charge.z * charge.z);
    }
    potential[row * width + column] = sum;
}

int main(int argc, char** argv) {
    int width = argc > 1 ? atoi(argv[1]) : 256;
    int height = argc > 2 ? atoi(argv[2]) : 160;
    int count = argc > 3 ? atoi(argv[3]) : 800;
    double spacing = 32.0 / width;  // nm

    std::mt19937_64 generator(4);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<Charge> film(count);
    for (Charge& charge : film) {
        charge.x = 32.0 * uniform(generator);
        charge.y = height * spacing * uniform(generator);
        charge.z = 0.3 + 3.7 * uniform(generator);
        charge.q = 0.1 + 0.8 * uniform(generator);
    }
    std::vector<double4> charges(count);
    for (int i = 0; i < count; i++) charges[i] = make_double4(film[i].x, film[i].y, film[i].z, film[i].q);
    std::vector<double> potential(width * height);

    double4* d_charges;
    double* d_potential;
    cudaMalloc(&d_charges, count * sizeof(double4));
    cudaMalloc(&d_potential, potential.size() * sizeof(double));
    cudaMemcpy(d_charges, charges.data(), count * sizeof(double4), cudaMemcpyHostToDevice);

    dim3 block(16, 8);
    dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    potential_of<<<grid, block>>>(d_charges, d_potential, spacing, count, width, height);
    cudaDeviceSynchronize();
    cudaMemcpy(potential.data(), d_potential, potential.size() * sizeof(double), cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int point = 0; point < width * height; point += 43) {
        double x = point % width * spacing, y = point / width * spacing, sum = 0.0;
        for (const Charge& charge : film) {
            double dx = x - charge.x, dy = y - charge.y;
            sum += charge.q / sqrt(dx * dx + dy * dy + charge.z * charge.z);
        }
        worst = fmax(worst, fabs(potential[point] - sum) / sum);
    }
    printf("%d charges, %d x %d points, %s\n", count, width, height, worst < 1e-6 ? "PASS" : "FAIL");

    cudaFree(d_charges);
    cudaFree(d_potential);
    return worst < 1e-6 ? 0 : 1;
}
