// Lengths of vectors, of a struct of the program's own that has the name of one of CUDA's.
#include <cmath>
#include <cstdio>
#include <vector>

struct double3 {
    double x, y, z;
};
static double3 make_double3(double x, double y, double z) { return double3{x, y, z}; }

int main() {
    const int n = 2000;
    std::vector<double3> points(n);
    std::vector<double> lengths(n);
    for (int i = 0; i < n; ++i) points[i] = make_double3(std::sin(0.1 * i), std::cos(0.1 * i), 0.5);
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        const double3 p = points[i];
        lengths[i] = std::sqrt(p.x * p.x + p.y * p.y + p.z * p.z);
    }
    double worst = 0.0;
    for (int i = 0; i < n; ++i) worst = std::fmax(worst, std::fabs(lengths[i] - std::sqrt(1.25)));
    std::printf("a double3 is off by %.1e\n%s\n", worst, worst < 1e-2 ? "PASS" : "FAIL");
    return worst < 1e-2 ? 0 : 1;
}
