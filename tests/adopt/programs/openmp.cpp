// No GPU at all: a function whose outer loop is parallel, and one that is not.
#include <cmath>
#include <cstdio>
#include <vector>

void gravity(const double* x, const double* y, const double* mass, double* potential, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        double sum = 0.0;
        for (int j = 0; j < n; j++) {
            if (j == i) continue;
            const double dx = x[i] - x[j], dy = y[i] - y[j];
            sum += mass[j] / std::sqrt(dx * dx + dy * dy + 1e-4);
        }
        potential[i] = -sum;
    }
}

void damp(double* values, double factor, int rows, int columns) {
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) values[r * columns + c] *= factor / (1.0 + r);
}

int main() {
    const int n = 240;
    std::vector<double> x(n), y(n), mass(n), potential(n);
    for (int i = 0; i < n; i++) {
        x[i] = std::cos(0.7 * i);
        y[i] = std::sin(0.9 * i);
        mass[i] = 1.0 + 0.1 * (i % 4);
    }
    gravity(x.data(), y.data(), mass.data(), potential.data(), n);
    damp(potential.data(), 0.25, 12, 20);
    double sum = 0.0;
    for (double p : potential) sum += p;
    std::printf("sum %.6f\n", sum);
    return 0;
}
