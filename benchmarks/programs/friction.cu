// The friction of flows in rough pipes by the equation of Colebrook and White: a fixed point that many steps come near
// to, and two more steps refine.
//
//     nvcc -O3 friction.cu -o friction && ./friction 500000
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#define STEPS 12

__global__ void friction_of(const double* reynolds, const double* roughness, double* friction, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double rough = roughness[i] / 3.7;
        double smooth = 2.51 / reynolds[i];
        double near = 7.0;
        for (int step = 0; step < STEPS; step++) {
            double inside = rough + smooth * near;
            near = -0.8685889638065037 * log(inside);
        }
        double inner = roughness[i] / 3.7 + 2.51 / reynolds[i] * near;
        double better = -0.8685889638065037 * log(inner);
        double innermost = roughness[i] / 3.7 + 2.51 / reynolds[i] * better;
        double root = -0.8685889638065037 * log(innermost);
        friction[i] = 1.0 / (root * root);
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 500000;

    std::mt19937_64 generator(9);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> reynolds(n), roughness(n), friction(n);
    for (int i = 0; i < n; i++) {
        reynolds[i] = std::pow(10.0, 4.0 + 4.0 * uniform(generator));
        roughness[i] = std::pow(10.0, -5.0 + 3.0 * uniform(generator));
    }

    size_t bytes = n * sizeof(double);
    double* d_reynolds;
    double* d_roughness;
    double* d_friction;
    cudaMalloc(&d_reynolds, bytes);
    cudaMalloc(&d_roughness, bytes);
    cudaMalloc(&d_friction, bytes);
    cudaMemcpy(d_reynolds, reynolds.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_roughness, roughness.data(), bytes, cudaMemcpyHostToDevice);
    friction_of<<<(n + 127) / 128, 128>>>(d_reynolds, d_roughness, d_friction, n);
    cudaMemcpy(friction.data(), d_friction, bytes, cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int i = 0; i < n; i += 31) {
        double root = 7.0;
        for (int step = 0; step < 50; step++) root = -2.0 * std::log10(roughness[i] / 3.7 + 2.51 / reynolds[i] * root);
        worst = fmax(worst, fabs(friction[i] - 1.0 / (root * root)) * root * root);
    }
    printf("%d pipes, %s\n", n, worst < 1e-6 ? "PASS" : "FAIL");

    cudaFree(d_reynolds);
    cudaFree(d_roughness);
    cudaFree(d_friction);
    return worst < 1e-6 ? 0 : 1;
}
