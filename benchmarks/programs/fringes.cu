// Light of a spectrum that comes through two slits: its intensity along a screen, from paths of very many wavelengths.
//
//     nvcc -O3 fringes.cu -o fringes && ./fringes 50000 64
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

__global__ void intensity_of(const double* per_metre, const double* strength, double* intensity, double slits,
                             double screen, double spacing, int lines, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double height = (i - n / 2) * spacing;
    double above = height + 0.5 * slits, below = height - 0.5 * slits;
    double path = sqrt(screen * screen + above * above) - sqrt(screen * screen + below * below);
    double sum = 0.0;
    for (int line = 0; line < lines; line++) {
        double waves = path * per_metre[line];
        double phase = waves - floor(waves);
        double fringe = 1.0 + 0.8 * cos(6.283185307179586 * phase);
        sum += strength[line] * fringe;
    }
    intensity[i] = sum;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 50000;
    int lines = argc > 2 ? atoi(argv[2]) : 64;
    double slits = 2e-2, screen = 3.0, spacing = 1.0 / n;  // m

    std::mt19937_64 generator(11);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> per_metre(lines), strength(lines), intensity(n);
    for (int line = 0; line < lines; line++) {
        per_metre[line] = 1.0 / (400e-9 + 300e-9 * uniform(generator));
        strength[line] = 0.1 + uniform(generator);
    }

    double* d_per_metre;
    double* d_strength;
    double* d_intensity;
    cudaMalloc(&d_per_metre, lines * sizeof(double));
    cudaMalloc(&d_strength, lines * sizeof(double));
    cudaMalloc(&d_intensity, n * sizeof(double));
    cudaMemcpy(d_per_metre, per_metre.data(), lines * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_strength, strength.data(), lines * sizeof(double), cudaMemcpyHostToDevice);
    intensity_of<<<(n + 127) / 128, 128>>>(d_per_metre, d_strength, d_intensity, slits, screen, spacing, lines, n);
    cudaMemcpy(intensity.data(), d_intensity, n * sizeof(double), cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int i = 0; i < n; i += 31) {
        double height = (i - n / 2) * spacing, sum = 0.0;
        double longer = std::hypot(screen, height + 0.5 * slits), shorter = std::hypot(screen, height - 0.5 * slits);
        for (int line = 0; line < lines; line++) {
            sum += strength[line] * (1.0 + 0.8 * std::cos(6.283185307179586 * (longer - shorter) * per_metre[line]));
        }
        worst = fmax(worst, fabs(intensity[i] - sum) / sum);
    }
    printf("%d points, %d lines, %s\n", n, lines, worst < 1e-5 ? "PASS" : "FAIL");

    cudaFree(d_per_metre);
    cudaFree(d_strength);
    cudaFree(d_intensity);
    return worst < 1e-5 ? 0 : 1;
}
