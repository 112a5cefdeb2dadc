/* The marks that CUDA's headers put on declarations mean nothing to a host compiler. The header that defines them comes
 * with nvcc, not with the wheel of the runtime; this stands for it. */
#ifndef AOT_FAKE_HOST_DEFINES_H
#define AOT_FAKE_HOST_DEFINES_H

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#define __host__
#define __device__
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline
#define __specialization_static
#define __location__(a)
#define DEVICE_BUILTIN

#endif
