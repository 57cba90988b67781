// Atomic functions on every type; test_prelude_atomics.py runs it on the host and compiles it for GPUs.

template <class T>
__device__ void all(T* r, int i) {
    const local<T> one = 1.0_num;
    mp::atomicAdd(r, one);
    mp::atomicAdd(r, 0.5_num);
    mp::atomicSub(r + 1, one);
    mp::atomicMin(r + 2, 100 - i);
    mp::atomicMax(r + 3, i);
    // Each takes what another one left, and the last one's stays.
    const T before = mp::atomicExch(r + 4, one);
    mp::atomicAdd(r + 5, before);
}

extern "C" __global__ void atomics(double* d, float* f, half* h, bfloat16* b, fp8_e4m3* e, int* n, unsigned* u) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    all(d, i);
    all(f, i);
    all(h, i);
    all(b, i);
    if (i < 8) {
        mp::atomicAdd(e, 1);
        mp::atomicMax(e + 1, i);
    }
    mp::atomicAdd(n, 1);
    mp::atomicSub(n + 1, 1);
    mp::atomicMin(n + 2, -i);
    mp::atomicMax(u, i);
    mp::atomicExch(u + 1, 7);
}
#if defined(MPTUNE_HOST)
MPTUNE_HOST_ENTRY(atomics)
#endif
