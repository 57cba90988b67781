// Structs in the device's memory: of several types and of one, read and written; one in constant memory; and a kernel
// that a template of the host launches for two types and two orders.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

struct Bead {
    double place[3];
    float charge;
    int neighbour;
    bool is_fixed;
};
struct Force {
    double x, y, z;
};
struct Law {
    double stiffness;
    int power;
};

__constant__ Law law;

__global__ void pull(const Bead* beads, Force* forces, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Bead& other = beads[beads[i].neighbour];
    double scale = law.stiffness * beads[i].charge * other.charge;
    for (int k = 1; k < law.power; k++) scale *= 0.5;
    Force force = {scale * (other.place[0] - beads[i].place[0]), scale * (other.place[1] - beads[i].place[1]),
                   scale * (other.place[2] - beads[i].place[2])};
    forces[i] = force;
}

__global__ void move(Bead* beads, const Force* forces, double step, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || beads[i].is_fixed) return;
    beads[i].place[0] += step * forces[i].x;
    beads[i].place[1] += step * forces[i].y;
    beads[i].place[2] += step * forces[i].z;
    beads[i].neighbour = count - 1 - beads[i].neighbour;
}

enum class Order { up, down };

template <typename T, Order order>
__global__ void total(const T* values, T* sums, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T sum = 0;
    for (int k = 0; k < length; k++) sum += values[i * length + (order == Order::up ? k : length - 1 - k)];
    sums[i] = sum;
}

template <typename T, Order order>
double summed(int rows, int length) {
    std::vector<T> values(rows * length), sums(rows);
    for (int i = 0; i < rows * length; i++) values[i] = T(1) / (1 + i % 11);
    T *d_values, *d_sums;
    cudaMalloc(&d_values, values.size() * sizeof(T));
    cudaMalloc(&d_sums, sums.size() * sizeof(T));
    cudaMemcpy(d_values, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    total<T, order><<<rows / 32, 32>>>(d_values, d_sums, length);
    cudaMemcpy(sums.data(), d_sums, sums.size() * sizeof(T), cudaMemcpyDeviceToHost);
    double all = 0;
    for (T sum : sums) all += sum;
    return all;
}

int main() {
    const int count = 500;
    std::vector<Bead> beads(count);
    for (int i = 0; i < count; i++)
        beads[i] = {{std::cos(0.1 * i), std::sin(0.1 * i), 0.01 * i}, 1.0f + i % 3, (i * 7 + 1) % count, i % 50 == 0};
    Law given = {0.75, 3};
    Bead* d_beads;
    Force* d_forces;
    cudaMalloc(&d_beads, count * sizeof(Bead));
    cudaMalloc(&d_forces, count * sizeof(Force));
    cudaMemcpy(d_beads, beads.data(), count * sizeof(Bead), cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(law, &given, sizeof(Law));
    for (int step = 0; step < 6; step++) {
        pull<<<(count + 63) / 64, 64>>>(d_beads, d_forces, count);
        move<<<(count + 63) / 64, 64>>>(d_beads, d_forces, 0.01, count);
    }
    std::vector<Force> forces(count);
    cudaMemcpy(beads.data(), d_beads, count * sizeof(Bead), cudaMemcpyDeviceToHost);
    cudaMemcpy(forces.data(), d_forces, count * sizeof(Force), cudaMemcpyDeviceToHost);
    double moved = summed<double, Order::up>(64, 40), moved_alike = summed<float, Order::up>(64, 40);
    double moved_back = summed<double, Order::down>(64, 40);
    bool passed = std::fabs(moved - moved_alike) < 1e-2 && std::fabs(moved - moved_back) < 1e-10 && std::isfinite(beads[7].place[1] + forces[7].x);
    printf("%s\n", passed ? "PASSED" : "FAILED");
    return !passed;
}
