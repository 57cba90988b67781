// Indices in unsigned numbers: sums of them, one of which is below 0 and wraps, variables that are nothing else, and
// numbers that are no indices and have to wrap.
#include <cmath>
#include <cstdio>
#include <cstdlib>

__global__ void spread(const double* field, const unsigned* shift, double* out, unsigned width, unsigned height) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || x + 1 >= width || y >= height) return;
    const unsigned place = y * width + x;
    unsigned drawn = place * 747796405u + 2891336453u;
    drawn = (drawn >> 22) ^ drawn;
    const unsigned back = shift[0];
    out[y * width + x] = field[place] + 0.25 * field[place + back] + exp(-field[y * width + x + 1u]) + (drawn % 7u);
    const unsigned below = x + (y + 1u) * width;
    if (y + 1u < height) out[y * width + x] += 0.5 * field[below];
}

int main() {
    const unsigned width = 61, height = 23, count = width * height, back = 0u - 1u;
    double* field = (double*)malloc(count * sizeof(double));
    double* out = (double*)calloc(count, sizeof(double));
    for (unsigned i = 0; i < count; i++) field[i] = sin(0.1 * i) + 2.0;
    double *d_field, *d_out;
    unsigned* d_shift;
    cudaMalloc(&d_field, count * sizeof(double));
    cudaMalloc(&d_out, count * sizeof(double));
    cudaMalloc(&d_shift, sizeof(unsigned));
    cudaMemcpy(d_field, field, count * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_out, out, count * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_shift, &back, sizeof(unsigned), cudaMemcpyHostToDevice);
    spread<<<dim3((width + 15) / 16, (height + 7) / 8), dim3(16, 8)>>>(d_field, d_shift, d_out, width, height);
    cudaMemcpy(out, d_out, count * sizeof(double), cudaMemcpyDeviceToHost);
    bool ok = true;
    for (unsigned y = 0; y < height; y++) {
        for (unsigned x = 1; x + 1 < width; x++) {
            const unsigned i = y * width + x;
            unsigned drawn = i * 747796405u + 2891336453u;
            drawn = (drawn >> 22) ^ drawn;
            double expected = field[i] + 0.25 * field[i - 1] + exp(-field[i + 1]) + (drawn % 7u);
            if (y + 1 < height) expected += 0.5 * field[i + width];
            ok = ok && fabs(out[i] - expected) < 1e-12;
        }
    }
    printf(ok ? "PASS\n" : "FAIL\n");
    return ok ? 0 : 1;
}
