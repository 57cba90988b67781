// An array of structs of numbers alone, and one that mixes numbers with an index.
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

struct Body {
    double x, y, mass;
};
struct Cell {
    double weight;
    int first;
};

__global__ void moments(double* moment, const Body* bodies, const Cell* cells, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    Cell cell = cells[i];
    double sum = 0.0;
    for (int k = 0; k < 4; k++) {
        const Body& body = bodies[cell.first + k];
        sum += body.mass * (body.x * body.x + body.y * body.y);
    }
    moment[i] = cell.weight * sum;
}

int main() {
    const int count = 300;
    std::vector<Body> bodies(4 * count);
    std::vector<Cell> cells(count);
    for (int i = 0; i < 4 * count; i++) bodies[i] = {0.01 * i, 1.0 / (1 + i), 1.0 + i % 3};
    for (int i = 0; i < count; i++) cells[i] = {0.5 + i % 7, 4 * (count - 1 - i)};
    Body* d_bodies;
    Cell* d_cells;
    double* d_moment;
    cudaMalloc(&d_bodies, bodies.size() * sizeof(Body));
    cudaMalloc(&d_cells, cells.size() * sizeof(Cell));
    cudaMalloc(&d_moment, count * sizeof(double));
    cudaMemcpy(d_bodies, &bodies[0], bodies.size() * sizeof(Body), cudaMemcpyHostToDevice);
    cudaMemcpy(d_cells, &cells[0], cells.size() * sizeof(Cell), cudaMemcpyHostToDevice);
    moments<<<5, 64>>>(d_moment, d_bodies, d_cells, count);
    std::vector<double> moment(count);
    cudaMemcpy(&moment[0], d_moment, count * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (int k = 0; k < 4; k++) {
        const Body& body = bodies[cells[2].first + k];
        sum += body.mass * (body.x * body.x + body.y * body.y);
    }
    bool good = moment[2] > 0.999999 * cells[2].weight * sum && moment[2] < 1.000001 * cells[2].weight * sum;
    printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
