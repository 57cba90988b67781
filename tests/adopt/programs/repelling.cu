// A chain of particles that repel each other: moved by a tenth of where they are, they would be in each other.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

__global__ void repel(const double* place, double* force, int n) {
    int one = blockIdx.x * blockDim.x + threadIdx.x;
    if (one >= n) return;
    double sum = 0.0;
    for (int other = 0; other < n; other++) {
        if (other == one) continue;
        double apart = place[one] - place[other], squared = apart * apart;
        sum += 12.0 * apart / pow(squared, 7.0);
    }
    force[one] = sum;
}

int main() {
    const int n = 50;
    double place[n], force[n], *d_place, *d_force, total = 0.0, largest = 0.0;
    for (int i = 0; i < n; i++) place[i] = 1.0 + i + 0.1 * sin(2.5 * i);
    cudaMalloc(&d_place, sizeof place);
    cudaMalloc(&d_force, sizeof force);
    cudaMemcpy(d_place, place, sizeof place, cudaMemcpyHostToDevice);
    repel<<<1, 64>>>(d_place, d_force, n);
    cudaMemcpy(force, d_force, sizeof force, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) {
        total += force[i];
        largest = fmax(largest, fabs(force[i]));
    }
    bool passed = largest > 1.0 && largest < 1e3 && fabs(total) < 1e-10 * largest;
    printf("%s\n", passed ? "PASS" : "FAIL");
    return !passed;
}
