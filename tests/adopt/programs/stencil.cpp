// Heat in a plate: loops that OpenMP has in parallel, in functions on arrays, and in a time loop.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

typedef double real;

// What the plate is made of.
static const real CONDUCTION = 0.2;

static real source(int row, int column) { return row == column ? 0.01 : 0.0; }

void step(const std::vector<real>& now, std::vector<real>& next, int side) {
#pragma omp parallel for schedule(static)
    for (int row = 1; row < side - 1; ++row) {
        for (int column = 1; column < side - 1; ++column) {
            const std::size_t at = static_cast<std::size_t>(row) * side + column;
            real neighbours = now[at - 1] + now[at + 1] + now[at - side] + now[at + side];
            next[at] = now[at] + CONDUCTION * (neighbours - 4.0 * now[at]) + source(row, column);
        }
    }
}

real difference(const real* one, const real* other, long count) {
    real sum = 0.0;
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < count; i++) {
        const real d = one[i] - other[i];
        sum += d * d;
    }
    return std::sqrt(sum / count);
}

int main(int argc, char** argv) {
    const int side = argc > 1 ? std::atoi(argv[1]) : 64;
    const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
    std::vector<real> now(side * side), next(side * side);
    int row, column;
#pragma omp parallel for private(column) collapse(2)
    for (row = 0; row < side; row++)
        for (column = 0; column < side; column++)
            now[row * side + column] = next[row * side + column] = std::sin(0.1 * row) * std::cos(0.07 * column);
    for (int i = 0; i < steps; i++) {
        step(now, next, side);
        std::swap(now, next);
    }
    const real change = difference(now.data(), next.data(), static_cast<long>(now.size()));
    std::printf("changes by %.10f\n", change);
    std::printf("%s\n", change < 0.1 ? "PASSED" : "FAILED");
    return 0;
}
