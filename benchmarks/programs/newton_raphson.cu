// The molar volume of carbon dioxide by pressure and temperature: a root of the quartic of Beattie and Bridgeman for
// each cell of a simulated gas turbine, by ten steps of Newton's method from the volume of an ideal gas.
//
//     nvcc -O3 newton_raphson.cu -o newton_raphson && ./newton_raphson 1000000
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#define STEPS 10

__global__ void solve(double* root, const double* c0, const double* c1, const double* c2, const double* c3,
                      const double* c4, const double* guess, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double a0 = c0[i], a1 = c1[i], a2 = c2[i], a3 = c3[i], a4 = c4[i];
        double x = guess[i];
        for (int step = 0; step < STEPS; step++) {
            double value = (((a4 * x + a3) * x + a2) * x + a1) * x + a0;
            double slope = ((4.0 * a4 * x + 3.0 * a3) * x + 2.0 * a2) * x + a1;
            x -= value / slope;
        }
        root[i] = x;
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000000;

    std::mt19937_64 generator(6);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> c[5], guess(n), root(n);
    for (auto& coefficients : c) coefficients.resize(n);
    for (int i = 0; i < n; i++) {
        double pressure = 5.0 + 75.0 * uniform(generator), temperature = 350.0 + 250.0 * uniform(generator);
        double thermal = 0.082057 * temperature, attraction = 66.0e4 * 0.082057 / (temperature * temperature);
        c[4][i] = pressure;
        c[3][i] = -thermal;
        c[2][i] = 5.0065 + attraction - thermal * 0.10476;
        c[1][i] = thermal * 0.10476 * 0.07235 - 5.0065 * 0.07132 + attraction * 0.10476;
        c[0][i] = -attraction * 0.10476 * 0.07235;
        guess[i] = thermal / pressure;
    }

    size_t bytes = n * sizeof(double);
    double* d_c[5];
    double* d_guess;
    double* d_root;
    for (int k = 0; k < 5; k++) {
        cudaMalloc(&d_c[k], bytes);
        cudaMemcpy(d_c[k], c[k].data(), bytes, cudaMemcpyHostToDevice);
    }
    cudaMalloc(&d_guess, bytes);
    cudaMalloc(&d_root, bytes);
    cudaMemcpy(d_guess, guess.data(), bytes, cudaMemcpyHostToDevice);
    solve<<<(n + 127) / 128, 128>>>(d_root, d_c[0], d_c[1], d_c[2], d_c[3], d_c[4], d_guess, n);
    cudaMemcpy(root.data(), d_root, bytes, cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int i = 0; i < n; i += 31) {
        double x = guess[i];
        for (int step = 0; step < 2 * STEPS; step++) {
            double value = (((c[4][i] * x + c[3][i]) * x + c[2][i]) * x + c[1][i]) * x + c[0][i];
            double slope = ((4.0 * c[4][i] * x + 3.0 * c[3][i]) * x + 2.0 * c[2][i]) * x + c[1][i];
            x -= value / slope;
        }
        worst = fmax(worst, fabs(root[i] - x) / x);
    }
    printf("%d cells, %s\n", n, worst < 1e-6 ? "PASS" : "FAIL");

    for (double* pointer : d_c) cudaFree(pointer);
    cudaFree(d_guess);
    cudaFree(d_root);
    return worst < 1e-6 ? 0 : 1;
}
