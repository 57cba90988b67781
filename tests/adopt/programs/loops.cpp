// Loops of many kinds: counting down and in steps, over arrays of files and functions, in members, with what OpenMP has.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

const int ROWS = 40, COLUMNS = 48;
static double field[ROWS][COLUMNS];
const double WEIGHTS[3] = {0.25, 0.5, 0.25};

struct Law {
    double slope, offset;
    double operator()(double x) const;
    double at(double x) const { return slope * x + offset; }
};

namespace model {
class Springs {
  public:
    explicit Springs(int count) : count_(count), place_(count), speed_(count, 0.0) {}
    void start() {
#pragma omp parallel for
        for (int i = 0; i < count_; i++) this->place_[i] = 0.01 * i * i;
    }
    void move(double dt) {
#pragma omp parallel
        {
#pragma omp for
            for (int i = 1; i <= count_ - 2; ++i) {
                if (i % 7 == 0) continue;
                const double force = place_[i - 1] - 2.0 * place_[i] + place_[i + 1];
                speed_[i] += dt * force;
            }
#pragma omp for
            for (int i = count_ - 1; i >= 0; i -= 1) place_[i] += dt * speed_[i];
        }
    }
    double largest() const {
        double most = 0.0;
#pragma omp parallel for reduction(max : most)
        for (int i = 0; i < count_; ++i) {
            if (speed_[i] < 0.0) continue;
            most = std::max(most, speed_[i]);
        }
        return most;
    }

  private:
    int count_;
    std::vector<double> place_, speed_;
};
}  // namespace model

static inline double smooth(const double *row, int c) {
    double sum = 0.0;
    for (int k = 0; k < 3; k++) sum += WEIGHTS[k] * row[c + k - 1];
    return sum;
}

void fill() {
    int r, c;
#pragma omp parallel for \
    private(c)
    for (r = 0; r < ROWS; r++) {
        for (c = 0; c < COLUMNS; c += 2) {
            field[r][c] = std::sin(0.2 * r) + 0.1 * c;
            field[r][c + 1] = std::cos(0.2 * r) - 0.1 * c;
        }
    }
}

int main() {
    const double started = omp_get_wtime();
    fill();
    double smoothed[ROWS * COLUMNS] = {0.0};
#pragma omp parallel for collapse(2)
    for (int r = 0; r < ROWS; ++r)
        for (int c = 1; c < COLUMNS - 1; ++c) smoothed[r * COLUMNS + c] = smooth(field[r], c);

    const Law law{0.5, 0.125};
    std::array<double, 100> line;
    std::unique_ptr<double[]> lawful(new double[100]);
    std::vector<double> every(100, 1.0);
#pragma omp parallel for
    for (std::size_t i = 0; i < every.size(); i += 3) {
        every[i] = law.at(0.3 * i);
    }
#pragma omp parallel for
    for (int i = 0; i != 100; ++i) {
        line[i] = law.slope * every[i];
        lawful[i] = law.at(line[i]);
    }
    double *bins = static_cast<double *>(std::calloc(10, sizeof(double)));
    int count = 0;
#pragma omp parallel for reduction(+ : count)
    for (int i = 0; i < 100; i++) {
        count += lawful[i] > 1.0;
#pragma omp atomic
        bins[i / 10] += lawful[i];
    }
    model::Springs springs(300);
    springs.start();
    for (int i = 0; i < 5; i++) springs.move(0.01);
    double sum = 0.0;
    for (double value : smoothed) sum += value;
    for (int i = 0; i < 10; i++) sum += bins[i];
    std::printf("%.9f %d %.9f\n", sum, count, springs.largest());
    std::printf("%s\n", omp_get_wtime() >= started ? "PASSED" : "FAILED");
    std::free(bins);
    return 0;
}
