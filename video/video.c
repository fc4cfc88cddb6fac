/* The caller's side: starts the helper, reads its records until a deadline, and reports how it ended if it
 * failed.
 *
 * posix_spawn instead of fork, because a gateway has threads. The helper gets the file, a socket and
 * /dev/null, and an empty environment; other descriptors are closed in it. */
#include "video/video.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "video/reader.h"

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

static fv_status helper_path(const fv_video_options *opt, char out[PATH_MAX]) {
    static const char name[] = "fovea-video";
    if (opt->helper) {
        snprintf(out, PATH_MAX, "%s", opt->helper);
    } else {
        ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
        if (n < 0) return FV_FAIL(FV_EIO, "cannot read /proc/self/exe: %s", strerror(errno));
        out[n] = 0;
        char *base = strrchr(out, '/') + 1;
        if ((size_t)(out + PATH_MAX - base) < sizeof name)
            return FV_FAIL(FV_EIO, "the path of this program is too long");
        memcpy(base, name, sizeof name);
    }
    if (access(out, X_OK) != 0)
        return FV_FAIL(FV_ENOTFOUND, "%s is not there; it decodes videos, and belongs beside fovea",
                       out);
    return FV_OK;
}

static fv_status spawn(const char *path, int file, int socket, pid_t *pid) {
    char *argv[] = {(char *)(uintptr_t) "fovea-video", NULL}, *envp[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    if ((file < 3 && file != STDIN_FILENO) || socket < 3) /* dup2 would overwrite one of them */
        return FV_FAIL(FV_EIO, "cannot decode a video where standard streams are closed");
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    int e = posix_spawn_file_actions_adddup2(&files, file, STDIN_FILENO);
    if (!e) e = posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
    if (!e) e = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!e) e = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    if (!e) e = posix_spawnattr_setsigmask(&attr, &none);
    if (!e) e = posix_spawnattr_setsigdefault(&attr, &all);
    if (!e) e = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!e) e = posix_spawn(pid, path, &files, &attr, argv, envp);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return e ? FV_FAIL(FV_EIO, "cannot start %s: %s", path, strerror(e)) : FV_OK;
}

/* Receives until the video is complete; *closed: the helper closed its end before. */
static fv_status receive(int socket, double deadline_s, int32_t wall_s, fv_video_reader *r,
                         bool *closed) {
    while (!*closed && !fv_video_reader_done(r)) {
        double left_s = deadline_s - fv_clock_s();
        struct pollfd p = {.fd = socket, .events = POLLIN};
        int ready = left_s > 0 ? poll(&p, 1, (int)ceil(left_s * 1e3)) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0)
            return FV_FAIL(FV_EINVAL, "the video took more than %d s to decode", wall_s);
        size_t n;
        void *at = fv_video_reader_room(r, &n);
        ssize_t got = recv(socket, at, n, 0);
        if (got < 0 && errno == EINTR) continue;
        *closed = got <= 0;
        if (!*closed) FV_TRY(fv_video_reader_took(r, (size_t)got));
    }
    return FV_OK;
}

/* The failure of a helper that ended before the video was complete. */
static fv_status ended(int status, const fv_video_limits *l) {
    if (!WIFSIGNALED(status))
        return FV_FAIL(FV_EIO, "the video decoder ended with status %d", WEXITSTATUS(status));
    switch (WTERMSIG(status)) {
    case SIGXCPU:
        return FV_FAIL(FV_EINVAL, "the video took more than %d s of processor time to decode",
                       l->cpu_s);
    case SIGSYS:
        return FV_FAIL(FV_EDATA, "the video made its decoder do what it may not; it was ended");
    default:
        return FV_FAIL(FV_EDATA, "the video crashed its decoder (signal %d)", WTERMSIG(status));
    }
}

static fv_status run(const char *path, int file, const fv_video_options *opt, fv_video_reader *r) {
    const fv_video_request request = {.sampling = opt->sampling, .limits = opt->limits};
    const double deadline_s = fv_clock_s() + opt->limits.wall_s;
    int pair[2], status = 0;
    bool closed = false;
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return FV_FAIL(FV_EIO, "cannot open a socket: %s", strerror(errno));
    /* the request fits the socket's buffer, so it can be sent before the helper runs */
    fv_status st = send(pair[0], &request, sizeof request, MSG_NOSIGNAL) == sizeof request
                       ? spawn(path, file, pair[1], &pid)
                       : FV_FAIL(FV_EIO, "cannot write to a socket: %s", strerror(errno));
    close(pair[1]);
    if (st == FV_OK) {
        st = receive(pair[0], deadline_s, opt->limits.wall_s, r, &closed);
        kill(pid, SIGKILL); /* no effect if the helper has ended */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        if (st == FV_OK && closed) st = ended(status, &opt->limits);
    }
    close(pair[0]);
    return st;
}

static fv_status check_file(int fd, const fv_video_limits *l) {
    struct stat s;
    if (fstat(fd, &s) != 0) return FV_FAIL(FV_EIO, "cannot look at the video: %s", strerror(errno));
    if (!S_ISREG(s.st_mode)) return FV_FAIL(FV_EINVAL, "the video is not a regular file");
    if (s.st_size == 0) return FV_FAIL(FV_EINVAL, "the video is empty");
    if (s.st_size > l->bytes_max)
        return FV_FAIL(FV_EINVAL, "the video has %lld bytes: the most are %lld",
                       (long long)s.st_size, (long long)l->bytes_max);
    if (lseek(fd, 0, SEEK_SET) != 0)
        return FV_FAIL(FV_EIO, "cannot read the video: %s", strerror(errno));
    return FV_OK;
}

fv_status fv_video_decode(int fd, const fv_video_options *opt, fv_video *out) {
    char path[PATH_MAX];
    fv_video_reader r;
    FV_TRY(fv_video_sampling_check(&opt->sampling));
    FV_TRY(check_file(fd, &opt->limits));
    FV_TRY(helper_path(opt, path));
    fv_video_reader_init(&r, &opt->limits);
    fv_status st = run(path, fd, opt, &r);
    if (st == FV_OK) *out = fv_video_reader_take(&r);
    fv_video_reader_fini(&r);
    return st;
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

fv_status fv_video_hold(const void *bytes, size_t n, int *out) {
    int fd = memfd_create("video", MFD_CLOEXEC);
    if (fd < 0) return FV_FAIL(FV_EIO, "cannot hold a video: %s", strerror(errno));
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, (const char *)bytes + at, n - at);
        if (k > 0) {
            at += (size_t)k;
        } else if (errno != EINTR) {
            fv_status st =
                FV_FAIL(FV_ENOMEM, "cannot hold a video of %zu bytes: %s", n, strerror(errno));
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
    FV_TRY(fv_video_hold(bytes, n, &fd));
    fv_status st = fv_video_decode(fd, opt, out);
    close(fd);
    return st;
}
