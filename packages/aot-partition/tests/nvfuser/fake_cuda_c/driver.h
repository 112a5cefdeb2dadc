/* The few functions of the CUDA driver that are asked for something; all others succeed and do nothing. */
#include <string.h>

static int fake_error_text(int error, const char **text) { (void)error; *text = "an error of the imaginary driver"; return 0; }
static int fake_function_attribute(int *value, int attribute, void *function) {
  (void)attribute; (void)function;
  *value = 0;
  return 0;
}
static int fake_occupancy(int *blocks, void *function, int threads, size_t shared) {
  (void)function; (void)threads; (void)shared;
  *blocks = 2;
  return 0;
}
static int fake_load(void **module) { *module = (void *)0x1000; return 0; }
static int fake_get_function(void **function) { *function = (void *)0x2000; return 0; }
static int fake_get_device(int *device) { *device = 0; return 0; }
static int fake_get_context(void **context) { *context = (void *)0x10; return 0; }
static int fake_context_state(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 1;
  return 0;
}
static int fake_version(int *version) { *version = 12080; return 0; }
static int fake_count(int *count) { *count = 1; return 0; }
static int fake_success(void) { return 0; }

static const struct { const char *name; void *function; } FAKE_DRIVER[] = {
    {"cuGetErrorName", fake_error_text},
    {"cuGetErrorString", fake_error_text},
    {"cuFuncGetAttribute", fake_function_attribute},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", fake_occupancy},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", fake_occupancy},
    {"cuModuleLoadData", fake_load},
    {"cuModuleLoadDataEx", fake_load},
    {"cuModuleGetFunction", fake_get_function},
    {"cuDeviceGet", fake_get_device},
    {"cuDeviceGetCount", fake_count},
    {"cuDriverGetVersion", fake_version},
    {"cuCtxGetCurrent", fake_get_context},
    {"cuDevicePrimaryCtxRetain", fake_get_context},
    {"cuDevicePrimaryCtxGetState", fake_context_state},
};

static void *fake_driver_entry(const char *name) {
  for (size_t i = 0; i < sizeof FAKE_DRIVER / sizeof *FAKE_DRIVER; i++)
    if (!strcmp(name, FAKE_DRIVER[i].name)) return FAKE_DRIVER[i].function;
  return fake_success;
}
