// Textures that filter, repeat and mirror, one over linear memory, and a surface, between kernels without any.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
__global__ void sample(cudaTextureObject_t image, cudaTextureObject_t line, cudaTextureObject_t bytes,
                       cudaSurfaceObject_t kept, float* out, int width, int height) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i >= width) return;
    float inside = tex2D<float>(image, i + 0.75f, j - 0.25f);
    float around = tex2D<float>(bytes, (i + 0.25f) / width + 1.0f, -(j + 0.5f) / height);
    float value = inside + 0.5f * around + tex1Dfetch<float>(line, j * width + i);
    surf2Dwrite(value, kept, i * (int)sizeof(float), j);
    out[j * width + i] = value + surf2Dread<float>(kept, i * (int)sizeof(float), j);
}
int main() {
    const int width = 32, height = 8, n = width * height;
    std::vector<float> h(n);
    std::vector<unsigned char> b(n);
    for (int i = 0; i < n; i++) h[i] = i % 37 / 8.0f, b[i] = i * 7 % 256;
    float *x, *y, *out;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    scale<<<2, 128>>>(x, y, n);
    cudaChannelFormatDesc numbers = cudaCreateChannelDesc<float>(), shares = cudaCreateChannelDesc<unsigned char>();
    cudaArray_t image, kept, small;
    cudaMallocArray(&image, &numbers, width, height);
    cudaMallocArray(&kept, &numbers, width, height, cudaArraySurfaceLoadStore);
    cudaMallocArray(&small, &shares, width, height);
    cudaMemcpy2DToArray(image, 0, 0, h.data(), width * sizeof(float), width * sizeof(float), height, cudaMemcpyHostToDevice);
    cudaMemcpy2DToArray(small, 0, 0, b.data(), width, width, height, cudaMemcpyHostToDevice);
    cudaResourceDesc of = {};
    cudaTextureDesc how = {};
    cudaTextureObject_t first, second, third;
    cudaSurfaceObject_t surface;
    of.resType = cudaResourceTypeArray;
    of.res.array.array = image;
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModeLinear;
    how.readMode = cudaReadModeElementType;
    cudaCreateTextureObject(&first, &of, &how, nullptr);
    of.res.array.array = small;
    how.addressMode[0] = cudaAddressModeWrap;
    how.addressMode[1] = cudaAddressModeMirror;
    how.readMode = cudaReadModeNormalizedFloat;
    how.normalizedCoords = 1;
    cudaCreateTextureObject(&third, &of, &how, nullptr);
    of.res.array.array = kept;
    cudaCreateSurfaceObject(&surface, &of);
    of.resType = cudaResourceTypeLinear;
    of.res.linear.devPtr = y;
    of.res.linear.desc = numbers;
    of.res.linear.sizeInBytes = n * sizeof(float);
    cudaTextureDesc plain = {};
    cudaCreateTextureObject(&second, &of, &plain, nullptr);
    sample<<<dim3(1, height), width>>>(first, second, third, surface, out, width, height);
    scale<<<2, 128>>>(out, x, n);
    cudaMemcpy(h.data(), x, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaDestroyTextureObject(first);
    cudaDestroySurfaceObject(surface);
    cudaFreeArray(image);
    for (float v : h) printf("%.9g\n", v);
}
