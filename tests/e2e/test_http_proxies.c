/* gateway/http/http.h behind nginx and HAProxy: the server must see mutated requests as the proxies
 * pass them on, request by request. http_proxies.py has the requests and compares. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/http_rig.h"
#include "tests/support/tensor_file.h"
#include "tests/support/thorough.h"

static http_rig rig;
static FILE *seen;

static void on_request(void *user, fv_http_request *r) {
    size_t n;
    const char *name = fv_http_header(r, "X-Seq");
    (void)user;
    fv_http_body(r, &n);
    fprintf(seen, "%s | %s %zu %s\n", name ? name : "", fv_http_method(r), n, fv_http_path(r));
    fflush(seen);
    fv_http_add(r, "X-Seq", name ? name : "");
    fv_http_reply(r, 200, "text/plain", "seen\n", 5);
}

Test(http_proxies, mean_the_requests_that_are_seen, .timeout = 1800) {
    char dir[256], path[300], command[1200];
    int status;
    scratch_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/seen", dir);
    seen = fopen(path, "a");
    cr_assert(seen);
    http_rig_open(&rig, &(fv_http_options){.on_request = on_request}, false);
    snprintf(command, sizeof command,
             "exec /usr/bin/python3 -B " FOVEA_TEST_DATA
             "/e2e/http_proxies.py %s %s %d " FOVEA_TEST_DATA "/../build/proxies >%s/out 2>&1",
             fv_http_address(rig.server), path, thorough() ? 10000 : 900, dir);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, WNOHANG) == 0) http_rig_turn(&rig);
    http_rig_close(&rig);
    fclose(seen);
    snprintf(path, sizeof path, "%s/out", dir);
    FILE *f = fopen(path, "r");
    static char out[1 << 16];
    cr_assert(f);
    out[fread(out, 1, sizeof out - 1, f)] = '\0';
    fclose(f);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) cr_skip("%s", out);
    printf("%s", out);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", out);
}
