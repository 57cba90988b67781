// Fields of more and more cells, smoothed by the same loop: a coarse one is the start of the next.
#include <cmath>
#include <cstdio>
#include <vector>

void smooth(std::vector<double>& values, const std::vector<double>& source, int n) {
    double* v = values.data();
    const double* s = source.data();
    for (int colour = 0; colour < 2; colour++)
#pragma omp parallel for
        for (int i = 1; i < n; i++)
            for (int j = 1 + (i + colour) % 2; j < n; j += 2)
                v[i * (n + 1) + j] = 0.25 * (s[i * (n + 1) + j] + v[(i - 1) * (n + 1) + j] + v[(i + 1) * (n + 1) + j] +
                                             v[i * (n + 1) + j - 1] + v[i * (n + 1) + j + 1]);
}

void refine(const std::vector<double>& coarse, std::vector<double>& fine, int n) {
    const double* c = coarse.data();
    double* f = fine.data();
#pragma omp parallel for
    for (int i = 1; i < n; i++)
        for (int j = 1; j < n; j++) f[i * (n + 1) + j] += 0.5 * c[i / 2 * (n / 2 + 1) + j / 2];
}

int main() {
    std::vector<std::vector<double>> fields, sources;
    for (int n : {32, 16, 8}) {
        fields.emplace_back((n + 1) * (n + 1), 0.0);
        sources.emplace_back((n + 1) * (n + 1), 1.0 / n);
    }
    for (int level = 2; level >= 0; level--) {
        smooth(fields[level], sources[level], 32 >> level);
        if (level > 0) refine(fields[level], fields[level - 1], 32 >> (level - 1));
    }
    bool passed = fields[0][34] > 0.0;
    for (int i = 0; i < 33; i++)
        for (int j = 0; j < i; j++) passed &= std::fabs(fields[0][i * 33 + j] - fields[0][j * 33 + i]) < 1e-12;
    printf("%s\n", passed ? "PASS" : "FAIL");
    return !passed;
}
