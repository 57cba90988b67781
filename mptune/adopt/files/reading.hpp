// What a CUDA or HIP program means, for the eyes of libclang alone: nothing here is ever compiled to code.
// Included before every file of a program that is read; the headers of CUDA and HIP themselves are empty then.
#pragma once
#include <cstddef>
#ifdef _LIBCPP_VERSION  // most of its headers have some of the mathematical functions
#pragma clang force_cuda_host_device begin
#include <cmath>
#include <cstdlib>
#pragma clang force_cuda_host_device end
#endif
#include <exception>

// Device code may call the functions of C that CUDA offers it; constexpr ones it may call anyhow.
#pragma clang force_cuda_host_device begin
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#pragma clang force_cuda_host_device end
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cstdint>
#include <limits>
#include <utility>
#pragma clang force_cuda_host_device begin
#include <cmath>
#pragma clang force_cuda_host_device end

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))
#define __grid_constant__
#define __forceinline__ inline
#define __align__(N) __attribute__((aligned(N)))
#define __launch_bounds__(...)
#define __builtin_align__(N) __attribute__((aligned(N)))
#define __HD__ __host__ __device__
#define HIP_DYNAMIC_SHARED(TYPE, NAME) extern __shared__ TYPE NAME[];
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_SYMBOL(NAME) NAME
#define hipLaunchKernelGGL(KERNEL, GRID, BLOCK, SHARED, STREAM, ...) KERNEL<<<GRID, BLOCK, SHARED, STREAM>>>(__VA_ARGS__)
#define CUDART_VERSION 12000
#define CUDA_VERSION 12000
#define CUDART_CB
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_INF __builtin_huge_val()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN __builtin_nan("")

// Vectors, aligned to their length, but to 16 bytes at most.
#define MPTUNE_ALIGNED(BYTES) __attribute__((aligned((BYTES) < 16 ? (BYTES) : 16)))
#define MPTUNE_VECTORS(T, N)                                                          \
  struct N##1 { T x; };                                                               \
  struct MPTUNE_ALIGNED(2 * sizeof(T)) N##2 { T x, y; };                              \
  struct N##3 { T x, y, z; };                                                         \
  struct MPTUNE_ALIGNED(4 * sizeof(T)) N##4 { T x, y, z, w; };                        \
  __HD__ N##1 make_##N##1(T x);                                                       \
  __HD__ N##2 make_##N##2(T x, T y);                                                  \
  __HD__ N##3 make_##N##3(T x, T y, T z);                                             \
  __HD__ N##4 make_##N##4(T x, T y, T z, T w);
MPTUNE_VECTORS(signed char, char)
MPTUNE_VECTORS(unsigned char, uchar)
MPTUNE_VECTORS(short, short)
MPTUNE_VECTORS(unsigned short, ushort)
MPTUNE_VECTORS(int, int)
MPTUNE_VECTORS(unsigned int, uint)
MPTUNE_VECTORS(long, long)
MPTUNE_VECTORS(unsigned long, ulong)
MPTUNE_VECTORS(long long, longlong)
MPTUNE_VECTORS(unsigned long long, ulonglong)
MPTUNE_VECTORS(float, float)
MPTUNE_VECTORS(double, double)
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;
#undef MPTUNE_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr __HD__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr __HD__ dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  __HD__ operator uint3() const;
};
extern const __device__ uint3 threadIdx;
extern const __device__ uint3 blockIdx;
extern const __device__ dim3 blockDim;
extern const __device__ dim3 gridDim;
extern const __device__ int warpSize;
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

// Half precision, as a number that converts.
struct __half {
  unsigned short bits;
  __half() = default;
  __HD__ __half(float value);
  __HD__ operator float() const;
  __HD__ unsigned short to_bits() const;
  __HD__ static __half from_bits(unsigned short);
  __HD__ __half& operator+=(float);
  __HD__ __half& operator-=(float);
  __HD__ __half& operator*=(float);
  __HD__ __half& operator/=(float);
};
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __HD__ __nv_bfloat16(float value);
  __HD__ operator float() const;
  __HD__ unsigned short to_bits() const;
  __HD__ static __nv_bfloat16 from_bits(unsigned short);
  __HD__ __nv_bfloat16& operator+=(float);
  __HD__ __nv_bfloat16& operator-=(float);
  __HD__ __nv_bfloat16& operator*=(float);
  __HD__ __nv_bfloat16& operator/=(float);
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat16 __hip_bfloat16;

// Device functions.
__device__ void __syncthreads();
__device__ int __syncthreads_count(int);
__device__ int __syncthreads_and(int);
__device__ int __syncthreads_or(int);
__device__ void __syncwarp(unsigned mask = ~0u);
__device__ void __threadfence();
__device__ void __threadfence_block();
__device__ void __threadfence_system();
__device__ void __trap();
__device__ void __nanosleep(unsigned);
__device__ long long clock64();
__device__ long long wall_clock64();
template <class T> __device__ T __ldg(const T*);
template <class T> __device__ T __ldcs(const T*);
template <class T> __device__ T __ldca(const T*);
template <class T> __device__ T __ldcg(const T*);
template <class T> __device__ void __stcs(T*, T);
template <class T> __device__ void __stcg(T*, T);
#define MPTUNE_ATOMIC(NAME)                             \
  template <class T, class V> __device__ T NAME(T*, V); \
  template <class T, class V> __device__ T NAME##_block(T*, V); \
  template <class T, class V> __device__ T NAME##_system(T*, V);
MPTUNE_ATOMIC(atomicAdd)
MPTUNE_ATOMIC(atomicSub)
MPTUNE_ATOMIC(atomicMin)
MPTUNE_ATOMIC(atomicMax)
MPTUNE_ATOMIC(atomicExch)
MPTUNE_ATOMIC(atomicAnd)
MPTUNE_ATOMIC(atomicOr)
MPTUNE_ATOMIC(atomicXor)
MPTUNE_ATOMIC(atomicInc)
MPTUNE_ATOMIC(atomicDec)
MPTUNE_ATOMIC(unsafeAtomicAdd)
#undef MPTUNE_ATOMIC
template <class T, class U, class V> __device__ T atomicCAS(T*, U, V);
template <class T, class U, class V> __device__ T atomicCAS_block(T*, U, V);
template <class T, class U, class V> __device__ T atomicCAS_system(T*, U, V);
#define MPTUNE_SHUFFLE(NAME)                                                           \
  template <class T> __device__ T NAME(T value, int lane, int width = 32);             \
  template <class T> __device__ T NAME##_sync(unsigned mask, T value, int lane, int width = 32);
MPTUNE_SHUFFLE(__shfl)
MPTUNE_SHUFFLE(__shfl_up)
MPTUNE_SHUFFLE(__shfl_down)
MPTUNE_SHUFFLE(__shfl_xor)
#undef MPTUNE_SHUFFLE
__device__ unsigned __activemask();
__device__ unsigned __ballot(int);
__device__ unsigned __ballot_sync(unsigned, int);
__device__ int __any(int);
__device__ int __all(int);
__device__ int __any_sync(unsigned, int);
__device__ int __all_sync(unsigned, int);
template <class T> __device__ unsigned __match_any_sync(unsigned, T);
// Those of bits and of one rounding are the prelude's.
#define MPTUNE_HOST
#define MPTUNE_INLINE __device__ inline
#include MPTUNE_INTRINSICS
#undef MPTUNE_INLINE
#undef MPTUNE_HOST
struct __attribute__((aligned(4))) __half2 { __half x, y; };
struct __attribute__((aligned(4))) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat162 __hip_bfloat162;
namespace mptune_short {
typedef __half mptune_half;
typedef __half2 mptune_half2;
typedef __nv_bfloat16 mptune_bfloat16;
typedef __nv_bfloat162 mptune_bfloat162;
typedef float2 mptune_float2;
}
#define MPTUNE_INLINE __HD__ inline
#define MPTUNE_BUILTIN(NAME) __builtin_##NAME
#define MPTUNE_FMA(A, B, C) (A * B + C)
#include MPTUNE_SHORT_INTRINSICS
#undef MPTUNE_FMA
#undef MPTUNE_BUILTIN
#undef MPTUNE_INLINE
using namespace mptune_short;
// (glibc declares __expf, __logf, __sinf, __powf and their like itself.)
#define MPTUNE_FUNCTION(NAME)  \
  __HD__ double NAME(double);  \
  __HD__ float NAME##f(float);
MPTUNE_FUNCTION(rsqrt)
MPTUNE_FUNCTION(rcbrt)
MPTUNE_FUNCTION(sinpi)
MPTUNE_FUNCTION(cospi)
MPTUNE_FUNCTION(erfcx)
MPTUNE_FUNCTION(erfinv)
MPTUNE_FUNCTION(erfcinv)
MPTUNE_FUNCTION(normcdf)
MPTUNE_FUNCTION(normcdfinv)
#undef MPTUNE_FUNCTION
__HD__ float rsqrt(float);
__HD__ double norm3d(double, double, double);
__HD__ float norm3df(float, float, float);
__HD__ double rhypot(double, double);
__HD__ float rhypotf(float, float);
__HD__ double fdivide(double, double);
__HD__ float fdividef(float, float);
__HD__ void sincospi(double, double*, double*);
__HD__ void sincospif(float, float*, float*);
__HD__ float saturate(float);
#define MPTUNE_ORDER(T)  \
  __HD__ T min(T, T);    \
  __HD__ T max(T, T);
MPTUNE_ORDER(int)
MPTUNE_ORDER(unsigned)
MPTUNE_ORDER(long)
MPTUNE_ORDER(unsigned long)
MPTUNE_ORDER(long long)
MPTUNE_ORDER(unsigned long long)
MPTUNE_ORDER(float)
MPTUNE_ORDER(double)
#undef MPTUNE_ORDER
#define MPTUNE_MIXED(A, B, R)  \
  __HD__ R min(A, B);          \
  __HD__ R max(A, B);
MPTUNE_MIXED(float, double, double)
MPTUNE_MIXED(double, float, double)
MPTUNE_MIXED(int, unsigned, unsigned)
MPTUNE_MIXED(unsigned, int, unsigned)
MPTUNE_MIXED(int, long, long)
MPTUNE_MIXED(long, int, long)
MPTUNE_MIXED(int, unsigned long, unsigned long)
MPTUNE_MIXED(unsigned long, int, unsigned long)
MPTUNE_MIXED(int, float, float)
MPTUNE_MIXED(float, int, float)
MPTUNE_MIXED(int, double, double)
MPTUNE_MIXED(double, int, double)
#undef MPTUNE_MIXED
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// The runtime. Calls take what they are given; which of their arguments mean what is known by their names.
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600,
                   cudaErrorPeerAccessAlreadyEnabled = 704, cudaErrorUnknown = 999 };
typedef cudaError_t hipError_t;
typedef cudaError_t cudaError;
typedef cudaError_t CUresult;
constexpr cudaError_t hipSuccess = cudaSuccess, hipErrorInvalidValue = cudaErrorInvalidValue,
                      hipErrorNotReady = cudaErrorNotReady, CUDA_SUCCESS = cudaSuccess;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice,
                      cudaMemcpyDefault };
typedef cudaMemcpyKind hipMemcpyKind;
constexpr cudaMemcpyKind hipMemcpyHostToHost = cudaMemcpyHostToHost, hipMemcpyHostToDevice = cudaMemcpyHostToDevice,
                         hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost,
                         hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice, hipMemcpyDefault = cudaMemcpyDefault;
typedef struct MptuneStream* cudaStream_t;
typedef struct MptuneEvent* cudaEvent_t;
typedef struct MptuneGraph* cudaGraph_t;
typedef struct MptuneGraphExec* cudaGraphExec_t;
typedef cudaStream_t hipStream_t;
typedef cudaEvent_t hipEvent_t;
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
typedef cudaTextureObject_t hipTextureObject_t;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, totalConstMem, memPitch, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate, major, minor;
  int multiProcessorCount, maxThreadsPerMultiProcessor, memoryClockRate, memoryBusWidth, l2CacheSize, unifiedAddressing;
  int concurrentKernels, integrated, canMapHostMemory, computeMode, managedMemory, concurrentManagedAccess;
  int regsPerMultiprocessor, pciBusID, pciDeviceID, pciDomainID, ECCEnabled, asyncEngineCount, cooperativeLaunch;
  char gcnArchName[256];
};
typedef cudaDeviceProp hipDeviceProp_t;
struct cudaFuncAttributes { size_t sharedSizeBytes, constSizeBytes, localSizeBytes; int maxThreadsPerBlock, numRegs; };
struct cudaPointerAttributes { int type, device; void *devicePointer, *hostPointer; };
struct cudaExtent { size_t width, height, depth; };
struct cudaPitchedPtr { void* ptr; size_t pitch, xsize, ysize; };
enum { cudaMemAttachGlobal = 1, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2,
       cudaHostRegisterDefault = 0, cudaStreamNonBlocking = 1, cudaStreamDefault = 0, cudaEventDefault = 0,
       cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaDeviceMapHost = 8, cudaDeviceScheduleAuto = 0,
       cudaDeviceScheduleSpin = 1, cudaDeviceScheduleBlockingSync = 4, cudaCpuDeviceId = -1,
       cudaHostAllocWriteCombined = 4, cudaHostRegisterMapped = 2, hipHostMallocDefault = 0,
       hipMemAttachGlobal = 1, hipEventDefault = 0, hipStreamNonBlocking = 1 };
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1, cudaMemAdviseSetPreferredLocation = 3,
                        cudaMemAdviseSetAccessedBy = 5 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
                         cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaDeviceAttr { cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrWarpSize = 10, cudaDevAttrClockRate = 13,
                      cudaDevAttrMultiProcessorCount = 16, cudaDevAttrConcurrentManagedAccess = 89,
                      cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
const char* hipGetErrorString(cudaError_t);
const char* hipGetErrorName(cudaError_t);
cudaExtent make_cudaExtent(size_t, size_t, size_t);
cudaPitchedPtr make_cudaPitchedPtr(void*, size_t, size_t, size_t);
#define MPTUNE_CALL(NAME)                                           \
  template <class... A> cudaError_t cuda##NAME(A&&... arguments);   \
  template <class... A> cudaError_t hip##NAME(A&&... arguments);
MPTUNE_CALL(Malloc)
MPTUNE_CALL(MallocManaged)
MPTUNE_CALL(MallocHost)
MPTUNE_CALL(MallocAsync)
MPTUNE_CALL(MallocPitch)
MPTUNE_CALL(Malloc3D)
MPTUNE_CALL(HostMalloc)
MPTUNE_CALL(HostFree)
MPTUNE_CALL(HostAlloc)
MPTUNE_CALL(HostRegister)
MPTUNE_CALL(HostUnregister)
MPTUNE_CALL(HostGetDevicePointer)
MPTUNE_CALL(Free)
MPTUNE_CALL(FreeHost)
MPTUNE_CALL(FreeAsync)
MPTUNE_CALL(Memcpy)
MPTUNE_CALL(MemcpyAsync)
MPTUNE_CALL(Memcpy2D)
MPTUNE_CALL(Memcpy2DAsync)
MPTUNE_CALL(Memcpy3D)
MPTUNE_CALL(MemcpyPeer)
MPTUNE_CALL(MemcpyToSymbol)
MPTUNE_CALL(MemcpyToSymbolAsync)
MPTUNE_CALL(MemcpyFromSymbol)
MPTUNE_CALL(MemcpyFromSymbolAsync)
MPTUNE_CALL(MemcpyHtoD)
MPTUNE_CALL(MemcpyDtoH)
MPTUNE_CALL(Memset)
MPTUNE_CALL(MemsetAsync)
MPTUNE_CALL(Memset2D)
MPTUNE_CALL(Memset3D)
MPTUNE_CALL(MemsetD8)
MPTUNE_CALL(MemsetD32)
MPTUNE_CALL(MemGetInfo)
MPTUNE_CALL(MemPrefetchAsync)
MPTUNE_CALL(MemAdvise)
MPTUNE_CALL(GetSymbolAddress)
MPTUNE_CALL(GetSymbolSize)
MPTUNE_CALL(PointerGetAttributes)
MPTUNE_CALL(DeviceSynchronize)
MPTUNE_CALL(ThreadSynchronize)
MPTUNE_CALL(ThreadExit)
MPTUNE_CALL(DeviceReset)
MPTUNE_CALL(DeviceSetCacheConfig)
MPTUNE_CALL(DeviceSetSharedMemConfig)
MPTUNE_CALL(DeviceSetLimit)
MPTUNE_CALL(DeviceGetLimit)
MPTUNE_CALL(DeviceGetAttribute)
MPTUNE_CALL(DeviceCanAccessPeer)
MPTUNE_CALL(DeviceEnablePeerAccess)
MPTUNE_CALL(DeviceGetStreamPriorityRange)
MPTUNE_CALL(SetDevice)
MPTUNE_CALL(SetDeviceFlags)
MPTUNE_CALL(GetDevice)
MPTUNE_CALL(GetDeviceCount)
MPTUNE_CALL(GetDeviceProperties)
MPTUNE_CALL(ChooseDevice)
MPTUNE_CALL(DriverGetVersion)
MPTUNE_CALL(RuntimeGetVersion)
MPTUNE_CALL(GetLastError)
MPTUNE_CALL(PeekAtLastError)
MPTUNE_CALL(EventCreate)
MPTUNE_CALL(EventCreateWithFlags)
MPTUNE_CALL(EventDestroy)
MPTUNE_CALL(EventRecord)
MPTUNE_CALL(EventSynchronize)
MPTUNE_CALL(EventElapsedTime)
MPTUNE_CALL(EventQuery)
MPTUNE_CALL(StreamCreate)
MPTUNE_CALL(StreamCreateWithFlags)
MPTUNE_CALL(StreamCreateWithPriority)
MPTUNE_CALL(StreamDestroy)
MPTUNE_CALL(StreamSynchronize)
MPTUNE_CALL(StreamWaitEvent)
MPTUNE_CALL(StreamQuery)
MPTUNE_CALL(StreamAttachMemAsync)
MPTUNE_CALL(FuncSetAttribute)
MPTUNE_CALL(FuncSetCacheConfig)
MPTUNE_CALL(FuncSetSharedMemConfig)
MPTUNE_CALL(FuncGetAttributes)
MPTUNE_CALL(OccupancyMaxPotentialBlockSize)
MPTUNE_CALL(OccupancyMaxActiveBlocksPerMultiprocessor)
MPTUNE_CALL(LaunchKernel)
MPTUNE_CALL(LaunchCooperativeKernel)
MPTUNE_CALL(ProfilerStart)
MPTUNE_CALL(ProfilerStop)
#undef MPTUNE_CALL
// Arrays whose length is not known before the program runs are no template arguments.
cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind);
cudaError_t hipMemcpy(void*, const void*, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t stream = 0);
cudaError_t hipMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t stream = 0);
extern "C" cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t stream = 0);
#undef __HD__

// What loops of C++ that are cut out of their functions have beside a launch.
namespace mptune_layer {
struct host_array {
  host_array(const volatile void* start, size_t bytes);
};
}  // namespace mptune_layer
