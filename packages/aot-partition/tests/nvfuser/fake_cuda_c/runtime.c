/* A CUDA runtime without a device, for tests: put in front of libcudart by LD_PRELOAD.
 *
 * There is one imaginary device, of the compute capability that AOT_FAKE_SM says (80, 90 or 100). Its memory is the
 * host's, so that allocations and copies are real; launches do nothing, so that values on it mean nothing. What nvFuser
 * does before a launch is all real: it segments, schedules, generates code, and compiles it with NVRTC.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef cudaGetDeviceProperties

typedef struct {
  int major, minor, processors, shared_per_block_optin, shared_per_processor, blocks_per_processor, l2_bytes;
  const char *name;
} Model;

/* From the CUDA C++ programming guide's table of compute capabilities; sizes in bytes. */
static const Model MODELS[] = {
    {8, 0, 108, 166912, 167936, 32, 40 << 20, "imaginary sm_80"},
    {9, 0, 132, 232448, 233472, 32, 50 << 20, "imaginary sm_90"},
    {10, 0, 148, 232448, 233472, 32, 126 << 20, "imaginary sm_100"},
};

static const Model *model(void) {
  const char *said = getenv("AOT_FAKE_SM");
  int wanted = said ? atoi(said) : 90;
  for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
    if (MODELS[i].major * 10 + MODELS[i].minor == wanted) return &MODELS[i];
  fprintf(stderr, "AOT_FAKE_SM must be 80, 90 or 100, got %s\n", said);
  abort();
}

/* --- devices ------------------------------------------------------------------------------------------------- */

static void describe(struct cudaDeviceProp *p) {
  const Model *m = model();
  memset(p, 0, sizeof *p);
  strcpy(p->name, m->name);
  p->major = m->major;
  p->minor = m->minor;
  p->multiProcessorCount = m->processors;
  p->totalGlobalMem = 64ull << 30;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = m->shared_per_block_optin;
  p->sharedMemPerMultiprocessor = m->shared_per_processor;
  p->reservedSharedMemPerBlock = 1 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 64 << 10;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = m->blocks_per_processor;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->l2CacheSize = m->l2_bytes;
  p->persistingL2CacheMaxSize = m->l2_bytes / 2;
  p->memoryBusWidth = 5120;
  p->clockRate = 1980000;
  p->memoryClockRate = 2619000;
  p->cooperativeLaunch = 1;
  p->unifiedAddressing = 1;
  p->concurrentKernels = 1;
  p->asyncEngineCount = 3;
}

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device) { (void)device; describe(p); return 0; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) { (void)device; describe(p); return 0; }

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp p;
  (void)device;
  describe(&p);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = p.reservedSharedMemPerBlock; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerMultiprocessor; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    default: *value = 0;
  }
  return 0;
}

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return 0; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return 0; }
cudaError_t cudaSetDevice(int device) { (void)device; return 0; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 12080; return 0; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 12080; return 0; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }
cudaError_t cudaDeviceSynchronize(void) { return 0; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { (void)one; (void)other; *can = 0; return 0; }
cudaError_t cudaGetLastError(void) { return 0; }
cudaError_t cudaPeekAtLastError(void) { return 0; }

/* --- memory: the host's -------------------------------------------------------------------------------------- */

static const size_t PAGE = 2 << 20;

cudaError_t cudaMalloc(void **memory, size_t size) {
  size_t rounded = (size + PAGE - 1) / PAGE * PAGE;
  *memory = aligned_alloc(PAGE, rounded);
  memset(*memory, 0, rounded);
  return 0;
}
cudaError_t cudaFree(void *memory) { free(memory); return 0; }
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) { *available = 32ull << 30; *total = 64ull << 30; return 0; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  (void)kind;
  memcpy(to, from, size);
  return 0;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return 0; }
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
  (void)stream;
  return cudaMemset(to, value, size);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory) {
  memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeDevice;
  attributes->devicePointer = (void *)memory;
  return 0;
}

/* --- streams, events and launches: nothing ever waits -------------------------------------------------------- */

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { (void)stream; return 0; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { (void)stream; return 0; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  (void)stream; (void)event; (void)flags;
  return 0;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  (void)flags; (void)priority;
  *stream = (cudaStream_t)0x100;
  return 0;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  (void)stream;
  *status = cudaStreamCaptureStatusNone;
  return 0;
}
cudaError_t cudaStreamGetCaptureInfo_v2(
    cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **nodes, size_t *count) {
  (void)stream; (void)id; (void)graph; (void)nodes; (void)count;
  *status = cudaStreamCaptureStatusNone;
  return 0;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { (void)mode; return 0; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { (void)flags; *event = (cudaEvent_t)0x200; return 0; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { (void)event; (void)stream; return 0; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  (void)event; (void)stream; (void)flags;
  return 0;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { (void)event; return 0; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { (void)event; return 0; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t one, cudaEvent_t other) {
  (void)one; (void)other;
  *milliseconds = 1;
  return 0;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { (void)event; return 0; }
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t s) {
  (void)function; (void)grid; (void)block; (void)arguments; (void)shared; (void)s;
  return 0;
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
  (void)function; (void)attribute; (void)value;
  return 0;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  (void)function;
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->ptxVersion = attributes->binaryVersion = model()->major * 10 + model()->minor;
  return 0;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  (void)config; (void)function; (void)arguments;
  return 0;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int threads, size_t shared, unsigned flags) {
  (void)function; (void)threads; (void)shared; (void)flags;
  *blocks = 2;
  return 0;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
  (void)function; (void)threads; (void)shared;
  *blocks = 2;
  return 0;
}

/* --- the driver, as nvFuser asks for it ---------------------------------------------------------------------- */

#include "driver.h"

cudaError_t cudaGetDriverEntryPoint(
    const char *name, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  (void)flags;
  if (result) *result = cudaDriverEntryPointSuccess;
  *function = fake_driver_entry(name);
  return 0;
}
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result) {
  (void)version;
  return cudaGetDriverEntryPoint(name, function, flags, result);
}
