#ifndef FOVEA_KERNELS_CUDA_LIBRARY_NCCL_API_H
#define FOVEA_KERNELS_CUDA_LIBRARY_NCCL_API_H

/* The few functions of NCCL that peer links use. The toolkit does not come with NCCL's header, so
 * they are declared here as in version 2.18, which all later ones accept. */
#include <cuda_runtime.h>
#include <limits.h>
#include <stddef.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum { ncclSuccess = 0, ncclRemoteError = 6, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclUint8 = 1 } ncclDataType_t;

typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare;
} ncclConfig_t;

#define FV_NCCL_CONFIG                                                                             \
    {                                                                                              \
        .size = sizeof(ncclConfig_t), .magic = 0xcafebeef, .version = 21801, .blocking = 0,        \
        .cgaClusterSize = INT_MIN, .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .netName = NULL,        \
        .splitShare = INT_MIN                                                                      \
    }

typedef struct fv_nccl {
    ncclResult_t (*unique_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int n_rank, ncclUniqueId, int rank, ncclConfig_t *);
    ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
    ncclResult_t (*recv)(void *, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
    const char *(*words)(ncclResult_t);
    const char *(*last_error)(ncclComm_t);
} fv_nccl;

/* Loads NCCL once, for good (library/nccl.c). Any thread. FV_EUNSUPPORTED: it is missing or too old. */
fv_status fv_nccl_load(const fv_nccl **out);

#ifdef __cplusplus
}
#endif
#endif
