#ifndef FOVEA_TESTS_SUPPORT_CUDA_HOST_RUN_H
#define FOVEA_TESTS_SUPPORT_CUDA_HOST_RUN_H

/* Between the emulation's two halves: memory and streams (runtime.cpp) ask the other
 * (fibers.cpp) to run a kernel to its end. C++17. */
#include <cstddef>
#include <functional>

#include "cuda_runtime.h"

namespace fv_emu {

void run(const char *kernel, dim3 grid, dim3 block, size_t shared,
         const std::function<void()> &thread);

/* Functions of devices.cpp: return the thread's device; set the thread's last error to e, and return it;
 * return whether an illegal access was made; count a launch; tell whether a kernel that runs now computes (a
 * fault may make it hang or do nothing); return the bytes of dynamic shared memory that a kernel may be
 * launched with. */
int current_device();
cudaError_t told(cudaError_t e);
bool lost();
void count_launch(const char *kernel);
void count_call(const char *name); /* of any other function */
bool computes(const char *kernel);
size_t shared_of(const void *kernel, int device);

/* Issues to a stream a wait for another process: it is called until it returns true, and nothing
 * after it runs before. It does not block. */
void issue_when(cudaStream_t s, std::function<bool()> f);

} // namespace fv_emu
#endif
