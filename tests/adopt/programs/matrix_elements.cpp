// A smoothed field, in a matrix whose elements are given by operator()(int, int) as places in the memory it points at.
#include <cmath>
#include <cstdio>
#include <vector>

struct Matrix {
    double* cells;
    int columns;
    double& operator()(int row, int column) { return cells[row * columns + column]; }
    double operator()(int row, int column) const { return cells[row * columns + column]; }
};

void smooth(const Matrix& from, Matrix& to, int rows) {
    const int columns = from.columns;
#pragma omp parallel for
    for (int i = 1; i < rows - 1; i++)
        for (int j = 1; j < columns - 1; j++)
            to(i, j) = 0.5 * from(i, j) + 0.125 * (from(i - 1, j) + from(i + 1, j) + from(i, j - 1) + from(i, j + 1));
}

int main() {
    const int rows = 40, columns = 50;
    std::vector<double> cells(rows * columns), others(rows * columns);
    Matrix one{cells.data(), columns}, other{others.data(), columns};
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) one(i, j) = other(i, j) = i + 0.5 * j + (i == 20 && j == 25);
    for (int step = 0; step < 2; step++) {
        smooth(one, other, rows);
        smooth(other, one, rows);
    }
    double sum = 0;
    for (double cell : cells) sum += cell;
    const double expected = rows * columns * ((rows - 1) / 2.0 + (columns - 1) / 4.0) + 1;
    std::printf("%s\n", std::fabs(sum - expected) < 1e-9 ? "PASS" : "FAIL");
    return std::fabs(sum - expected) >= 1e-9;
}
