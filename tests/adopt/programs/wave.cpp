// A wave on a line: a stencil in a function that gets pointers.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static inline double curvature(const double* u, int i) { return u[i - 1] - 2.0 * u[i] + u[i + 1]; }

void advance(const double* before, const double* now, double* after, int n, double c) {
#pragma omp parallel for simd schedule(static)
    for (int i = 1; i < n - 1; ++i) after[i] = 2.0 * now[i] - before[i] + c * c * curvature(now, i);
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 50000;
    const int steps = argc > 2 ? std::atoi(argv[2]) : 40;
    double* before = new double[n];
    double* now = new double[n];
    double* after = new double[n];
    std::memset(after, 0, n * sizeof(double));
    for (int i = 0; i < n; ++i) now[i] = std::exp(-1e-6 * (i - n / 2.0) * (i - n / 2.0));
    std::memcpy(before, now, n * sizeof(double));
    for (int s = 0; s < steps; ++s) {
        advance(before, now, after, n, 0.5);
        double* const t = before;
        before = now;
        now = after;
        after = t;
    }
    double energy = 0.0;
    for (int i = 0; i < n; ++i) energy += now[i] * now[i];
    std::printf("energy %.6f, middle %.6f\n", energy, now[n / 2]);
    delete[] before;
    delete[] now;
    delete[] after;
    return 0;
}
