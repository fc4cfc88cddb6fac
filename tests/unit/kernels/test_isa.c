/* AMX, whose registers the kernel may refuse: a container's filter of system calls, or its
 * configuration. Every test is a process of its own. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/backends/open.h"

/* Makes the kernel refuse arch_prctl(ARCH_REQ_XCOMP_PERM). */
static void refuse_amx(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023 };
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_REQ_XCOMP_PERM, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof steps / sizeof *steps, .filter = steps};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        cr_skip("this kernel has no filters of system calls: %s", strerror(errno));
}

static fv_status open_isa(const char *isa, fv_backend *be) {
    return fv_backend_open(be, "cpu", &(fv_backend_options){.isa = isa, .n_threads = 1});
}

static bool has_amx(void) {
    fv_backend be;
    if (open_isa("amx", &be) != FV_OK) return false;
    fv_backend_close(&be);
    return true;
}

Test(isa, refused_amx_falls_back_to_avx512bf16_with_one_log_line) {
    fv_backend be;
    char said[2000] = "";
    if (!has_amx()) cr_skip("no AMX here");
    refuse_amx();
    FILE *err = tmpfile();
    cr_assert_eq(dup2(fileno(err), STDERR_FILENO), STDERR_FILENO);
    cr_assert_eq(open_isa("auto", &be), FV_OK, "%s", fv_last_error());
    cr_expect_str_eq(be.isa, "avx512bf16");
    fv_backend_close(&be);
    rewind(err);
    cr_expect_gt(fread(said, 1, sizeof said - 1, err), 0);
    const char *line = strstr(said, "event=no-amx reason=\"the kernel refuses its registers: ");
    cr_assert(line && !strstr(line + 1, "event=no-amx"), "%s", said);
}

Test(isa, amx_that_was_asked_for_and_is_refused_is_an_error) {
    fv_backend be;
    if (!has_amx()) cr_skip("no AMX here");
    refuse_amx();
    cr_expect_eq(open_isa("amx", &be), FV_EUNSUPPORTED);
    cr_expect(strstr(fv_last_error(), "cannot run amx"), "%s", fv_last_error());
}
