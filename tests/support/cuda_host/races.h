#ifndef FOVEA_TESTS_SUPPORT_CUDA_HOST_RACES_H
#define FOVEA_TESTS_SUPPORT_CUDA_HOST_RACES_H

/* Races of kernels, in any order of threads: every access of a kernel's source is compared with those before it (races.cpp).
 * Only the plugin emulated_races is compiled with it; in the other one these do nothing. C++17. */
#include <cstddef>
#include <cstdint>

namespace fv_emu {

#ifdef FV_EMU_RACES
void races_launch(const char *kernel, const char *shared, size_t bytes);
void races_block(uint64_t number, unsigned n_thread);
/* All threads of the block, or lanes of `mask` of a warp, have met at a barrier. */
void races_block_barrier();
void races_warp_barrier(unsigned warp, unsigned mask);
void races_access(const void *p, size_t bytes, bool write);
#else
inline void races_launch(const char *, const char *, size_t) {}
inline void races_block(uint64_t, unsigned) {}
inline void races_block_barrier() {}
inline void races_warp_barrier(unsigned, unsigned) {}
inline void races_access(const void *, size_t, bool) {}
#endif

} // namespace fv_emu
#endif
