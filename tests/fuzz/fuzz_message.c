/* Any bytes, in slices, as a protobuf message. The first byte says which one; 0: as each of them in
 * turn. The second says how the bytes are cut. An accepted message has only valid strings, and
 * means the same after packing and reading again. */
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "rpc/message.h"
#include "tests/support/contracts.h"
#include "tests/support/sliced.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static void check_text(const char *s) {
    size_t n = strlen(s);
    utf8proc_int32_t c;
    for (size_t i = 0; i < n;) {
        utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &c);
        expect(used > 0);
        i += (size_t)used;
    }
}

/* Every string of the message, however deep, through protobuf-c's reflection. */
static void check_strings(const ProtobufCMessage *m) {
    const char *base = (const char *)m;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        bool text = f->type == PROTOBUF_C_TYPE_STRING;
        if (!text && f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        size_t n = 1;
        const void *const *at = (const void *const *)(base + f->offset);
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            n = *(const size_t *)(base + f->quantifier_offset);
            at = *(const void *const *const *)at;
        } else if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
                   *(const uint32_t *)(base + f->quantifier_offset) != f->id) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            if (text)
                check_text(at[k]);
            else if (at[k])
                check_strings(at[k]);
        }
    }
}

static void expect_same(grpc_byte_buffer *a, grpc_byte_buffer *b) {
    grpc_byte_buffer_reader ra, rb;
    expect(grpc_byte_buffer_reader_init(&ra, a) && grpc_byte_buffer_reader_init(&rb, b));
    grpc_slice sa = grpc_byte_buffer_reader_readall(&ra), sb = grpc_byte_buffer_reader_readall(&rb);
    expect(grpc_slice_eq(sa, sb));
    grpc_slice_unref(sa);
    grpc_slice_unref(sb);
    grpc_byte_buffer_reader_destroy(&ra);
    grpc_byte_buffer_reader_destroy(&rb);
}

static void read_as(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *b) {
    fv_arena arena = {0};
    ProtobufCMessage *m = NULL, *again = NULL;
    if (fv_rpc_unpack(d, b, &arena, &m) == FV_OK) {
        grpc_byte_buffer *once, *twice;
        check_strings(m);
        expect(fv_rpc_pack(m, &once) == FV_OK);
        expect(fv_rpc_unpack(d, once, &arena, &again) == FV_OK);
        expect(fv_rpc_pack(again, &twice) == FV_OK);
        expect_same(once, twice);
        grpc_byte_buffer_destroy(once);
        grpc_byte_buffer_destroy(twice);
    } else {
        expect(!m && *fv_last_error());
    }
    fv_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    int32_t n_message;
    const ProtobufCMessageDescriptor *const *messages = contract_messages(&n_message);
    if (n < 2) return 0;
    grpc_byte_buffer *b = sliced(data + 2, n - 2, data[1]);
    if (data[0]) read_as(messages[(data[0] - 1) % n_message], b);
    for (int32_t i = 0; !data[0] && i < n_message; i++) read_as(messages[i], b);
    grpc_byte_buffer_destroy(b);
    return 0;
}
