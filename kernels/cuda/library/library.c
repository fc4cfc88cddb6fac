/* Opens NVIDIA's libraries with dlopen: on the loader's path, then in the toolkit's folder. */
#include "kernels/cuda/library/library.h"

#include <dlfcn.h>
#include <stdio.h>

void *fv_cuda_library(const char *const *names) {
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/",
                                          "/usr/local/cuda/targets/x86_64-linux/lib/"};
    void *library = NULL;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (size_t i = 0; names[i] && !library; i++) {
            char path[256];
            snprintf(path, sizeof path, "%s%s", folders[f], names[i]);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    return library;
}
