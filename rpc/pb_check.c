/* Checks the bytes of a protobuf message before protobuf-c unpacks them: that they can be read to
 * the end, and that strings are UTF-8 (protobuf-c accepts others) without U+0000 (where it would cut
 * them). The descriptor says which fields are strings. Checking here keeps it out of every handler. */
#include <utf8proc.h>

#include "rpc/message.h"
#include "rpc/pb_wire.h"

enum { DEPTH_MAX = 16 };

static bool valid_text(const uint8_t *p, size_t n) {
    while (n > 0) {
        if (*p < 0x80) { /* most text */
            if (*p == 0) return false;
            p++, n--;
            continue;
        }
        utf8proc_int32_t c;
        utf8proc_ssize_t used = utf8proc_iterate(p, (utf8proc_ssize_t)n, &c);
        if (used <= 0) return false;
        p += used, n -= (size_t)used;
    }
    return true;
}

static fv_status check(const ProtobufCMessageDescriptor *d, const uint8_t *p, size_t n, int depth) {
    if (depth == DEPTH_MAX) return FV_FAIL(FV_EDATA, "%s: nested too deeply", d->name);
    fv_pb_cursor c = {p, p + n};
    fv_pb_field f;
    while (fv_pb_next(&c, &f)) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(d, f.number);
        if (!field || f.type != FV_PB_BYTES) continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            FV_TRY(check(field->descriptor, f.bytes, f.value, depth + 1));
        else if (field->type == PROTOBUF_C_TYPE_STRING && !valid_text(f.bytes, f.value))
            return FV_FAIL(FV_EDATA, "%s.%s must be UTF-8 without U+0000", d->name, field->name);
    }
    if (c.at != c.end)
        return FV_FAIL(FV_EDATA, "not a valid %s: truncated or malformed at byte %zu", d->name,
                       (size_t)(c.at - p));
    return FV_OK;
}

fv_status fv_pb_check(const ProtobufCMessageDescriptor *d, const uint8_t *p, size_t n) {
    return check(d, p, n, 0);
}
