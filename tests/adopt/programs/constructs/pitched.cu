// Rows with room between them: allocations, copies and fills of rows and of slices.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void add(double* rows, size_t pitch, cudaPitchedPtr slices, int width, int height, int depth) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i >= width) return;
    double sum = 0.0;
    for (int k = 0; k < depth; k++) {
        const char* slice = (const char*)slices.ptr + (k * height + j) * slices.pitch;
        sum += ((const double*)slice)[i];
    }
    double* row = (double*)((char*)rows + j * pitch);
    row[i] += sum;
}

__global__ void halve(const double* in, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5 * in[i];
}

int main() {
    const int width = 30, height = 6, depth = 3, n = width * height;
    std::vector<double> h(n * depth), first(n);
    for (int i = 0; i < n * depth; i++) h[i] = i % 101 / 8.0;
    double *rows, *in, *out;
    size_t pitch;
    cudaPitchedPtr slices;
    const cudaExtent extent = make_cudaExtent(width * sizeof(double), height, depth);
    cudaMallocPitch(&rows, &pitch, width * sizeof(double), height);
    cudaMalloc3D(&slices, extent);
    cudaMalloc(&in, n * sizeof(double));
    cudaMalloc(&out, n * sizeof(double));
    cudaMemset2D(rows, pitch, 0, width * sizeof(double), height);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(h.data(), width * sizeof(double), width * sizeof(double), height);
    copy.dstPtr = slices;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    cudaMemcpy3D(&copy);
    add<<<dim3(1, height), 32>>>(rows, pitch, slices, width, height, depth);
    cudaMemcpy2D(in, width * sizeof(double), rows, pitch, width * sizeof(double), height, cudaMemcpyDeviceToDevice);
    halve<<<(n + 63) / 64, 64>>>(in, out, n);
    cudaMemcpy(first.data(), out, n * sizeof(double), cudaMemcpyDeviceToHost);
    for (double value : first) printf("%.17g\n", value);
}
