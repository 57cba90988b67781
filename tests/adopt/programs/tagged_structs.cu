// A struct with a union in it, and a table of structs of one type in constant memory.
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

typedef struct {
    float x, y, z;
} Direction;
union Tag {
    float number;
    unsigned bits;
};
struct Sample {
    Tag tag;
    double weight[3];
};

__constant__ Direction directions[100];

__global__ void weigh(const Sample* samples, double* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double sum = 0;
    for (int k = 0; k < 3; k++) sum += samples[i].weight[k] * directions[(i + k) % 100].y;
    out[i] = sum + samples[i].tag.number;
}

int main() {
    const int count = 300;
    std::vector<Sample> samples(count);
    std::vector<Direction> given(100);
    std::vector<double> out(count);
    for (int i = 0; i < count; i++) {
        samples[i].tag.number = 0.5f * (i % 4);
        for (int k = 0; k < 3; k++) samples[i].weight[k] = 1.0 / (i + k + 1);
    }
    for (int i = 0; i < 100; i++) given[i] = {1.0f, 0.1f * i, 2.0f};
    Sample* d_samples;
    double* d_out;
    cudaMalloc(&d_samples, count * sizeof(Sample));
    cudaMalloc(&d_out, count * sizeof(double));
    cudaMemcpy(d_samples, samples.data(), count * sizeof(Sample), cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(directions, given.data(), 100 * sizeof(Direction));
    weigh<<<(count + 127) / 128, 128>>>(d_samples, d_out, count);
    cudaMemcpy(out.data(), d_out, count * sizeof(double), cudaMemcpyDeviceToHost);
    double expected = samples[7].tag.number;
    for (int k = 0; k < 3; k++) expected += samples[7].weight[k] * given[7 + k].y;
    printf("%s\n", out[7] == expected ? "PASSED" : "FAILED");
    return out[7] != expected;
}
