/* Files and standard output, with the errors that stdio hides. Any thread. */
#include "cli/client/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

static fv_status cannot_write(const char *what, int reason) {
    fv_status st = reason == ENOENT || reason == ENOTDIR ? FV_ENOTFOUND : FV_EIO;
    return FV_FAIL(st, "cannot write %s: %s", what, strerror(reason));
}

fv_status fv_output_check(const char *path) {
    struct stat sb;
    if (!path) return FV_OK;
    bool there = stat(path, &sb) == 0;
    if (there && S_ISFIFO(sb.st_mode)) return FV_OK; /* opening it would end it for the reader */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) return cannot_write(path, errno);
    close(fd);
    if (!there) unlink(path);
    return FV_OK;
}

void fv_output_json(const json_t *json) {
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
}

fv_status fv_output_json_file(const json_t *json, const char *path) {
    char *text = json_dumps(json, JSON_INDENT(2));
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for %s", path);
    fv_status st = fv_file_write(path, text, strlen(text));
    free(text);
    return st;
}

fv_status fv_output_flush(void) {
    errno = 0;
    bool lost = fflush(stdout) != 0;
    int reason = errno;
    if (!lost && !ferror(stdout)) return FV_OK;
    return cannot_write("standard output", reason ? reason : EIO);
}
