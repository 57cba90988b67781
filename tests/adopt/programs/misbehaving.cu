// Ends in the way that its argument names.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

__global__ void fill(double* x, double value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void stray(double* x) { x[(long)(threadIdx.x + 1) << 40] = 1.0; }

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "nothing";
  double *x, value = 1.0;
  cudaMalloc(&x, 64 * sizeof(double));
  if (!strcmp(how, "hang")) for (;;) fill<<<1, 64>>>(x, 1.0);
  if (!strcmp(how, "stray")) stray<<<1, 64>>>(x);
  if (!strcmp(how, "code")) { printf("no file named data.txt\n"); return 3; }
  if (!strcmp(how, "fail")) { fill<<<1, 64>>>(x, 1.0); printf("error 0.5: Verification FAILED\n"); }
  if (!strcmp(how, "memory")) {
    std::vector<std::vector<char>> all;
    for (;;) all.emplace_back(1 << 24, 1);
  }
  if (!strcmp(how, "clock")) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    value = now.tv_nsec;
    fill<<<1, 64>>>(x, value);
    cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost);
    printf("value %g\n", value);
  }
  if (!strcmp(how, "file")) {
    fill<<<1, 64>>>(x, 2.0);
    cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost);
    FILE* out = fopen("result.txt", "w");
    fprintf(out, "%g\n", value);
    fclose(out);
    FILE* in = fopen("result.txt", "r");
    if (fscanf(in, "%lf", &value) == 1) printf("read %g, elapsed time %ld\n", value, (long)clock());
    fclose(in);
  }
  if (!strcmp(how, "half")) {
    std::vector<double> values(64);
    fill<<<1, 64>>>(x, 2.0);
    cudaMemcpy(values.data(), x, 64 * sizeof(int), cudaMemcpyDeviceToHost);
    printf("%s\n", values[63] == 2.0 ? "PASSED" : "value 63 is wrong: FAILED");
  }
  if (!strcmp(how, "sleep")) {
    timespec minute = {60, 0};
    fill<<<1, 64>>>(x, 1.0);
    nanosleep(&minute, nullptr);
  }
  return 0;
}
