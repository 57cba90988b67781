// A string that is plucked: its loops get their types back, its arrays theirs where nothing but numbers are asked of them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define REAL double

const double STIFFNESS = 0.2;
void pluck(REAL* height, int n);
double energy(const double* height, const double* speed, int n);

static double tension(double left, double middle, double right) { return STIFFNESS * (left - 2.0 * middle + right); }

struct String {
    String(int n, double damping) : n(n), damping(damping), height(new double[n]), next(n) {}
    void move(double* speed) {
        double change;
#pragma omp parallel for private(change)
        for (int i = 1; i < n - 1; ++i) {
            change = tension(height[i - 1], height[i], height[i + 1]);  // of the speed
            speed[i] = damping * (speed[i] + change);
            next[i] = height[i] + speed[i];
        }
        for (int i = 1; i < n - 1; ++i) height[i] = next[i];
    }
    int n;
    double damping, *height;
    std::vector<double> next;
};

int main(int argc, char** argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 800;
    String string(n, 0.999);
    double *speed = (double*)std::malloc(n * sizeof(double)), before = 0.0;
    std::vector<double> square(n), copy(n);
    std::memset(speed, 0, n * sizeof(double));
    pluck(string.height, n);
    before = energy(string.height, speed, n);
    for (int step = 0; step < 20; ++step) string.move(speed);
    const double* shape = string.height;
#pragma omp parallel for
    for (int i = 0; i < n; ++i) square[i] = sqrt(1.0 + shape[i] * shape[i]);
    std::memcpy(copy.data(), square.data(), n * sizeof(double));
    const double largest = *std::max_element(copy.begin(), copy.end()), after = energy(string.height, speed, n);
    std::printf("%.5f %.5f\n", largest, after);
    std::printf("%s\n", after < before && largest > 1.0 ? "PASSED" : "FAILED");
    std::free(speed);
    delete[] string.height;
    return 0;
}

void pluck(REAL* height, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; ++i) height[i] = std::min(i, n - 1 - i) * 2.0 / n;
}

double energy(const double* height, const double* speed, int n) {
    REAL total = 0.0;
#pragma omp parallel for reduction(+ : total)
    for (int i = 1; i < n; ++i) {
        const REAL slope = height[i] - height[i - 1];
        total += speed[i] * speed[i] + STIFFNESS * slope * slope;
    }
    return total;
}
