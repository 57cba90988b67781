// Unsigned indices that are meant to wrap: what is a multiple of 3 is divided by it by a product with the number whose
// product with 3 is 1 in 32 bits.
#include <cmath>
#include <cstdio>

__global__ void thirds(const double* field, double* out, unsigned count, unsigned third) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const unsigned bytes = 3u * i + 6u;
    out[i] = field[i] + 0.5 * field[bytes * third];
}

__global__ void lift(double* out, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] += 1.0;
}

int main() {
    const unsigned count = 1000;
    static double field[count + 2], out[count];
    for (unsigned i = 0; i < count + 2; i++) field[i] = sin(0.01 * i) + 2.0;
    double *d_field, *d_out;
    cudaMalloc(&d_field, sizeof field);
    cudaMalloc(&d_out, sizeof out);
    cudaMemcpy(d_field, field, sizeof field, cudaMemcpyHostToDevice);
    thirds<<<(count + 127) / 128, 128>>>(d_field, d_out, count, 2863311531u);
    lift<<<(count + 127) / 128, 128>>>(d_out, count);
    cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost);
    bool ok = true;
    for (unsigned i = 0; i < count; i++) ok = ok && fabs(out[i] - field[i] - 0.5 * field[i + 2] - 1.0) < 1e-12;
    printf(ok ? "PASS\n" : "FAIL\n");
    return ok ? 0 : 1;
}
