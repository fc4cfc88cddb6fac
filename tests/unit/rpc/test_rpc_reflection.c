/* rpc/reflection.c, rpc/descriptors.c */
#include <criterion/criterion.h>
#include <string.h>

#include "fovea_proto.h"
#include "rpc/descriptors.h"
#include "rpc/pb_wire.h"
#include "rpc/reflection.h"
#include "tests/support/net.h"

#define PATH "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define OLDER_PATH "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

TestSuite(rpc_reflection, .timeout = 240);

/* The name of the file that defines `symbol`, or "". */
static const char *file_of(const char *symbol) {
    static char name[128];
    fv_descriptor_file f = fv_descriptors_by_symbol(fovea_proto_set, fovea_proto_set_size, symbol);
    if (!f.bytes) return "";
    cr_assert_eq(f.bytes[0], 0x0a, "name is the first field");
    memcpy(name, f.bytes + 2, f.bytes[1]);
    name[f.bytes[1]] = '\0';
    return name;
}

Test(rpc_reflection, symbols_of_every_kind_are_found_in_their_file) {
    cr_assert_str_eq(file_of("fovea.inference.v1.Inference"), "fovea/inference/v1/inference.proto");
    cr_assert_str_eq(file_of("fovea.inference.v1.Inference.Generate"),
                     "fovea/inference/v1/inference.proto");
    cr_assert_str_eq(file_of("fovea.inference.v1.FinishReason"),
                     "fovea/inference/v1/inference.proto");
    cr_assert_str_eq(file_of("fovea.handoff.v1.Frame"), "fovea/handoff/v1/handoff.proto");
    cr_assert_str_eq(file_of("fovea.handoff.v1.Prefill.Prefill"), "fovea/handoff/v1/handoff.proto");
    cr_assert_str_eq(file_of("fovea.fleet.v1.Fleet"), "fovea/fleet/v1/fleet.proto");
    cr_assert_str_eq(file_of("grpc.health.v1.HealthCheckResponse.ServingStatus"),
                     "grpc/health/v1/health.proto");
    cr_assert_str_eq(file_of("grpc.reflection.v1.ServerReflection"),
                     "grpc/reflection/v1/reflection.proto");
    cr_assert_str_eq(file_of("grpc.reflection.v1alpha.ServerReflection"),
                     "grpc/reflection/v1alpha/reflection.proto");
}

/* protoc-gen-go refuses a file without a package path. */
Test(rpc_reflection, every_file_names_its_go_package) {
    static const struct {
        const char *symbol, *go;
    } files[] = {
        {"fovea.inference.v1.Inference", "fovea/inference/v1;inferencev1"},
        {"fovea.handoff.v1.Handoff", "fovea/handoff/v1;handoffv1"},
        {"fovea.fleet.v1.Fleet", "fovea/fleet/v1;fleetv1"},
        {"grpc.health.v1.Health", "google.golang.org/grpc/health/grpc_health_v1"},
        {"grpc.reflection.v1.ServerReflection",
         "google.golang.org/grpc/reflection/grpc_reflection_v1"},
        {"grpc.reflection.v1alpha.ServerReflection",
         "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        fv_descriptor_file f =
            fv_descriptors_by_symbol(fovea_proto_set, fovea_proto_set_size, files[i].symbol);
        cr_assert_not_null(f.bytes, "%s", files[i].symbol);
        cr_assert_not_null(memmem(f.bytes, f.n, files[i].go, strlen(files[i].go)), "%s",
                           files[i].symbol);
    }
}

Test(rpc_reflection, an_unknown_symbol_is_not_found) {
    static const char *const none[] = {"",
                                       ".",
                                       "fovea",
                                       "fovea.inference.v1",
                                       "fovea.inference.v1.",
                                       "fovea.inference.v1.Infer",
                                       "fovea.inference.v1.Inference.Gen",
                                       "fovea.inference.v1.Inference.Generate.x",
                                       "fovea.inference.v1.Inferences",
                                       "Inference"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        cr_assert_str_eq(file_of(none[i]), "", "%s", none[i]);
}

Test(rpc_reflection, files_are_found_by_name) {
    size_t n = fovea_proto_set_size;
    cr_assert_not_null(
        fv_descriptors_by_name(fovea_proto_set, n, "fovea/fleet/v1/fleet.proto").bytes);
    cr_assert_null(fv_descriptors_by_name(fovea_proto_set, n, "fleet").bytes);
}

Test(rpc_reflection, a_truncated_set_is_refused) {
    fv_reflection *refl;
    cr_assert_eq(fv_reflection_open(fovea_proto_set, fovea_proto_set_size - 1, NULL, 0, &refl),
                 FV_EDATA);
}

/* ---- over the wire ---------------------------------------------------------------------- */

static net r;
static fv_reflection *refl;
static net_heard h;

static void open_with_reflection(void) {
    static const fv_rpc_method methods[] = {{.path = "/a.B/C"}, {.path = "/a.B/D"}};
    static const fv_rpc_service listed = {methods, 2, NULL, NULL};
    cr_assert_eq(fv_reflection_open(fovea_proto_set, fovea_proto_set_size, &listed, 1, &refl),
                 FV_OK);
    r.services[r.n_service++] = fv_reflection_service(refl);
    net_open(&r);
}

static void close_with_reflection(void) {
    net_close(&r, 1000);
    fv_reflection_close(refl);
}

Test(rpc_reflection, answers_each_question_and_ends_with_the_client) {
    open_with_reflection();
    net_call(&r, &h, PATH, 10000);
    fv_rpc_call_send_buffer(h.call, net_bytes("\x3a\x00", 2)); /* list_services */
    net_wait_for(&r, &h.n, 1);
    cr_assert(h.bytes > 80 && h.bytes < 130, "a.B once, and itself by both names: %zu", h.bytes);
    fv_rpc_call_send_buffer(h.call, net_bytes("\x1a\x1a"
                                              "fovea/fleet/v1/fleet.proto",
                                              28));
    net_wait_for(&r, &h.n, 2);
    cr_assert(h.bytes > 500, "a whole file: %zu", h.bytes);
    fv_rpc_call_send_buffer(h.call, net_bytes("\x22\x01x", 3)); /* an unknown symbol */
    net_wait_for(&r, &h.n, 3);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    close_with_reflection();
}

Test(rpc_reflection, older_clients_find_it_under_its_older_name) {
    size_t bytes[2];
    for (int older = 0; older < 2; older++) {
        r = (net){0};
        h = (net_heard){0};
        open_with_reflection();
        net_ask_wait(&r, &h, older ? OLDER_PATH : PATH, "\x3a\x00", 2);
        cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
        cr_assert_eq(h.n, 1);
        bytes[older] = h.bytes;
        close_with_reflection();
    }
    cr_assert_eq(bytes[0], bytes[1]);
}

Test(rpc_reflection, a_request_that_asks_nothing_is_invalid) {
    open_with_reflection();
    net_ask_wait(&r, &h, PATH, "", 0);
    cr_assert_eq(h.end.status, FV_EINVAL);
    close_with_reflection();
}

Test(rpc_reflection, one_who_asks_without_reading_is_held_back) {
    open_with_reflection();
    h.pause_each = true;
    net_call(&r, &h, PATH, 10000);
    int asked = 0;
    for (int i = 0; i < 2000; i++, asked++) {
        if (!fv_rpc_call_writable(h.call)) net_sleep(&r, 5);
        fv_rpc_call_send_buffer(h.call, net_bytes("\x1a\x22"
                                                  "fovea/inference/v1/inference.proto",
                                                  36));
    }
    net_sleep(&r, 100);
    cr_assert_eq(h.n, 1);
    fv_rpc_call_close_send(h.call);
    while (!h.over) {
        if (h.call) fv_rpc_call_resume(h.call);
        uv_run(&r.loop, UV_RUN_ONCE);
    }
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.n, asked);
    close_with_reflection();
}
