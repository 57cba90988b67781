// Waves on a ring, measured three times from the same beginning: what the kernels work on comes in a struct by value, with
// arrays in it, pointers that nobody set and memory that no kernel uses. Only two kinds of rings are told apart.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

enum kind { open_ends, closed };

struct Pair {
    double* u;
    double* v;
};

struct Waves {
    Pair now;
    Pair next;
    Pair nowhere;  // of the device nothing is set
    double* spare;
    char mark;
    double weights[2];
    kind ends;
    int n;
};

static __constant__ double damping[2];

__device__ int around(Waves waves, int i) { return (i + waves.n) % waves.n; }

__device__ void store(Waves waves, int i, double u, double v) {
    waves.next.u[i] = u;
    waves.next.v[i] = v;
}

__device__ double slope(Pair of, int left, int i, int right) { return of.u[left] - 2 * of.u[i] + of.u[right]; }

__global__ void begin(Waves waves, double height) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= waves.n) return;
    waves.now.u[i] = waves.next.u[i] = height * sin(6.283185307179586 * i / waves.n);
    waves.now.v[i] = waves.next.v[i] = 0;
}

template <kind ends>
__global__ void step(Waves waves) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= waves.n) return;
    double change = ends == closed && waves.ends == ends ? slope(waves.now, around(waves, i - 1), i, around(waves, i + 1)) : 0.0;
    double v = waves.now.v[i] * damping[0] + waves.weights[0] * change;
    store(waves, i, waves.now.u[i] + waves.weights[1] * v, v);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 300, steps = argc > 2 ? atoi(argv[2]) : 40;
    char left_over[sizeof(Waves)];
    for (char& each : left_over) each = 0;
    // A pointer to the host, another one each time, is what a field has that nobody set.
    double* host = (double*)malloc(sizeof(double) * n);
    Waves waves = *(Waves*)left_over;
    waves.nowhere.v = host;
    for (Pair* each : {&waves.now, &waves.next}) {
        cudaMalloc(&each->u, sizeof(double) * 2 * n);
        each->v = each->u + n;
    }
    cudaMalloc(&waves.spare, sizeof(double) * n);
    waves.n = n, waves.ends = closed, waves.weights[0] = 0.25, waves.weights[1] = 0.5;
    double kept[2] = {0.999, 0};
    cudaMemcpyToSymbol(damping, kept, sizeof kept);
    for (int measured = 0; measured < 3; measured++) {
        begin<<<(n + 63) / 64, 64>>>(waves, 1.5);
        for (int i = 0; i < steps; i++) {
            step<closed><<<(n + 63) / 64, 64>>>(waves);
            Pair other = waves.now;
            waves.now = waves.next;
            waves.next = other;
        }
        cudaMemcpy(host, waves.now.u, sizeof(double) * n, cudaMemcpyDeviceToHost);
    }
    // The same wave stays a sine.
    std::vector<double> u(n), v(n, 0.0);
    for (int i = 0; i < n; i++) u[i] = 1.5 * sin(6.283185307179586 * i / n);
    for (int k = 0; k < steps; k++) {
        std::vector<double> before = u;
        for (int i = 0; i < n; i++) {
            v[i] = v[i] * 0.999 + 0.25 * (before[(i + n - 1) % n] - 2 * before[i] + before[(i + 1) % n]);
            u[i] += 0.5 * v[i];
        }
    }
    double worst = 0;
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs(u[i] - host[i]));
    printf("%s\n", worst < 1e-12 ? "PASS" : "FAIL");
    return worst >= 1e-12;
}
