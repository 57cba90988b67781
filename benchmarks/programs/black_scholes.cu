// Prices of European call and put options after Black and Scholes (1973).
//
//     nvcc -O3 black_scholes.cu -o black_scholes && ./black_scholes 4000000
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

__device__ double normal(double d) { return 0.5 * erfc(-0.7071067811865476 * d); }

__global__ void prices(
    double* call, double* put, const double* stock, const double* strike, const double* years, double rate,
    double volatility, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double deviation = volatility * sqrt(years[i]);
        double d1 = (log(stock[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / deviation;
        double d2 = d1 - deviation;
        double present = strike[i] * exp(-rate * years[i]);
        call[i] = stock[i] * normal(d1) - present * normal(d2);
        put[i] = present * normal(-d2) - stock[i] * normal(-d1);
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4000000;
    double rate = 0.03, volatility = 0.3;

    std::mt19937_64 generator(5);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<double> stock(n), strike(n), years(n), call(n), put(n);
    for (int i = 0; i < n; i++) {
        stock[i] = 20.0 + 180.0 * uniform(generator);
        strike[i] = stock[i] * (0.85 + 0.35 * uniform(generator));
        years[i] = 0.25 + 2.75 * uniform(generator);
    }

    size_t bytes = n * sizeof(double);
    double* d_stock;
    double* d_strike;
    double* d_years;
    double* d_call;
    double* d_put;
    cudaMalloc(&d_stock, bytes);
    cudaMalloc(&d_strike, bytes);
    cudaMalloc(&d_years, bytes);
    cudaMalloc(&d_call, bytes);
    cudaMalloc(&d_put, bytes);
    cudaMemcpy(d_stock, stock.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_strike, strike.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_years, years.data(), bytes, cudaMemcpyHostToDevice);
    prices<<<(n + 255) / 256, 256>>>(d_call, d_put, d_stock, d_strike, d_years, rate, volatility, n);
    cudaMemcpy(call.data(), d_call, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(put.data(), d_put, bytes, cudaMemcpyDeviceToHost);

    // What a call is worth more than a put does not depend on the volatility.
    double worst = 0.0;
    for (int i = 0; i < n; i += 53) {
        double deviation = volatility * sqrt(years[i]);
        double d1 = (log(stock[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / deviation;
        double present = strike[i] * exp(-rate * years[i]);
        double expected = stock[i] * 0.5 * erfc(-d1 / sqrt(2.0)) - present * 0.5 * erfc((deviation - d1) / sqrt(2.0));
        double parity = call[i] - put[i] - (stock[i] - present);
        worst = fmax(worst, fmax(fabs(call[i] - expected), fabs(parity)) / stock[i]);
    }
    printf("%d options, %s\n", n, worst < 1e-6 ? "PASS" : "FAIL");

    cudaFree(d_stock);
    cudaFree(d_strike);
    cudaFree(d_years);
    cudaFree(d_call);
    cudaFree(d_put);
    return worst < 1e-6 ? 0 : 1;
}
