#ifndef FOVEA_KV_TIER_DISK_H
#define FOVEA_KV_TIER_DISK_H

/* DISK: segments of prompts as files in a folder. Each process that shares DIR takes the first DIR/N, N from 0, that no
 * other uses:
 *
 *   DIR/N/segments/TENANT/NAME       one sealed segment; both names are MACs in hexadecimal digits
 *   DIR/N/segments/TENANT/NAME.part  one that is being written
 *   DIR/N/lock                       locked while a process uses DIR/N
 *   DIR/N/key                        the folder's secret, made when there is none
 *
 * A file is written under another name and renamed, so one that has its name is whole, whenever the process or the
 * machine stopped; a file is not synced, because one that a power failure has damaged does not open and is a miss.
 * Everything in DIR/N/segments that is no segment is deleted at the start.
 *
 * The index is in memory and made from the names of files, in the order of their last use. When the folder is full, the
 * tenant that holds most gives up what it has not used for the longest time (kv/cache/segments.h). */
#include "kv/tier/tier.h"

enum { FV_KV_DISK_PROCESSES = 64 /* that share a DIR */ };

/* Opens a folder in `dir`, made if there is none, for at most bytes_max. `secret`: seals segments; NULL: DIR/N/key.
 * FV_EBUSY: FV_KV_DISK_PROCESSES others use `dir`. FV_EIO, FV_EINVAL: it cannot be used, and why. */
fv_status fv_kv_disk_open(const char *dir, uint64_t bytes_max, const fv_key *secret,
                          fv_kv_tier **out);

#endif
