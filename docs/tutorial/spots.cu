// Spots that grow and divide: two chemicals that diffuse and react (Gray and Scott 1984) on a square.
//
//     nvcc -O3 spots.cu -o spots && ./spots 512 100
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

// Rates of diffusion, of feeding u and of removing v; the length of a time step.
const double DIFFUSION_U = 0.16, DIFFUSION_V = 0.08, FEED = 0.035, KILL = 0.065, STEP = 1.0;

// How much a chemical differs from the mean around each cell but those at the border.
__global__ void laplacian(const double* field, double* result, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= side - 1 || y >= side - 1) return;
    int i = y * side + x;
    double neighbours = field[i - 1] + field[i + 1] + field[i - side] + field[i + side];
    result[i] = neighbours - 4.0 * field[i];
}

__global__ void react(double* u, double* v, const double* lap_u, const double* lap_v, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cells) return;
    double rate = u[i] * v[i] * v[i];
    double change_u = DIFFUSION_U * lap_u[i] - rate + FEED * (1.0 - u[i]);
    double change_v = DIFFUSION_V * lap_v[i] + rate - (FEED + KILL) * v[i];
    u[i] += STEP * change_u;
    v[i] += STEP * change_v;
}

int main(int argc, char** argv) {
    int side = argc > 1 ? atoi(argv[1]) : 512;
    int steps = argc > 2 ? atoi(argv[2]) : 100;
    int cells = side * side;
    size_t bytes = cells * sizeof(double);

    // A few squares of v, each of its own strength, in a sea of u.
    std::vector<double> u(cells, 1.0), v(cells, 0.0);
    for (int k = 0; k < 9; k++) {
        int left = (k * 67 + 20) % side, top = (k * 41 + 30) % side;
        for (int y = top; y < top + 20; y++) {
            for (int x = left; x < left + 20; x++) {
                u[y % side * side + x % side] = 0.5;
                v[y % side * side + x % side] = 0.25 + 0.01 * k;
            }
        }
    }
    std::vector<double> all_u(u), all_v(v);

    double* d_u;
    double* d_v;
    double* d_lap_u;
    double* d_lap_v;
    cudaMalloc(&d_u, bytes);
    cudaMalloc(&d_v, bytes);
    cudaMalloc(&d_lap_u, bytes);
    cudaMalloc(&d_lap_v, bytes);
    cudaMemcpy(d_u, u.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_v, v.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemset(d_lap_u, 0, bytes);
    cudaMemset(d_lap_v, 0, bytes);

    dim3 block(32, 8), grid((side + 31) / 32, (side + 7) / 8);
    for (int step = 0; step < steps; step++) {
        laplacian<<<grid, block>>>(d_u, d_lap_u, side);
        laplacian<<<grid, block>>>(d_v, d_lap_v, side);
        react<<<(cells + 255) / 256, 256>>>(d_u, d_v, d_lap_u, d_lap_v, cells);
    }
    cudaMemcpy(v.data(), d_v, bytes, cudaMemcpyDeviceToHost);

    // The same without a GPU.
    std::vector<double> next_u(cells), next_v(cells);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < cells; i++) {
            int x = i % side, y = i / side;
            double lap_u = 0.0, lap_v = 0.0;
            if (x >= 1 && y >= 1 && x < side - 1 && y < side - 1) {
                lap_u = all_u[i - 1] + all_u[i + 1] + all_u[i - side] + all_u[i + side] - 4.0 * all_u[i];
                lap_v = all_v[i - 1] + all_v[i + 1] + all_v[i - side] + all_v[i + side] - 4.0 * all_v[i];
            }
            double rate = all_u[i] * all_v[i] * all_v[i];
            next_u[i] = all_u[i] + STEP * (DIFFUSION_U * lap_u - rate + FEED * (1.0 - all_u[i]));
            next_v[i] = all_v[i] + STEP * (DIFFUSION_V * lap_v + rate - (FEED + KILL) * all_v[i]);
        }
        std::swap(all_u, next_u);
        std::swap(all_v, next_v);
    }
    double total = 0.0, worst = 0.0;
    for (int i = 0; i < cells; i++) {
        total += v[i];
        worst = fmax(worst, fabs(v[i] - all_v[i]));
    }
    printf("%d steps, %.3f of v, %s\n", steps, total, worst < 1e-3 ? "PASS" : "FAIL");

    cudaFree(d_u);
    cudaFree(d_v);
    cudaFree(d_lap_u);
    cudaFree(d_lap_v);
    return worst < 1e-3 ? 0 : 1;
}
