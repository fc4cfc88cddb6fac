/* video/helper/sandbox: system calls that an exploited decoder would make end the process. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "video/helper/sandbox.h"

/* Calls a function in a sandboxed child; returns the signal that ended the child, or 0 if the call
 * returned. */
static int ends(void (*call)(void)) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        fv_video_limits limits = fv_video_limits_default();
        limits.cpu_s = 1;
        if (fv_sandbox_enter(&limits) != FV_OK) _exit(77);
        call();
        _exit(0);
    }
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    cr_assert(!WIFEXITED(status) || WEXITSTATUS(status) == 0, "%d", status);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void compute(void) {
    volatile char *p = malloc(1 << 20);
    if (p) p[1 << 19] = 1;
    free((void *)(uintptr_t)p);
}
static void compute_on(void) {
    for (volatile unsigned i = 0;; i++) continue;
}
static void open_file(void) { open("/etc/passwd", O_RDONLY); }
static void open_socket(void) { socket(AF_INET, SOCK_STREAM, 0); }
static void execute(void) { execl("/bin/true", "true", NULL); }
static void start_process(void) { fork(); }
static void kill_parent(void) { kill(getppid(), 0); }
static void read_other(void) {
    char c;
    if (read(STDOUT_FILENO, &c, 1) < 0) return;
}
static void write_other(void) {
    if (write(STDERR_FILENO, "", 0) < 0) return;
}
static void map_code(void) {
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void look_around(void) {
    char path[64];
    if (!getcwd(path, sizeof path)) return;
}

Test(sandbox, memory_may_be_used_and_nothing_else) {
    static void (*const calls[])(void) = {open_file,     open_socket, execute,
                                          start_process, kill_parent, read_other,
                                          write_other,   map_code,    look_around};
    cr_assert_eq(ends(compute), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        cr_assert_eq(ends(calls[i]), SIGSYS, "call %zu", i);
}

Test(sandbox, time_over_the_limit_ends_with_a_signal_of_its_own) {
    cr_assert_eq(ends(compute_on), SIGXCPU);
}
