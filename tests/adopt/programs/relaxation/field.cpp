#include "field.h"
double residual(const Grid* g) {
    double worst = 0.0;
#pragma omp parallel
    {
#pragma omp for reduction(max : worst) \
        schedule(static)
        for (int i = 1; i < g->n - 1; i++) {
            double r = g->f[i] - (2.0 * g->u[i] - g->u[i - 1] - g->u[i + 1]) / square(g->h);
            switch (i % 3) {
                case 0: if (r > 1e30) continue; break;
                default: break;
            }
            worst = r * r > worst ? r * r : worst;
        }
    }
    return worst;
}
void relax(Grid* g, double* out, double omega) {
#pragma omp parallel for firstprivate(omega)
    for (int i = g->n - 2; i >= 1; --i) {
        omega *= 1.0;
        out[i] = (1 - omega) * g->u[i] + omega * 0.5 * (g->u[i - 1] + g->u[i + 1] + square(g->h) * g->f[i]);
    }
}
