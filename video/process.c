/* Starts the helper, reads its records until a deadline, and reports how it ended if it
 * failed.
 *
 * posix_spawn instead of fork, because a gateway has threads. The helper gets the file, a socket and
 * /dev/null, and an empty environment; other descriptors are closed in it. */
#include "video/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "video/reader.h"

static fv_status helper_path(const char *given, char out[PATH_MAX]) {
    static const char name[] = "fovea-video";
    if (given) {
        snprintf(out, PATH_MAX, "%s", given);
    } else {
        ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
        if (n < 0) return FV_FAIL(FV_EIO, "cannot read /proc/self/exe: %s", strerror(errno));
        out[n] = 0;
        char *base = strrchr(out, '/') + 1;
        if ((size_t)(out + PATH_MAX - base) < sizeof name)
            return FV_FAIL(FV_EIO, "the path of this program is too long");
        memcpy(base, name, sizeof name);
    }
    if (access(out, X_OK) == 0) return FV_OK;
    FV_FAIL(
        FV_EUNSUPPORTED,
        "videos, and images that are not JPEG, PNG or WebP, cannot be decoded here: the program "
        "fovea-video is missing. Build the CMake target fovea-video, or install it, beside this "
        "program");
    return fv_fail_origin(FV_EUNSUPPORTED, FV_ORIGIN_WORKER); /* no fault of the file's */
}

fv_status fv_video_check_helper(void) {
    char path[PATH_MAX];
    return helper_path(NULL, path);
}

static fv_status spawn(const char *path, int file, int socket, pid_t *pid) {
    char *argv[] = {(char *)(uintptr_t) "fovea-video", NULL}, *envp[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    if ((file < 3 && file != STDIN_FILENO) || socket < 3) /* dup2 would overwrite one of them */
        return FV_FAIL(FV_EIO, "cannot start a decoder where standard streams are closed");
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

/* Receives until everything is complete; *closed: the helper closed its end before. */
static fv_status receive(int socket, double deadline_s, const fv_video_request *request,
                         fv_video_reader *r, bool *closed) {
    while (!*closed && !fv_video_reader_done(r)) {
        double left_s = deadline_s - fv_clock_s();
        struct pollfd p = {.fd = socket, .events = POLLIN};
        int ready = left_s > 0 ? poll(&p, 1, (int)ceil(left_s * 1e3)) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0)
            return FV_FAIL(FV_EINVAL, "the %s took more than %d s to decode",
                           fv_video_request_noun(request), request->limits.wall_s);
        size_t n;
        void *at = fv_video_reader_room(r, &n);
        ssize_t got = recv(socket, at, n, 0);
        if (got < 0 && errno == EINTR) continue;
        *closed = got <= 0;
        if (!*closed) FV_TRY(fv_video_reader_took(r, (size_t)got));
    }
    return FV_OK;
}

/* The failure of a helper that ended before everything was complete. */
static fv_status ended(int status, const fv_video_request *request) {
    const char *what = fv_video_request_noun(request);
    if (!WIFSIGNALED(status))
        return FV_FAIL(FV_EIO, "the %s decoder ended with status %d", what, WEXITSTATUS(status));
    switch (WTERMSIG(status)) {
    case SIGXCPU:
        return FV_FAIL(FV_EINVAL, "the %s took more than %d s of processor time to decode", what,
                       request->limits.cpu_s);
    case SIGSYS:
        return FV_FAIL(FV_EDATA, "the %s made its decoder do what it may not; it was ended", what);
    default:
        return FV_FAIL(FV_EDATA, "the %s crashed its decoder (signal %d)", what, WTERMSIG(status));
    }
}

static fv_status run(const char *path, int file, const fv_video_request *request,
                     fv_video_reader *r) {
    const double deadline_s = fv_clock_s() + request->limits.wall_s;
    int pair[2], status = 0;
    bool closed = false;
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return FV_FAIL(FV_EIO, "cannot open a socket: %s", strerror(errno));
    /* the request fits the socket's buffer, so it can be sent before the helper runs */
    fv_status st = send(pair[0], request, sizeof *request, MSG_NOSIGNAL) == sizeof *request
                       ? spawn(path, file, pair[1], &pid)
                       : FV_FAIL(FV_EIO, "cannot write to a socket: %s", strerror(errno));
    close(pair[1]);
    if (st == FV_OK) {
        st = receive(pair[0], deadline_s, request, r, &closed);
        kill(pid, SIGKILL); /* no effect if the helper has ended */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        if (st == FV_OK && closed) st = ended(status, request);
    }
    close(pair[0]);
    return st;
}

static fv_status check_file(int fd, const fv_video_request *r) {
    const char *what = fv_video_request_noun(r);
    struct stat s;
    if (fstat(fd, &s) != 0)
        return FV_FAIL(FV_EIO, "cannot look at the %s: %s", what, strerror(errno));
    if (!S_ISREG(s.st_mode)) return FV_FAIL(FV_EINVAL, "the %s is not a regular file", what);
    if (s.st_size == 0) return FV_FAIL(FV_EINVAL, "the %s is empty", what);
    if (s.st_size > r->limits.bytes_max)
        return FV_FAIL(FV_EINVAL, "the %s has %lld bytes: the most are %lld", what,
                       (long long)s.st_size, (long long)r->limits.bytes_max);
    if (lseek(fd, 0, SEEK_SET) != 0)
        return FV_FAIL(FV_EIO, "cannot read the %s: %s", what, strerror(errno));
    return FV_OK;
}

fv_status fv_helper_run(int fd, const char *helper, const fv_video_request *request,
                        fv_video *out) {
    char path[PATH_MAX];
    fv_video_reader r;
    FV_TRY(check_file(fd, request));
    FV_TRY(helper_path(helper, path));
    fv_video_reader_init(&r, &request->limits);
    fv_status st = run(path, fd, request, &r);
    if (st == FV_OK) *out = fv_video_reader_take(&r);
    fv_video_reader_fini(&r);
    return st;
}
