/* Our server and Debian's Python client: tests/support/rpc_smoke.py has the cases. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "tests/support/net.h"

static net r;
static int64_t exit_code = -1;
static bool exited;

static void on_exit_of_python(uv_process_t *p, int64_t code, int signal) {
    exit_code = signal ? 128 + signal : code;
    exited = true;
    uv_close((uv_handle_t *)p, NULL);
}

Test(rpc_python, a_python_client_gets_along_with_our_server, .timeout = 240) {
    char set[] = FOVEA_TEST_TMP "/fovea_proto.bin";
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    fv_health *health;
    fv_reflection *reflection;
    cr_assert_eq(fv_health_open(&health), FV_OK);
    fv_health_set(health, "", FV_HEALTH_SERVING);
    fv_health_set(health, "fovea.inference.v1.Inference", FV_HEALTH_NOT_SERVING);
    static const fv_rpc_method wire[] = {{.path = "/test.Wire/Echo"}};
    fv_rpc_service listed[] = {fv_health_service(health), {wire, 1, NULL, NULL}};
    cr_assert_eq(fv_reflection_open(fovea_proto_set, fovea_proto_set_size, listed, 2, &reflection),
                 FV_OK);
    r.services[r.n_service++] = fv_health_service(health);
    r.services[r.n_service++] = fv_reflection_service(reflection);
    net_open(&r);

    char python[] = "/usr/bin/python3", no_cache[] = "-B";
    char script[] = FOVEA_TEST_DATA "/support/rpc_smoke.py";
    char *args[] = {python, no_cache, script, r.target, set, NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = 2},
                                     {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t opt = {.file = python,
                                .args = args,
                                .exit_cb = on_exit_of_python,
                                .stdio = stdio,
                                .stdio_count = 3};
    uv_process_t process;
    int err = uv_spawn(&r.loop, &process, &opt);
    if (err != 0) {
        exit_code = 77;
        uv_close((uv_handle_t *)&process, NULL);
    }
    while (err == 0 && !exited) uv_run(&r.loop, UV_RUN_ONCE);
    net_close(&r, 1000);
    fv_health_close(health);
    fv_reflection_close(reflection);
    if (exit_code == 77) cr_skip("no /usr/bin/python3 with grpc (package python3-grpcio)");
    cr_assert_eq(exit_code, 0, "python says %d", (int)exit_code);
}
