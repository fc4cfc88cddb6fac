#ifndef FOVEA_COMMON_LIMITS_H
#define FOVEA_COMMON_LIMITS_H

/* Memory, cores and files that this process may use: the machine's, or less if a control group of the
 * process or of an ancestor limits them (as in a container). Any thread. */
#include <stddef.h>

#include "common/status.h"

/* Bytes, read when called. Never 0. */
size_t fv_memory_limit(void);

/* Checks a size that was given as --OPTION: FV_EINVAL if it exceeds fv_memory_limit(). */
fv_status fv_memory_check(const char *option, size_t bytes);

/* Cores, read when called, at least 1: those that the scheduler may use for the calling thread, or
 * the CPU time that control groups grant per unit of time, rounded up, if that is less. */
int fv_core_limit(void);

/* Files that may be open at a time, sockets included, read when called (RLIMIT_NOFILE). */
size_t fv_file_limit(void);

/* Limits of control groups only, in bytes and in thousandths of a core; SIZE_MAX: no limit that can
 * be read. `groups` is the text of /proc/self/cgroup, `mount` the directory where control groups
 * are mounted ("/sys/fs/cgroup"): version 2, version 1, or both. */
size_t fv_memory_limit_of_groups(const char *groups, const char *mount);
size_t fv_core_limit_of_groups(const char *groups, const char *mount);

#endif
