#ifndef FOVEA_SERVING_WORKER_ROOM_H
#define FOVEA_SERVING_WORKER_ROOM_H

/* ROOM: whether a worker's weights and its KV pool fit into the memory of its process, and what is left beside them. Any
 * thread. */
#include <stdbool.h>
#include <stddef.h>

/* Whether `weights` bytes and a KV pool of `kv` bytes (0: unlimited, which counts as nothing) fit into
 * `limit` bytes. If not, logs event=memory-short with what to change. */
bool fv_worker_check_memory(size_t weights, size_t kv, size_t limit);

/* Returns how many bytes a cache may take beside both: an eighth of `limit`, or half of what they leave if that is
 * less. */
size_t fv_worker_spare_memory(size_t weights, size_t kv, size_t limit);

#endif
