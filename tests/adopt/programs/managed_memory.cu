// Memory that host and device share, events that time, streams, and a function pointer's worth of error checks.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t error = (call);                                          \
        if (error != cudaSuccess) {                                          \
            printf("FAIL %s\n", cudaGetErrorString(error));                  \
            return 2;                                                        \
        }                                                                    \
    } while (0)

__global__ void triad(double* a, const double* b, const double* c, double s, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) a[i] = b[i] + s * c[i];
}

int main() {
    const int n = 5000;
    double *a, *b, *c;
    CHECK(cudaMallocManaged(&a, n * sizeof(double)));
    CHECK(cudaMallocManaged(&b, n * sizeof(double)));
    CHECK(cudaMallocManaged(&c, n * sizeof(double)));
    for (int i = 0; i < n; i++) {
        b[i] = i;
        c[i] = 1.0 / (i + 1);
    }
    cudaStream_t stream;
    cudaEvent_t start, stop;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventRecord(start, stream));
    triad<<<8, 128, 0, stream>>>(a, b, c, 2.0, n);
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaEventSynchronize(stop));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    CHECK(cudaStreamSynchronize(stream));
    bool good = milliseconds >= 0;
    for (int i = 0; i < n; i++) {
        double off = a[i] - (b[i] + 2.0 * c[i]);
        good = good && off < 1e-9 && off > -1e-9;
    }
    printf("%s\n", good ? "PASS" : "FAIL");
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(c));
    return !good;
}
