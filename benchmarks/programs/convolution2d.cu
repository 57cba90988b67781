// A 17x17 blur of a picture, which comes with the border that the filter reaches into.
//
//     nvcc -O3 convolution2d.cu -o convolution2d && ./convolution2d 1024 768
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

const int FILTER = 17;

__global__ void convolve(double* output, const double* input, const double* filter, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int pitch = width + FILTER - 1;
    double sum = 0.0;
    for (int j = 0; j < FILTER; j++) {
        for (int i = 0; i < FILTER; i++) {
            sum += filter[j * FILTER + i] * input[(y + j) * pitch + x + i];
        }
    }
    output[y * width + x] = sum;
}

int main(int argc, char** argv) {
    int width = argc > 1 ? atoi(argv[1]) : 1024;
    int height = argc > 2 ? atoi(argv[2]) : 768;
    int pitch = width + FILTER - 1, rows = height + FILTER - 1;

    // Discs on a shaded ground, with some noise; an oblique Gaussian of sum 1.
    std::mt19937_64 generator(1);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> input(pitch * rows), filter(FILTER * FILTER), output(width * height);
    for (int y = 0; y < rows; y++) {
        for (int x = 0; x < pitch; x++) {
            double shade = 0.4 + 0.2 * cos(0.004 * x) * cos(0.007 * y);
            double dx = x % 160 - 80, dy = y % 120 - 60;
            if (dx * dx + dy * dy < 1600.0) shade += 0.3;
            input[y * pitch + x] = shade + 0.05 * uniform(generator);
        }
    }
    double total = 0.0;
    for (int j = 0; j < FILTER; j++) {
        for (int i = 0; i < FILTER; i++) {
            double v = (j - 8) / 5.7, u = (i - 8) / 5.7;
            filter[j * FILTER + i] = exp(-0.5 * (u * u + 0.5 * u * v + v * v));
            total += filter[j * FILTER + i];
        }
    }
    for (double& weight : filter) weight /= total;

    double* d_input;
    double* d_filter;
    double* d_output;
    cudaMalloc(&d_input, input.size() * sizeof(double));
    cudaMalloc(&d_filter, filter.size() * sizeof(double));
    cudaMalloc(&d_output, output.size() * sizeof(double));
    cudaMemcpy(d_input, input.data(), input.size() * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_filter, filter.data(), filter.size() * sizeof(double), cudaMemcpyHostToDevice);

    dim3 block(32, 8);
    dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    convolve<<<grid, block>>>(d_output, d_input, d_filter, width, height);
    cudaMemcpy(output.data(), d_output, output.size() * sizeof(double), cudaMemcpyDeviceToHost);

    // Every 101st pixel again, one after the other.
    double worst = 0.0;
    for (int pixel = 0; pixel < width * height; pixel += 101) {
        double sum = 0.0;
        for (int j = 0; j < FILTER; j++) {
            for (int i = 0; i < FILTER; i++) {
                sum += filter[j * FILTER + i] * input[(pixel / width + j) * pitch + pixel % width + i];
            }
        }
        worst = fmax(worst, fabs(output[pixel] - sum) / sum);
    }
    printf("%d x %d pixels, %s\n", width, height, worst < 1e-6 ? "PASS" : "FAIL");

    cudaFree(d_input);
    cudaFree(d_filter);
    cudaFree(d_output);
    return worst < 1e-6 ? 0 : 1;
}
