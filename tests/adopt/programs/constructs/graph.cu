// A graph that two streams were captured for, launched three times, and memory of a pool.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void add(double* y, const double* x, double by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += by * x[i];
}
int main() {
    const int n = 256;
    double h[n], *x, *y;
    for (int i = 0; i < n; i++) h[i] = i / 7.0;
    cudaStream_t stream, other;
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaMemPool_t pool;
    cudaDeviceGetDefaultMemPool(&pool, 0);
    unsigned long long most = ~0ull;
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most);
    cudaMallocAsync(&x, sizeof h, stream);
    cudaMallocAsync(&y, sizeof h, stream);
    cudaEvent_t forked, joined;
    cudaEventCreate(&forked);
    cudaEventCreate(&joined);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaMemcpyAsync(x, h, sizeof h, cudaMemcpyHostToDevice, stream);
    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(other, forked, 0);
    add<<<2, 128, 0, other>>>(y, x, 0.5, n);
    cudaEventRecord(joined, other);
    cudaStreamWaitEvent(stream, joined, 0);
    add<<<2, 128, 0, stream>>>(y, x, 0.25, n);
    cudaStreamEndCapture(stream, &graph);
    size_t nodes = 0;
    cudaGraphGetNodes(graph, nullptr, &nodes);
    if (nodes != 3) return 1;
    cudaGraphInstantiate(&ready, graph, nullptr, nullptr, 0);
    for (int turn = 0; turn < 3; turn++) cudaGraphLaunch(ready, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaFreeAsync(x, stream);
    for (double v : h) printf("%.17g\n", v);
}
