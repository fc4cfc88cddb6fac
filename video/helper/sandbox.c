/* Limits the process, and its system calls to a list with seccomp: any other call kills the process, so an
 * exploit of a decoder gains nothing. Memory is never made executable. */
#include "video/helper/sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static fv_status refused(const char *what, int e) {
    return FV_FAIL(FV_EDEVICE, "cannot decode videos and images here: %s: %s", what, strerror(e));
}

static fv_status limit(int resource, int64_t value, int64_t hard) {
    const struct rlimit l = {(rlim_t)value, (rlim_t)hard};
    return setrlimit(resource, &l) == 0 ? FV_OK : refused("setrlimit", errno);
}

/* AddressSanitizer reserves terabytes of addresses. */
#ifdef __SANITIZE_ADDRESS__
static const bool limits_memory = false;
#else
static const bool limits_memory = true;
#endif

static fv_status set_limits(const fv_video_limits *l) {
    if (limits_memory) FV_TRY(limit(RLIMIT_AS, l->memory_max, l->memory_max));
    FV_TRY(limit(RLIMIT_CPU, l->cpu_s,
                 l->cpu_s + 1)); /* SIGXCPU tells the caller why; SIGKILL would not */
    FV_TRY(limit(RLIMIT_FSIZE, 0, 0));
    return limit(RLIMIT_CORE, 0, 0);
}

enum { ANY_FD = -1 };

static int allow_calls(scmp_filter_ctx c) {
    static const struct {
        int call, fd; /* fd: the only allowed first argument */
    } calls[] = {
        {SCMP_SYS(read), STDIN_FILENO},    {SCMP_SYS(lseek), STDIN_FILENO},
        {SCMP_SYS(write), STDOUT_FILENO},  {SCMP_SYS(brk), ANY_FD},
        {SCMP_SYS(munmap), ANY_FD},        {SCMP_SYS(mremap), ANY_FD},
        {SCMP_SYS(madvise), ANY_FD},       {SCMP_SYS(futex), ANY_FD},
        {SCMP_SYS(clock_gettime), ANY_FD}, {SCMP_SYS(rt_sigreturn), ANY_FD},
        {SCMP_SYS(exit_group), ANY_FD},    {SCMP_SYS(sysinfo), ANY_FD}, /* glibc's qsort */
#ifdef __SANITIZE_ADDRESS__
        {SCMP_SYS(sigaltstack), ANY_FD}, /* before functions that do not return */
#endif
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct scmp_arg_cmp fd = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)calls[i].fd, 0);
        int e = calls[i].fd == ANY_FD ? seccomp_rule_add(c, SCMP_ACT_ALLOW, calls[i].call, 0)
                                      : seccomp_rule_add(c, SCMP_ACT_ALLOW, calls[i].call, 1, fd);
        if (e) return e;
    }
    struct scmp_arg_cmp data = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    int e = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, data);
    return e ? e : seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, data);
}

static fv_status filter_calls(void) {
    scmp_filter_ctx c = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!c) return refused("seccomp", ENOMEM);
    int e = allow_calls(c);
    if (!e) e = seccomp_load(c); /* sets no_new_privs too */
    seccomp_release(c);
    return e ? refused("seccomp", -e) : FV_OK;
}

fv_status fv_sandbox_enter(const fv_video_limits *limits) {
    tzset(); /* reads its file now: converting a date would otherwise open it later */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    FV_TRY(set_limits(limits));
    return filter_calls();
}
