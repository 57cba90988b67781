// Mean distances between points, by way of arrays that only the loops look at: a vector, and one from new.
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
    const int n = 3000;
    std::vector<double> places(n), squares(n), means(n), kept(n);
    double* roots = new double[n];
    for (int i = 0; i < n; ++i) places[i] = 0.01 * i;
#pragma omp parallel for
    for (int i = 0; i < n; ++i) squares[i] = places[i] * places[i] + 1.0;
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        roots[i] = std::sqrt(squares[i]);
        kept[i] = 2.0 * places[i];
    }
#pragma omp parallel for
    for (int i = 0; i < n; ++i) means[i] = 0.5 * (roots[i] + roots[i > 0 ? i - 1 : 0]);
    delete[] roots;
    const double* same = kept.data();
    double worst = 0.0;
    for (int i = 1; i < n; ++i) {
        const double one = 0.01 * i, other = 0.01 * (i - 1);
        const double mean = 0.5 * (std::sqrt(one * one + 1.0) + std::sqrt(other * other + 1.0));
        worst = std::fmax(worst, std::fabs(means[i] - mean) + std::fabs(same[i] - 2.0 * one));
    }
    std::printf("%s\n", worst < 1e-2 ? "PASS" : "FAIL");
    return worst < 1e-2 ? 0 : 1;
}
