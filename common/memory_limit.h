#ifndef FOVEA_COMMON_MEMORY_LIMIT_H
#define FOVEA_COMMON_MEMORY_LIMIT_H

/* How much memory this process may use: what the machine has, or less where a control group of the
 * process or of one of its ancestors says so (a container's limit). */
#include <stddef.h>

/* Bytes, read when called. Never 0. */
size_t fv_memory_limit(void);

/* The limit of control groups alone; SIZE_MAX: none, or none that can be read. `groups` is the text
 * of /proc/self/cgroup, `mount` the directory where control groups are mounted ("/sys/fs/cgroup"):
 * version 2, version 1, or both beside each other. */
size_t fv_memory_limit_of_groups(const char *groups, const char *mount);

#endif
