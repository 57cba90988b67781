// Rounds the doubles of a file to both types of 16 bits, from a double and from a float, and back; writes the results.
#include <cstdio>
#include <vector>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

int main(int, char** argv) {
  FILE* in = fopen(argv[1], "rb");
  FILE* out = fopen("rounded.bin", "wb");
  for (double x; fread(&x, sizeof x, 1, in) == 1;) {
    const float narrow = float(x);
    const double rounded[4] = {double(float(__half(x))), double(float(__nv_bfloat16(x))), double(float(__half(narrow))),
                               double(float(__nv_bfloat16(narrow)))};
    fwrite(rounded, sizeof rounded, 1, out);
  }
  fclose(in);
  fclose(out);
}
