#pragma once
#include <vector>
struct Grid {
    int n;
    double h;
    double* u;
    std::vector<double> f;
};
double residual(const Grid* g);
void relax(Grid* g, double* out, double omega);
inline double square(double x) { return x * x; }
