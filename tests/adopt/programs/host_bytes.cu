// Memory of kernels that the host reads, writes and sorts as bytes: in modes that a run without arguments does not take.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

struct Law { double rate, rest; };
struct Header { int cells; double width; double origin[2]; };
struct Gain { double low, high; };
struct Bend { double left, right; };
struct Tilt { double slope; int steps; };
union Bends { Bend bend; unsigned long long bits[2]; };

__global__ void relax(double* field, const double* shifts, double* heights, Law law, Header header, Gain gain, Bend bend,
                      Tilt tilt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    field[i] = field[i] * law.rate + law.rest + shifts[i] * header.width + header.origin[i % 2];
    heights[i] = gain.low + gain.high * bend.left - bend.right * field[i] + tilt.slope * tilt.steps;
}

__global__ void sink(double* depths, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) depths[i] = 0.5 * i;
}

int by_value(const void* one, const void* other) {
    double a = *(const double*)one, b = *(const double*)other;
    return a < b ? -1 : a > b;
}

void allocate(void** memory, size_t bytes) { cudaMalloc(memory, bytes); }
void release(void* memory) { cudaFree(memory); }

int main(int argc, char** argv) {
    const char* mode = argc > 1 ? argv[1] : "";
    const int n = 300;
    Law law = {0.5, 0.25};
    if (!strcmp(mode, "law") && sscanf(argv[2], "%lf,%lf", &law.rate, &law.rest) != 2) return 1;
    Header header;
    memset(&header, 0, sizeof header);
    header.cells = n;
    header.width = 0.125;
    if (!strcmp(mode, "header")) fwrite(&header, sizeof header, 1, stdout);
    Gain gain = {1.0, 0.5};
    if (!strcmp(mode, "gain")) reinterpret_cast<double*>(&gain)[1] = 0.75;
    Bend bend = {0.5, 0.125};
    if (!strcmp(mode, "bend")) {
        Bends both;
        both.bend = bend;
        both.bits[1] = 0;
        bend = both.bend;
    }
    Tilt tilt;
    memset(&tilt, 0, sizeof(Tilt));
    tilt.slope = 0.0625;

    void* memory;
    cudaMallocManaged(&memory, n * sizeof(double));
    double *field, *shifts, *heights, *depths = (double*)memory;
    cudaMallocManaged(&field, n * sizeof(double));
    allocate((void**)&shifts, n * sizeof(double));
    cudaMalloc((void**)&heights, n * sizeof(double));
    std::vector<double> given(n, 0.5), back(n);
    cudaMemcpy(shifts, given.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(heights, 0, n * sizeof(double));
    for (int i = 0; i < n; i++) field[i] = 1 + i % 7;
    if (!strcmp(mode, "read") && fread(field, sizeof(double), n, stdin) != n) return 1;
    relax<<<(n + 63) / 64, 64>>>(field, shifts, heights, law, header, gain, bend, tilt, n);
    sink<<<(n + 63) / 64, 64>>>(depths, n);
    cudaDeviceSynchronize();
    if (!strcmp(mode, "depths")) fwrite(memory, sizeof(double), n, stdout);
    cudaMemcpy(back.data(), heights, n * sizeof(double), cudaMemcpyDeviceToHost);
    if (!strcmp(mode, "sort")) qsort(field, n, sizeof(double), by_value);
    bool good = argc > 1;
    if (argc == 1) good = fabs(field[2] - 1.8125) < 1e-6 && fabs(back[2] - (1.25 - 0.125 * 1.8125)) < 1e-6;
    printf("%s\n", good ? "PASSED" : "FAILED");
    cudaFree(memory);
    cudaFree(field);
    release(shifts);
    cudaFree(heights);
    return !good;
}
