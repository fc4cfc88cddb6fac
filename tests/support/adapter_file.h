#ifndef FOVEA_TESTS_SUPPORT_ADAPTER_FILE_H
#define FOVEA_TESTS_SUPPORT_ADAPTER_FILE_H

/* A LoRA adapter as PEFT saves it, with random numbers, for tests that serve one. */
#include <stdint.h>

/* Writes the adapter of a checkpoint's q_proj, v_proj and down_proj in every layer into `dir`, an empty directory.
 * Another seed gives another adapter, another rank as well. Aborts on failure. */
void adapter_write(const char *dir, const char *checkpoint, uint64_t seed);

#endif
