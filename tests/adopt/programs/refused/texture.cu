// Reads through a texture.
#include <cuda_runtime.h>

__global__ void sample(cudaTextureObject_t picture, float* out, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x < width) out[x] = tex2D<float>(picture, x + 0.5f, 0.5f);
}

int main() {
    cudaTextureObject_t picture = 0;
    float* out;
    cudaMalloc(&out, 64 * sizeof(float));
    sample<<<1, 64>>>(picture, out, 64);
    return 0;
}
