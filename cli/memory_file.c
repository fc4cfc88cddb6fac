#include "cli/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fill(int fd, const char *text) {
    const ssize_t n = (ssize_t)strlen(text);
    return fchmod(fd, 0600) == 0 && write(fd, text, (size_t)n) == n &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0;
}

fv_status fv_memory_file(const char *name, const char *text, int least, int *fd) {
    const int any = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int high = any < 0 ? -1 : fcntl(any, F_DUPFD_CLOEXEC, least);
    const bool filled = high >= 0 && fill(high, text);
    const int why = errno;
    if (any >= 0) close(any);
    if (filled) {
        *fd = high;
        return FV_OK;
    }
    if (high >= 0) close(high);
    return FV_FAIL(FV_EIO, "cannot make a file in memory (%s): %s", name, strerror(why));
}
