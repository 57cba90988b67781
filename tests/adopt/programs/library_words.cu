// What programs take from the C++ library and its newer standards: namespaces, limits and questions about types, auto,
// copies of bytes, infinities.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#define WEIGHTS {0.25, 0.5, 0.125}
#define FAR std::numeric_limits<double>::max()

namespace plant {

constexpr double growth = 0.25;

namespace leaf {

template <typename T>
__device__ T doubled(T x) {
    if constexpr (std::is_same<T, double>::value) return x + x;
    else return x;
}

}  // namespace leaf

__device__ double grown(double x) { return x * growth; }

template <typename T>
__global__ void span(const T* in, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T most = std::numeric_limits<T>::lowest(), least = FAR, nearest = INFINITY;
    for (int k = 0; k < 4; k++) {
        T value = in[(i + k) % n];
        most = std::max(most, value);
        least = std::min(least, value);
        nearest = fmin(nearest, std::abs(value));
    }
    out[i] = plant::grown(std::sqrt(most - least)) + leaf::doubled<T>(nearest) + std::numeric_limits<T>::epsilon();
}

}  // namespace plant

struct Pair {
    double first, second;
    int count;
};

__global__ void weigh(const double* in, double* out, int n) {
    using namespace plant;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double weights[3] = WEIGHTS;
    auto sum = 0.0;
    for (int k = 0; k < 3; k++) sum += weights[k] * in[(i + k) % n];
    const auto next = in[(i + 1) % n];
    double parts[3], kept[3];
    memset(parts, 0, sizeof(parts));
    for (int k = 0; k < 3; k++) parts[k] += weights[k] * next;
    memcpy(kept, parts, 3 * sizeof(double));
    double counted[2] = {sum, next}, bytes[2];
    memcpy(bytes, counted, 16);
    Pair pair, copied;
    memset(&pair, 0, sizeof(Pair));
    pair.first = next;
    memcpy(&copied, &pair, sizeof copied);
    int whole = std::numeric_limits<int>::max();
    // NaN gives way to a number but in the functions of C++, where it stays if it comes first.
    double lost = sqrt(-next), clipped = fmin(fmax(lost, 0.0), 0.5) + 2 * min(0.5, max(lost, 0.25));
    if (std::max(lost, 0.25) == 0.25) clipped = -1;
    out[i] = grown(sum) + kept[0] + kept[2] + bytes[0] + copied.first + (whole > 0 ? ::plant::growth : 0.0) + clipped;
}

int main() {
    int n = 1000;
    std::vector<double> in(n), middle(n), out(n);
    for (int i = 0; i < n; i++) in[i] = std::sin(0.1 * i) + 1.5;
    double *d_in, *d_middle, *d_out;
    cudaMalloc(&d_in, n * sizeof(double));
    cudaMalloc(&d_middle, n * sizeof(double));
    cudaMalloc(&d_out, n * sizeof(double));
    cudaMemcpy(d_in, in.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    plant::span<double><<<(n + 127) / 128, 128>>>(d_in, d_middle, n);
    weigh<<<(n + 127) / 128, 128>>>(d_middle, d_out, n);
    cudaMemcpy(out.data(), d_out, n * sizeof(double), cudaMemcpyDeviceToHost);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double most = in[i], least = in[i];
        for (int k = 1; k < 4; k++) most = std::max(most, in[(i + k) % n]), least = std::min(least, in[(i + k) % n]);
        middle[i] = 0.25 * std::sqrt(most - least) + 2 * least + std::numeric_limits<double>::epsilon();
    }
    for (int i = 0; i < n; i++) {
        double next = middle[(i + 1) % n], sum = 0.25 * middle[i] + 0.5 * next + 0.125 * middle[(i + 2) % n];
        double expected = 0.25 * sum + 0.375 * next + sum + next + 0.75;
        worst = std::max(worst, std::abs(out[i] - expected));
    }
    printf("%s\n", worst < 1e-12 ? "PASS" : "FAIL");
    return 0;
}
