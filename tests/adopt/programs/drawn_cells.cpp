// Numbers drawn from a table, at places that are computed: an integer is made of each, implicitly or by a cast.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static double share(int i, int n) { return (i + 0.5) / n; }

int main(int argc, char** argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 5000, cells = 100;
    std::vector<double> table(cells), drawn(n);
    for (int i = 0; i < cells; ++i) table[i] = std::cos(0.01 * i);
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        const double place = cells * std::sqrt(share(i, n));
        const int cell = share(i, n) * cells;
        drawn[i] = table[cell] + table[(int)place] * (int)(n * 0.5);
    }
    double sum = 0.0;
    for (int i = 0; i < n; ++i) sum += drawn[i] / n;
    std::printf("%.6f\n", sum);
    std::printf("%s\n", sum > 0.0 && sum < n ? "PASSED" : "FAILED");
    return 0;
}
