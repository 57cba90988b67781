// A running mean, of a width that the command line of a compiler gives.
#include <cmath>
#include <cstdio>
#include <vector>

static void blur(const std::vector<double>& signal, std::vector<double>& mean, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        double sum = 0.0;
        for (int k = 0; k < WIDTH; ++k) sum += signal[i + k];
        mean[i] = sum / WIDTH;
    }
}

int main() {
    const int n = 2000;
    std::vector<double> signal(n + WIDTH), mean(n);
    for (int i = 0; i < n + WIDTH; ++i) signal[i] = std::sin(0.001 * i);
    blur(signal, mean, n);
    double worst = 0.0;
    for (int i = 0; i < n; ++i) worst = std::fmax(worst, std::fabs(mean[i] - std::sin(0.001 * (i + (WIDTH - 1) / 2.0))));
    std::printf("%s\n", worst < 1e-2 ? "PASS" : "FAIL");
    return worst < 1e-2 ? 0 : 1;
}
