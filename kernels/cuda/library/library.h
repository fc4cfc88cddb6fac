#ifndef FOVEA_KERNELS_CUDA_LIBRARY_LIBRARY_H
#define FOVEA_KERNELS_CUDA_LIBRARY_LIBRARY_H

/* Loads the first of these libraries (names end with NULL) on the loader's path or in the toolkit's
 * folder, for good. NULL: none could be loaded, dlerror says why. The folder of a Python wheel must be
 * on LD_LIBRARY_PATH, which `./dev gpu` takes care of. */
void *fv_cuda_library(const char *const *names);

#endif
