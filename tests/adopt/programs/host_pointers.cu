// Numbers of structs that the host gets at by pointers to them: to one of them, or on to the next.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>

struct Law { double rate; double rest; };
struct Wall { double left; double right; };
struct Tilt { double slope; double height; };
struct Pair { double low, high; };

__global__ void relax(double* field, Law law, Wall wall, Tilt tilt, Pair pair, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = field[i] * law.rate + law.rest;
    double edge = wall.left * x;
    double ramp = tilt.slope * i;
    field[i] = x + edge - wall.right + ramp / n + tilt.height;
    field[i] = fmin(fmax(field[i], pair.low), pair.high);
}

void fill(double* numbers, int count) {
    for (int i = 0; i < count; i++) numbers[i] = 0.125 * (i + 1);
}

void put(double* number, double value) { *number = value; }

int main() {
    const int n = 256;
    Law law;
    double* p = &law.rate;
    p[0] = 0.5;
    p[1] = 0.25;
    Wall wall;
    fill(&wall.left, 2);
    Tilt tilt;
    put(&tilt.slope, 0.5);
    double* height = &(tilt.height);
    *height = 1.0;
    Pair pair = {-8, 8};
    double field[n];
    for (int i = 0; i < n; i++) field[i] = 1 + i % 3;
    double* d_field;
    cudaMalloc(&d_field, n * sizeof(double));
    cudaMemcpy(d_field, field, n * sizeof(double), cudaMemcpyHostToDevice);
    relax<<<(n + 63) / 64, 64>>>(d_field, law, wall, tilt, pair, n);
    cudaMemcpy(field, d_field, n * sizeof(double), cudaMemcpyDeviceToHost);
    double x = 0.75, expected = x + 0.125 * x - 0.25 + 1.0;
    printf("%s\n", fabs(field[0] - expected) < 1e-5 ? "PASSED" : "FAILED");
    cudaFree(d_field);
    return 0;
}
