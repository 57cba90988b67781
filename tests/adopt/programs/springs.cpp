// Conjugate gradients for a line of springs, until the residual is small.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    const int n = a.size();
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void axpy(double factor, const std::vector<double>& x, std::vector<double>& y) {
    const int n = x.size();
#pragma omp parallel for
    for (int i = 0; i < n; i++) y[i] += factor * x[i];
}

static void multiply(const std::vector<double>& x, std::vector<double>& y) {
    const int n = x.size();
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        double value = 2.5 * x[i];
        if (i > 0) value -= x[i - 1];
        if (i < n - 1) value -= x[i + 1];
        y[i] = value;
    }
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 20000;
    std::vector<double> x(n, 0.0), r(n), p(n), q(n);
    for (int i = 0; i < n; i++) r[i] = 1.0 + 0.5 * std::sin(0.01 * i);
    p = r;
    double rho = dot(r, r);
    const double tolerance = 1e-8 * rho;
    int iterations = 0;
    while (rho > tolerance && iterations < 200) {
        multiply(p, q);
        const double alpha = rho / dot(p, q);
        axpy(alpha, p, x);
        axpy(-alpha, q, r);
        const double next = dot(r, r), beta = next / rho;
#pragma omp parallel for
        for (int i = 0; i < n; i++) p[i] = r[i] + beta * p[i];
        rho = next;
        iterations++;
    }
    std::printf("x[0] %.8f, %d iterations\n", x[0], iterations);
    std::printf("%s\n", rho <= tolerance ? "PASSED" : "FAILED");
    return 0;
}
