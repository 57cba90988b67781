// What the binaries in data/ are compiled from, by NVRTC 13.5 (sm_80, sm_90) and hiprtc 5.2 (gfx90a, gfx1030).

// 300 floats of shared memory, 64 floats of local memory indexed at run time.
extern "C" __global__ void arrays(float* x, int n) {
    __shared__ float s[300];
    float a[64];
    for (int i = 0; i < 64; i++) a[i] = x[i * n];
    s[threadIdx.x % 300] = a[n % 64];
    __syncthreads();
    float t = 0;
    for (int i = 0; i < 64; i++) t += a[(i * n) % 64] * s[i];
    x[threadIdx.x] = t;
}

// Nothing but a few registers.
extern "C" __global__ void plain(float* x) { x[threadIdx.x] = 1.0f; }
