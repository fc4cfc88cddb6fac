/* Videos: limits, and files by path and by bytes. */
#include "video/video.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "video/process.h"

fv_video_limits fv_video_limits_default(void) {
    return (fv_video_limits){.bytes_max = INT64_C(512) << 20,
                             .side_max = 8192,
                             .pixels_max = 1 << 24,
                             .source_max = 1 << 18,
                             .seconds_max = 7200,
                             .frames_max = 768,
                             .taken_max = 1 << 26,
                             .memory_max = INT64_C(1) << 30,
                             .cpu_s = 60,
                             .wall_s = 120};
}

void fv_video_free(fv_video *v) {
    free(v->rgb);
    free(v->index);
    free(v->seconds);
    *v = (fv_video){0};
}

fv_status fv_video_decode(int fd, const fv_video_options *opt, fv_video *out) {
    const fv_video_request request = {.sampling = opt->sampling, .limits = opt->limits};
    FV_TRY(fv_video_sampling_check(&opt->sampling));
    return fv_helper_run(fd, opt->helper, &request, out);
}

fv_status fv_video_decode_file(const char *path, const fv_video_options *opt, fv_video *out) {
    /* O_NONBLOCK: opening a named pipe must not wait for its writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return FV_FAIL(errno == ENOENT ? FV_ENOTFOUND : FV_EIO, "%s: %s", path, strerror(errno));
    fv_status st = fv_video_decode(fd, opt, out);
    close(fd);
    return st == FV_OK ? st : fv_fail_prefix(st, "%s", path);
}

fv_status fv_video_memfd(const void *bytes, size_t n, int *out) {
    int fd = memfd_create("video", MFD_CLOEXEC);
    if (fd < 0) return FV_FAIL(FV_EIO, "cannot hold a file: %s", strerror(errno));
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, (const char *)bytes + at, n - at);
        if (k > 0) {
            at += (size_t)k;
        } else if (errno != EINTR) {
            fv_status st =
                FV_FAIL(FV_ENOMEM, "cannot hold a file of %zu bytes: %s", n, strerror(errno));
            close(fd);
            return st;
        }
    }
    *out = fd;
    return FV_OK;
}

fv_status fv_video_decode_bytes(const void *bytes, size_t n, const fv_video_options *opt,
                                fv_video *out) {
    int fd;
    FV_TRY(fv_video_memfd(bytes, n, &fd));
    fv_status st = fv_video_decode(fd, opt, out);
    close(fd);
    return st;
}
