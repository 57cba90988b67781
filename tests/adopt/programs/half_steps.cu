// Waves as complex numbers in double2 with operators of their own, in a functor that a kernel is a template of. Without
// the header of 16-bit types, half is a name like any other: of a kernel, a function, numbers, a field, and pairs half2.
#include <cmath>
#include <cstdio>
#include <vector>

typedef double2 wave;
constexpr int COUNT = 16;

__host__ __device__ inline wave operator+(wave a, wave b) { return make_double2(a.x + b.x, a.y + b.y); }
__host__ __device__ inline wave operator*(wave a, wave b) {
    return make_double2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
__host__ __device__ inline wave operator*(double by, wave a) { return {by * a.x, by * a.y}; }

struct Turn {
    double angle, half;
    __device__ wave operator()(int mode, wave u) const {
        double half_angle = half * angle * mode;
        return wave{cos(half_angle), sin(half_angle)} * u;
    }
};

__device__ double half_of(double half) {
    double rest = half / 2;
    return half - rest;
}

template <class Op>
__global__ void mix(const wave* in, wave* out, int n, Op op) {
    __shared__ double2 tile[COUNT];
    int t = threadIdx.x;
    tile[t] = in[blockIdx.x * COUNT + t];
    __syncthreads();
    for (int half = COUNT / 2; half > 0; half /= 2) {
        wave other = tile[(t + half) % COUNT];
        __syncthreads();
        tile[t] = tile[t] + 0.125 * other;
        __syncthreads();
    }
    wave turned = op(t, tile[t]);
    out[blockIdx.x * COUNT + t] = (1.0 / COUNT) * turned + wave{0.5};
}

__global__ void half(wave* u, double half, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double half2 = half_of(half), size = 0.5;
    if (i < n) u[i] = (size + half2) * u[i];
}

wave turned(wave u, double angle) { return wave{std::cos(angle), std::sin(angle)} * u; }

int main() {
    const int blocks = 12, n = blocks * COUNT;
    std::vector<wave> u(n), v(n);
    for (int i = 0; i < n; i++) u[i] = {1.0 + i % 5, 0.25 * (i % 3)};
    wave *d_u, *d_v;
    cudaMalloc(&d_u, n * sizeof(wave));
    cudaMalloc(&d_v, n * sizeof(wave));
    cudaMemcpy(d_u, u.data(), n * sizeof(wave), cudaMemcpyHostToDevice);
    mix<<<blocks, COUNT>>>(d_u, d_v, n, Turn{0.3, 0.5});
    half<<<(n + 31) / 32, 32>>>(d_v, 0.25, n);
    cudaMemcpy(v.data(), d_v, n * sizeof(wave), cudaMemcpyDeviceToHost);
    cudaFree(d_u);
    cudaFree(d_v);
    double worst = 0;
    for (int b = 0; b < blocks; b++) {
        std::vector<wave> tile(u.begin() + b * COUNT, u.begin() + (b + 1) * COUNT);
        for (int step = COUNT / 2; step > 0; step /= 2) {
            std::vector<wave> before = tile;
            for (int t = 0; t < COUNT; t++) tile[t] = before[t] + 0.125 * before[(t + step) % COUNT];
        }
        for (int t = 0; t < COUNT; t++) {
            wave expected = 0.625 * ((1.0 / COUNT) * turned(tile[t], 0.15 * t) + wave{0.5});
            worst = std::fmax(worst, std::fabs(v[b * COUNT + t].x - expected.x));
            worst = std::fmax(worst, std::fabs(v[b * COUNT + t].y - expected.y));
        }
    }
    std::printf("%s\n", worst < 1e-12 ? "PASS" : "FAIL");
    return worst >= 1e-12;
}
