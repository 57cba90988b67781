// What a signal has on the whole: a long sum of squares, its largest number, and sums that cancel, nearly and all.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 100000;
    std::vector<double> signal(n);
    for (int i = 0; i < n; ++i) signal[i] = (2 * i < n ? 1.0 : -1.0) * (1.0 + 0.5 * std::sin(0.37 * i));
    double power = 0.0, drift = 0.0, balance = 0.0, largest = 0.0;
#pragma omp parallel for reduction(+ : power, drift, balance) reduction(max : largest)
    for (int i = 0; i < n; ++i) {
        const double square = signal[i] * signal[i];
        power += square;
        drift += signal[i];
        balance += 0.1 * signal[i] - 0.1 * signal[n - 1 - i];
        if (square > largest) largest = square;
    }
    std::printf("power %.9f drift %.9f largest %.9f\n", power / n, drift, largest);
    std::printf("%s\n", std::fabs(power / n - 1.125) < 1e-3 && std::fabs(balance) < 1e-4 && largest <= 2.25 ? "PASSED" : "FAILED");
    return 0;
}
