/* The reflection service: answers each request with files or names, in order. Loop thread. */
#include "rpc/reflection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "rpc/descriptors.h"

typedef Grpc__Reflection__V1alpha__ServerReflectionRequest request;
typedef Grpc__Reflection__V1alpha__ServerReflectionResponse response;
typedef Grpc__Reflection__V1alpha__ServiceResponse service_response;

#define ASKED(what) GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWER(what) GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

struct fv_reflection {
    const void *set; /* [n_set], borrowed */
    size_t n_set;
    fv_arena arena;
    service_response *services; /* [n_service] */
    service_response **list;    /* pointers to them, as protobuf-c needs */
    size_t n_service;
};

/* ---- answers ---------------------------------------------------------------------------- */

static response response_to(request *q) {
    response m = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__INIT;
    m.valid_host = q->host;
    m.original_request = q;
    return m;
}

static fv_status answer_error(fv_rpc_call *c, request *q, const char *what, const char *name) {
    char text[512];
    snprintf(text, sizeof text, "unknown %s '%s'", what, name);
    Grpc__Reflection__V1alpha__ErrorResponse e = GRPC__REFLECTION__V1ALPHA__ERROR_RESPONSE__INIT;
    e.error_code = GRPC_STATUS_NOT_FOUND;
    e.error_message = text;
    response m = response_to(q);
    m.message_response_case = ANSWER(ERROR_RESPONSE);
    m.error_response = &e;
    return fv_rpc_call_send(c, &m.base);
}

static fv_status answer_file(fv_rpc_call *c, request *q, fv_descriptor_file file, const char *what,
                             const char *name) {
    if (!file.bytes) return answer_error(c, q, what, name);
    Grpc__Reflection__V1alpha__FileDescriptorResponse f =
        GRPC__REFLECTION__V1ALPHA__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData bytes = {file.n, (uint8_t *)(uintptr_t)file.bytes};
    f.file_descriptor_proto = &bytes;
    f.n_file_descriptor_proto = 1;
    response m = response_to(q);
    m.message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
    m.file_descriptor_response = &f;
    return fv_rpc_call_send(c, &m.base);
}

static fv_status answer_services(fv_rpc_call *c, request *q, const fv_reflection *r) {
    Grpc__Reflection__V1alpha__ListServiceResponse l =
        GRPC__REFLECTION__V1ALPHA__LIST_SERVICE_RESPONSE__INIT;
    l.service = r->list;
    l.n_service = r->n_service;
    response m = response_to(q);
    m.message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
    m.list_services_response = &l;
    return fv_rpc_call_send(c, &m.base);
}

static fv_status answer(fv_rpc_call *c, const fv_reflection *r, request *q) {
    switch (q->message_request_case) {
    case ASKED(FILE_BY_FILENAME):
        return answer_file(c, q, fv_descriptors_by_name(r->set, r->n_set, q->file_by_filename),
                           "file", q->file_by_filename);
    case ASKED(FILE_CONTAINING_SYMBOL):
        return answer_file(c, q,
                           fv_descriptors_by_symbol(r->set, r->n_set, q->file_containing_symbol),
                           "symbol", q->file_containing_symbol);
    case ASKED(LIST_SERVICES): return answer_services(c, q, r);
    case ASKED(FILE_CONTAINING_EXTENSION):
        return answer_error(c, q, "extension of", q->file_containing_extension->containing_type);
    case ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE):
        return answer_error(c, q, "extension of", q->all_extension_numbers_of_type);
    default: return FV_FAIL(FV_EINVAL, "the request has no query");
    }
}

static fv_status on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &grpc__reflection__v1alpha__server_reflection_request__descriptor,
                              message, &m));
    FV_TRY(answer(c, fv_rpc_call_service(c), (request *)m));
    /* Stops reading requests of a client that does not read the replies. */
    if (!fv_rpc_call_writable(c)) fv_rpc_call_pause(c);
    return FV_OK;
}

static void on_sent(fv_rpc_call *c) { fv_rpc_call_resume(c); }

static fv_status on_half_close(fv_rpc_call *c) {
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

/* Both versions have the same messages, field by field. */
#define METHOD(version)                                                                            \
    {                                                                                              \
        .path = "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo",              \
        .kind = FV_RPC_BIDI, .message_max = 4096, .calls_max = 64,                                 \
        .events = {                                                                                \
            .on_message = on_message, .on_writable = on_sent, .on_half_close = on_half_close},     \
    }
static const fv_rpc_method methods[] = {METHOD("v1"), METHOD("v1alpha")};
enum { N_METHOD = sizeof methods / sizeof methods[0] };

fv_rpc_service fv_reflection_service(fv_reflection *r) {
    return (fv_rpc_service){methods, N_METHOD, r, NULL};
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Adds the service of a path, "/package.Service/Method", unless it is in the list. */
static fv_status add_service(fv_reflection *r, const char *path) {
    size_t n = strcspn(path + 1, "/");
    for (size_t i = 0; i < r->n_service; i++)
        if (strlen(r->services[i].name) == n && memcmp(r->services[i].name, path + 1, n) == 0)
            return FV_OK;
    service_response *s = &r->services[r->n_service];
    grpc__reflection__v1alpha__service_response__init(s);
    FV_TRY(fv_arena_strndup(&r->arena, path + 1, n, &s->name));
    r->list[r->n_service++] = s;
    return FV_OK;
}

static fv_status list_services(fv_reflection *r, const fv_rpc_service *services,
                               int32_t n_service) {
    size_t n = N_METHOD;
    for (int32_t i = 0; i < n_service; i++) n += (size_t)services[i].n_method;
    FV_TRY(FV_ARENA_NEW(&r->arena, n, r->services));
    FV_TRY(FV_ARENA_NEW(&r->arena, n, r->list));
    for (int32_t i = 0; i < n_service; i++)
        for (int32_t j = 0; j < services[i].n_method; j++)
            FV_TRY(add_service(r, services[i].methods[j].path));
    for (int32_t i = 0; i < N_METHOD; i++) FV_TRY(add_service(r, methods[i].path));
    return FV_OK;
}

fv_status fv_reflection_open(const void *set, size_t n, const fv_rpc_service *services,
                             int32_t n_service, fv_reflection **out) {
    if (!fv_descriptors_valid(set, n))
        return FV_FAIL(FV_EDATA, "the %zu bytes are not a descriptor set", n);
    fv_reflection *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory for reflection");
    r->set = set;
    r->n_set = n;
    fv_status st = list_services(r, services, n_service);
    if (st != FV_OK) {
        fv_reflection_close(r);
        return st;
    }
    *out = r;
    return FV_OK;
}

void fv_reflection_close(fv_reflection *r) {
    if (!r) return;
    fv_arena_fini(&r->arena);
    free(r);
}
