/* Any bytes as a request to the reflection service. The first byte: bit 0 says whether it is
 * answered from our own descriptors, or from what follows a NUL after the request's bytes, as a
 * descriptor set. Anything found lies within the set. */
#include <stdlib.h>
#include <string.h>

#include "fovea_proto.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "rpc/descriptors.h"
#include "rpc/message.h"
#include "tests/support/sliced.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static void look(const uint8_t *set, size_t n, const char *name) {
    fv_descriptor_file found[2] = {fv_descriptors_by_name(set, n, name),
                                   fv_descriptors_by_symbol(set, n, name)};
    for (int i = 0; i < 2; i++)
        expect(!found[i].bytes ||
               (found[i].bytes >= set && found[i].n <= (size_t)(set + n - found[i].bytes)));
}

/* Every name that a request may carry. */
static void ask(const uint8_t *question, size_t n, const uint8_t *set, size_t n_set) {
    fv_arena arena = {0};
    ProtobufCMessage *m;
    grpc_byte_buffer *b = sliced(question, n, 0);
    if (fv_rpc_unpack(&grpc__reflection__v1alpha__server_reflection_request__descriptor, b, &arena,
                      &m) == FV_OK) {
        const Grpc__Reflection__V1alpha__ServerReflectionRequest *q = (const void *)m;
        look(set, n_set, q->host);
        if (q->message_request_case ==
            GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION)
            look(set, n_set, q->file_containing_extension->containing_type);
        else if (q->message_request_case !=
                 GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST__NOT_SET)
            look(set, n_set, q->file_by_filename); /* all the others are strings as well */
    }
    grpc_byte_buffer_destroy(b);
    fv_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    const uint8_t *question = data + 1, *set = fovea_proto_set;
    size_t n_question = n - 1, n_set = (size_t)fovea_proto_set_size;
    if (data[0] & 1) {
        const uint8_t *nul = memchr(question, 0, n_question);
        if (!nul) return 0;
        set = nul + 1;
        n_set = (size_t)(data + n - set);
        n_question = (size_t)(nul - question);
        if (!fv_descriptors_valid(set, n_set)) return 0;
    }
    ask(question, n_question, set, n_set);
    return 0;
}
