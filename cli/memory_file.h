#ifndef FOVEA_CLI_MEMORY_FILE_H
#define FOVEA_CLI_MEMORY_FILE_H

/* MEMORY FILE: a file without a name, for what children must read and nobody else may see. */
#include "common/status.h"

/* Makes a file that has `text` and cannot be changed, readable by this user. Gives *fd, which is
 * closed on exec, and is at least `least`, so that dup2 to a lower descriptor keeps a copy open in
 * a child. `name` is for /proc. */
fv_status fv_memory_file(const char *name, const char *text, int least, int *fd);

#endif
