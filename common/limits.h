#ifndef FOVEA_COMMON_LIMITS_H
#define FOVEA_COMMON_LIMITS_H

/* How much memory, how many cores and how many files this process may use: what the machine has, or less where a control
 * group of the process or of one of its ancestors says so (a container's limits). Any thread. */
#include <stddef.h>

/* Bytes, read when called. Never 0. */
size_t fv_memory_limit(void);

/* Cores, read when called: those that the scheduler may use for the calling thread, or the time that control
 * groups grant per time that passes, rounded up, if that is less. At least 1. */
int fv_core_limit(void);

/* Files, sockets included, that may be open at a time, read when called (RLIMIT_NOFILE). */
size_t fv_file_limit(void);

/* The limits of control groups alone, in bytes and in thousandths of a core; SIZE_MAX: none, or none that can
 * be read. `groups` is the text of /proc/self/cgroup, `mount` the directory where control groups are mounted
 * ("/sys/fs/cgroup"): version 2, version 1, or both side by side. */
size_t fv_memory_limit_of_groups(const char *groups, const char *mount);
size_t fv_core_limit_of_groups(const char *groups, const char *mount);

#endif
