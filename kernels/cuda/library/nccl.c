/* NCCL through dlopen: a machine without it loses pairs and nothing else. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "kernels/cuda/library/library.h"
#include "kernels/cuda/library/nccl_api.h"

static fv_nccl nccl;
static char missing[256]; /* ""; or why NCCL cannot be used */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    static const char *const files[] = {"libnccl.so.2", NULL};
    void *library = fv_cuda_library(files);
    const struct {
        const char *name;
        void *into; /* POSIX allows data pointers to hold functions */
    } names[] = {{"ncclGetUniqueId", &nccl.unique_id},
                 {"ncclCommInitRankConfig", &nccl.init},
                 {"ncclCommGetAsyncError", &nccl.async_error},
                 {"ncclCommAbort", &nccl.abort},
                 {"ncclSend", &nccl.send},
                 {"ncclRecv", &nccl.recv},
                 {"ncclGetErrorString", &nccl.words},
                 {"ncclGetLastError", &nccl.last_error}};
    if (!library) {
        snprintf(missing, sizeof missing,
                 "cannot load NCCL (%s): put its folder on LD_LIBRARY_PATH", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(library, names[i].name);
        if (!found)
            snprintf(missing, sizeof missing, "this NCCL has no %s: version 2.18 is needed",
                     names[i].name);
        *(void **)names[i].into = found;
    }
}

fv_status fv_nccl_load(const fv_nccl **out) {
    pthread_once(&once, load);
    if (missing[0]) return FV_FAIL(FV_EUNSUPPORTED, "%s", missing);
    *out = &nccl;
    return FV_OK;
}
