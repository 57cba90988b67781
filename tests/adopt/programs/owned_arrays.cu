// Springs in a row: a class owns the arrays, all of them made by one loop, and kernels get a struct of pointers.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>
#include <cuda_runtime.h>

namespace springs {

struct Arrays {
    double *at, *speed;
    double *pull;
    int count;
};

namespace {
struct Law {
    double stiffness, damping, rest;
};
}

__global__ void stretch(Arrays a, const Law law) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= 0 || i >= a.count - 1) return;
    double left = a.at[i] - a.at[i - 1] - law.rest, right = a.at[i + 1] - a.at[i] - law.rest;
    a.pull[i] = law.stiffness * (right - left) - law.damping * a.speed[i];
}

__global__ void move(Arrays a, double step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) return;
    a.speed[i] += step * a.pull[i];
    a.at[i] += step * a.speed[i];
}

class Row {
  public:
    explicit Row(int count) {
        arrays_.count = count;
        for (double **slot : {&arrays_.at, &arrays_.speed, &arrays_.pull}) {
            cudaMalloc(slot, count * sizeof(double));
            cudaMemset(*slot, 0, count * sizeof(double));
        }
    }
    Row(const Row &) = delete;
    ~Row() {
        for (double *each : {arrays_.at, arrays_.speed, arrays_.pull}) cudaFree(each);
    }
    const Arrays &arrays() const { return arrays_; }
    void upload(double *device, const std::vector<double> &host) {
        cudaMemcpy(device, host.data(), host.size() * sizeof(double), cudaMemcpyHostToDevice);
    }
    std::vector<double> download(const double *device) const {
        std::vector<double> host(arrays_.count);
        cudaMemcpy(host.data(), device, host.size() * sizeof(double), cudaMemcpyDeviceToHost);
        return host;
    }

  private:
    Arrays arrays_;
};

}  // namespace springs

const char *kind_of(double) { return "double"; }
const char *kind_of(float) { return "float"; }

int main(int argc, char **argv) {
    const int count = argc > 1 ? atoi(argv[1]) : 200, steps = 20;
    const double spacing = 1.0 / count;
    springs::Law law{0.3 * count * spacing, 0.1 + spacing, spacing};
    auto row = std::make_unique<springs::Row>(count);
    std::vector<double> at(count), speed(count), pull(count);
    for (int i = 0; i < count; ++i) at[i] = i * spacing + 0.2 * spacing * std::sin(0.1 * i);
    row->upload(row->arrays().at, at);
    const double step = 0.1;
    for (int s = 0; s < steps; ++s) {
        springs::stretch<<<(count + 63) / 64, 64>>>(row->arrays(), law);
        springs::move<<<(count + 63) / 64, 64>>>(row->arrays(), step);
    }
    for (int s = 0; s < steps; ++s) {
        for (int i = 1; i < count - 1; ++i)
            pull[i] = law.stiffness * (at[i + 1] - 2 * at[i] + at[i - 1]) - law.damping * speed[i];
        for (int i = 0; i < count; ++i) at[i] += step * (speed[i] += step * pull[i]);
    }
    const std::vector<double> found = row->download(row->arrays().at);
    auto rest = law.rest;
    double worst = 0;
    for (int i = 0; i < count; ++i) worst = std::fmax(worst, std::abs(found[i] - at[i]));
    printf("rest %.9f of type %s, larger of two %.9f\n", law.rest, kind_of(rest), std::max(law.rest, 1e-9));
    printf(worst < 1e-4 ? "PASS\n" : "FAIL\n");
    return worst < 1e-4 ? 0 : 1;
}
