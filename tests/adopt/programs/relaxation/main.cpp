// Jacobi's relaxation in one dimension, with its loops in another file and a struct of a pointer and a vector.
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include "field.h"
int main(int argc, char** argv) {
    Grid g;
    g.n = argc > 1 ? std::atoi(argv[1]) : 400;
    g.h = 1.0 / (g.n - 1);
    g.u = new double[g.n];
    g.f.assign(g.n, 1.0);
    double* next = new double[g.n];
    std::fill(g.u, g.u + g.n, 0.0);
    std::fill(next, next + g.n, 0.0);
    for (int s = 0; s < 20; s++) {
        relax(&g, next, 0.8);
        std::swap(g.u, next);
    }
    std::printf("residual %.8f middle %.10f\n", residual(&g), g.u[g.n / 2]);
    delete[] g.u;
    delete[] next;
}
