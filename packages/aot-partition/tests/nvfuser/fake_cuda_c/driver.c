/* A libcuda.so.1 without a driver, for tests: what links against it by name finds it here. */
#include <stddef.h>

#include "driver.h"

int cuGetErrorName(int error, const char **text) { return fake_error_text(error, text); }
int cuGetErrorString(int error, const char **text) { return fake_error_text(error, text); }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return fake_function_attribute(value, attribute, function); }
int cuModuleLoadData(void **module) { return fake_load(module); }
int cuModuleLoadDataEx(void **module) { return fake_load(module); }
int cuModuleGetFunction(void **function) { return fake_get_function(function); }
int cuDeviceGet(int *device) { return fake_get_device(device); }
int cuDeviceGetCount(int *count) { return fake_count(count); }
int cuDriverGetVersion(int *version) { return fake_version(version); }
int cuCtxGetCurrent(void **context) { return fake_get_context(context); }
int cuDevicePrimaryCtxRetain(void **context) { return fake_get_context(context); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return fake_context_state(device, flags, active); }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  return fake_occupancy(blocks, function, threads, shared);
}
void *fake_driver_function(const char *name) { return fake_driver_entry(name); }

#define SUCCEEDS(name) int name(void) { return fake_success(); }
SUCCEEDS(cuInit)
SUCCEEDS(cuCtxSetCurrent)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuTensorMapEncodeTiled)
SUCCEEDS(cuPointerGetAttribute)
SUCCEEDS(cuMemCreate)
SUCCEEDS(cuStreamWriteValue32)
