// The runtime's functions. They do their work at once: what a program queues has happened when the call returns.
#pragma once

#include "mptune_layer/types.hpp"

#if defined(__cplusplus)
#include "mptune_layer/recorded.hpp"
namespace mptune_layer {
// The first number of a vector, or the number.
template <class T>
auto first_of(T vector, int) -> decltype(vector.x) {
    return vector.x;
}
template <class T>
T first_of(T number, long) {
    return number;
}
template <class T>
auto first_of(T of) {
    return first_of(of, 0);
}
}  // namespace mptune_layer
#endif

#define CUDART_CB

#if defined(__cplusplus)
extern "C" {
#endif

cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaMallocHost(void** pointer, size_t bytes);
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags);
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags MPTUNE_DEFAULT(cudaMemAttachGlobal));
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height);
cudaError_t cudaMalloc3D(struct cudaPitchedPtr* pitched, struct cudaExtent extent);
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes);
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags);
cudaError_t cudaHostUnregister(void* pointer);
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags);
cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
cudaError_t cudaMemPrefetchAsync(const void* p, size_t bytes, int device, cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, enum cudaMemoryAdvise advice, int device);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* pointer);

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms* copy);
cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms* copy, cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMemset(void* pointer, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMallocArray(cudaArray_t* array, const struct cudaChannelFormatDesc* channels, size_t width,
                            size_t height MPTUNE_DEFAULT(0), unsigned int flags MPTUNE_DEFAULT(0));
cudaError_t cudaMalloc3DArray(cudaArray_t* array, const struct cudaChannelFormatDesc* channels, struct cudaExtent extent,
                              unsigned int flags MPTUNE_DEFAULT(0));
cudaError_t cudaFreeArray(cudaArray_t array);
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t from_pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t from_pitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaMemcpy2DFromArray(void* to, size_t to_pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, enum cudaMemcpyKind kind);
cudaError_t cudaCreateTextureObject(cudaTextureObject_t* texture, const struct cudaResourceDesc* resource,
                                    const struct cudaTextureDesc* description, const struct cudaResourceViewDesc* view);
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture);
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* surface, const struct cudaResourceDesc* resource);
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surface);
cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags MPTUNE_DEFAULT(0));
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t called, void* data, unsigned int flags);
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* p, size_t bytes MPTUNE_DEFAULT(0),
                                     unsigned int flags MPTUNE_DEFAULT(cudaMemAttachSingle));
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t called, void* data);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long flags MPTUNE_DEFAULT(0));
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t ready, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream MPTUNE_DEFAULT(0));
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop);

cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaThreadSynchronize(void);
cudaError_t cudaThreadExit(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaChooseDevice(int* device, const struct cudaDeviceProp* wanted);
cudaError_t cudaSetDeviceFlags(unsigned int flags);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value);
cudaError_t cudaDeviceGetLimit(size_t* value, enum cudaLimit limit);
cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config);
cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

#if defined(__cplusplus)
}

template <class T>
inline cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    return ::cudaMalloc((void**)pointer, bytes);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, cudaGraphNode_t*, char*, size_t) {
    return ::cudaGraphInstantiate(ready, graph, 0);
}
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned int, cudaStream_t = 0) {
    return cudaSuccess;
}
inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
template <class T>
inline cudaChannelFormatDesc cudaCreateChannelDesc() {
    using number = decltype(mptune_layer::first_of(T()));
    const int bits = 8 * sizeof(number), count = sizeof(T) / sizeof(number);
    const auto kind = number(0.5) != number(0) ? cudaChannelFormatKindFloat
                      : number(-1) < number(0) ? cudaChannelFormatKindSigned
                                               : cudaChannelFormatKindUnsigned;
    return {bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 3 ? bits : 0, kind};
}
template <class T>
inline cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned int flags = 0) {
    return ::cudaHostAlloc((void**)pointer, bytes, flags);
}
template <class T>
inline cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned int flags) {
    return ::cudaHostAlloc((void**)pointer, bytes, flags);
}
template <class T>
inline cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned int flags = cudaMemAttachGlobal) {
    return ::cudaMallocManaged((void**)pointer, bytes, flags);
}
template <class T>
inline cudaError_t cudaMallocPitch(T** pointer, size_t* pitch, size_t width, size_t height) {
    return ::cudaMallocPitch((void**)pointer, pitch, width, height);
}
template <class T>
inline cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t stream) {
    return ::cudaMallocAsync((void**)pointer, bytes, stream);
}
template <class T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned int flags) {
    return ::cudaHostGetDevicePointer((void**)device, host, flags);
}

// What a kernel needs of a multiprocessor is nothing a processor has; the answers are plausible ones of a GPU.
template <class K>
inline cudaError_t cudaFuncSetCacheConfig(K, cudaFuncCache) {
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaFuncSetSharedMemConfig(K, cudaSharedMemConfig) {
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaFuncSetAttribute(K, cudaFuncAttribute, int) {
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, K) {
    *attributes = cudaFuncAttributes{0, 0, 0, 1024, 32, 80, 80, 0, 49152, 0};
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, K, int block, size_t) {
    if (block < 1 || block > 1024) return cudaErrorInvalidValue;
    const int fit = 2048 / block;
    *blocks = fit < 32 ? fit : 32;
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, K kernel, int block,
                                                                          size_t shared, unsigned int) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, block, shared);
}
template <class K>
inline cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, K, int blocks, int) {
    *bytes = 49152 / (blocks > 0 ? blocks : 1);
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, K, size_t = 0, int limit = 0) {
    int count = 1;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
    *block = limit > 0 && limit < 256 ? limit : 256;
    *grid = count * (2048 / *block);
    return cudaSuccess;
}
template <class K, class F>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, K kernel, F, int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, 0, limit);
}
#endif
