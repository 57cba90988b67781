// Structs of vectors in memory: some whose numbers may be shorter, and some that would have gaps between them.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

struct Body {
    double3 place;
    double mass;
};
struct Panel {
    double3 corners[2], normal;
};
struct Cell {  // whose third number CUDA would move: a float4 is aligned to its length
    double2 at;
    double4 state;
};
struct __align__(16) Spin {
    double up, down;
};
struct Mark {
    int count;
    float4 seen;
};

__device__ double3 cross(double3 a, double3 b) {
    return make_double3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

__global__ void turn(const Body* bodies, const Panel* panels, double3* speeds, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double3 c = cross(bodies[i].place, speeds[i]);
    speeds[i].x += 0.01 * bodies[i].mass * (c.x + panels[i].normal.x);
    speeds[i].y += 0.01 * bodies[i].mass * (c.y + panels[i].corners[1].y);
    speeds[i].z += 0.01 * bodies[i].mass * (c.z + panels[i].corners[0].z);
}

__global__ void drift(Body* bodies, const double3* speeds, double step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bodies[i].place.x += step * speeds[i].x;
    bodies[i].place.y += step * speeds[i].y;
    bodies[i].place.z += step * speeds[i].z;
    bodies[i].mass *= 1.01;
}

__global__ void look(const Body* bodies, Cell* cells, Spin* spins, Mark* marks, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    cells[i].at.y += bodies[i].place.x;
    cells[i].state.w -= cells[i].at.y * bodies[i].mass;
    spins[i].down += spins[i].up * bodies[i].place.z;
    marks[i].seen.z = float(bodies[i].place.y);
    marks[i].count += i;
}

template <class T>
T* on_device(const std::vector<T>& values) {
    T* found;
    cudaMalloc(&found, values.size() * sizeof(T));
    cudaMemcpy(found, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return found;
}

template <class T>
void back(std::vector<T>& values, const T* device) {
    cudaMemcpy(values.data(), device, values.size() * sizeof(T), cudaMemcpyDeviceToHost);
}

int main() {
    const int n = 300;
    std::vector<Body> bodies(n);
    std::vector<Panel> panels(n);
    std::vector<Cell> cells(n);
    std::vector<Spin> spins(n);
    std::vector<Mark> marks(n);
    std::vector<double3> speeds(n);
    for (int i = 0; i < n; i++) {
        bodies[i].place = make_double3(1 + 0.003 * i, 1.7 - 0.001 * i, 2.2);
        bodies[i].mass = 0.9 + 0.0007 * i;
        panels[i].corners[0] = make_double3(0.1, 0.2, 0.003 * i);
        panels[i].corners[1] = make_double3(0.3, 1 / (1.0 + i), 0.4);
        panels[i].normal = make_double3(0.7, 0.1, 0.2);
        cells[i].at = make_double2(0.2, 0.01 * i);
        cells[i].state = make_double4(1, 2, 3, 40 + 0.1 * i);
        spins[i] = {0.3 + 0.001 * i, 0.5};
        marks[i].seen = make_float4(1, 2, 3, 4);
        marks[i].count = 2 * i;
        speeds[i] = make_double3(1, 0.002 * i, 0.6);
    }
    Body* d_bodies = on_device(bodies);
    Panel* d_panels = on_device(panels);
    Cell* d_cells = on_device(cells);
    Spin* d_spins = on_device(spins);
    Mark* d_marks = on_device(marks);
    double3* d_speeds = on_device(speeds);
    for (int s = 0; s < 4; s++) {
        turn<<<(n + 63) / 64, 64>>>(d_bodies, d_panels, d_speeds, n);
        drift<<<(n + 63) / 64, 64>>>(d_bodies, d_speeds, 0.1, n);
        look<<<(n + 63) / 64, 64>>>(d_bodies, d_cells, d_spins, d_marks, n);
    }
    back(bodies, d_bodies);
    back(cells, d_cells);
    back(spins, d_spins);
    back(marks, d_marks);
    back(speeds, d_speeds);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += bodies[i].place.x + cells[i].state.w + spins[i].down + marks[i].seen.z + marks[i].count + speeds[i].y;
    printf("%.10g\n", sum);
}
