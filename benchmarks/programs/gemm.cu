// C = alpha A B + beta C: temperatures at M places from K stations on N days, blended with a forecast.
//
//     nvcc -O3 gemm.cu -o gemm && ./gemm 640 640 640
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

__global__ void gemm(double* C, const double* A, const double* B, double alpha, double beta, int M, int N, int K) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && column < N) {
        double sum = 0.0;
        for (int k = 0; k < K; k++) {
            sum += A[row * K + k] * B[k * N + column];
        }
        C[row * N + column] = alpha * sum + beta * C[row * N + column];
    }
}

int main(int argc, char** argv) {
    int M = argc > 1 ? atoi(argv[1]) : 640;
    int N = argc > 2 ? atoi(argv[2]) : 640;
    int K = argc > 3 ? atoi(argv[3]) : 640;
    double alpha = 0.7, beta = 0.3;

    std::mt19937_64 generator(2);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> A(M * K), B(K * N), C(M * N);
    for (int i = 0; i < M; i++) {
        double total = 0.0;
        for (int k = 0; k < K; k++) {
            A[i * K + k] = exp(-12.0 * uniform(generator)) + 1e-3;
            total += A[i * K + k];
        }
        for (int k = 0; k < K; k++) A[i * K + k] /= total;
    }
    for (double& b : B) b = 0.93 + 0.04 * uniform(generator);
    for (double& c : C) c = 0.93 + 0.04 * uniform(generator);
    std::vector<double> forecast(C);

    double* d_A;
    double* d_B;
    double* d_C;
    cudaMalloc(&d_A, A.size() * sizeof(double));
    cudaMalloc(&d_B, B.size() * sizeof(double));
    cudaMalloc(&d_C, C.size() * sizeof(double));
    cudaMemcpy(d_A, A.data(), A.size() * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_B, B.data(), B.size() * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(d_C, C.data(), C.size() * sizeof(double), cudaMemcpyHostToDevice);

    dim3 block(16, 16);
    dim3 grid((N + 15) / 16, (M + 15) / 16);
    gemm<<<grid, block>>>(d_C, d_A, d_B, alpha, beta, M, N, K);
    cudaMemcpy(C.data(), d_C, C.size() * sizeof(double), cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int element = 0; element < M * N; element += 37) {
        double sum = 0.0;
        for (int k = 0; k < K; k++) sum += A[element / N * K + k] * B[k * N + element % N];
        double expected = alpha * sum + beta * forecast[element];
        worst = fmax(worst, fabs(C[element] - expected) / fabs(expected));
    }
    printf("%d x %d x %d, %s\n", M, N, K, worst < 1e-6 ? "PASS" : "FAIL");

    cudaFree(d_A);
    cudaFree(d_B);
    cudaFree(d_C);
    return worst < 1e-6 ? 0 : 1;
}
