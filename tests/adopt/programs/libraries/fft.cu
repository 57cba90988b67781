// Transforms by cuFFT of what a kernel computes: printed with the name of the call.
#include <cufft.h>

#include <cstdio>
#include <vector>

__global__ void fill(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = (i * 37 % 101) * 0.5 - 7;
}

double* filled(int n) {
    double* x;
    cudaMalloc(&x, n * sizeof(double));
    fill<<<(n + 127) / 128, 128>>>(x, n);
    return x;
}

void show(const char* name, const void* device, int n) {
    std::vector<double> values(n);
    cudaMemcpy(values.data(), device, n * sizeof(double), cudaMemcpyDeviceToHost);
    printf("%s", name);
    for (double value : values) printf(" %.17g", value);
    printf("\n");
}

int main() {
    cufftHandle plan;
    const int lengths[] = {60, 64, 211};
    for (int n : lengths) {  // factors, a power of two, a prime
        cufftDoubleComplex* x = (cufftDoubleComplex*)filled(2 * n);
        cufftPlan1d(&plan, n, CUFFT_Z2Z, 1);
        cufftExecZ2Z(plan, x, x, CUFFT_FORWARD);
        show("forward", x, 2 * n);
        cufftExecZ2Z(plan, x, x, CUFFT_INVERSE);
        show("back", x, 2 * n);
        cufftDestroy(plan);
    }
    double *x = filled(6 * 10), *back = filled(6 * 10), *z = filled(2 * 6 * 6);
    cufftPlan2d(&plan, 6, 10, CUFFT_D2Z);
    cufftExecD2Z(plan, x, (cufftDoubleComplex*)z);
    show("real", z, 2 * 6 * 6);
    cufftPlan2d(&plan, 6, 10, CUFFT_Z2D);
    cufftExecZ2D(plan, (cufftDoubleComplex*)z, back);
    show("real_back", back, 60);
    int length = 8, room = 8;
    double* columns = filled(2 * 8 * 3);  // three transforms of every third number
    cufftPlanMany(&plan, 1, &length, &room, 3, 1, &room, 3, 1, CUFFT_Z2Z, 3);
    cufftExecZ2Z(plan, (cufftDoubleComplex*)columns, (cufftDoubleComplex*)columns, CUFFT_FORWARD);
    show("columns", columns, 2 * 8 * 3);
    return 0;
}
