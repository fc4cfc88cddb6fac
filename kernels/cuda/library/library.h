#ifndef FOVEA_KERNELS_CUDA_LIBRARY_LIBRARY_H
#define FOVEA_KERNELS_CUDA_LIBRARY_LIBRARY_H

/* The first of these libraries (a list that NULL ends) that is on the loader's path or in the
 * toolkit's folder; it stays loaded. NULL: none is, and dlerror says why. A wheel's folder has to
 * be on LD_LIBRARY_PATH, as `./dev gpu` puts it. */
void *fv_cuda_library(const char *const *names);

#endif
