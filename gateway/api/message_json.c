/* Walks a message by its descriptor, so that new fields need no code here. */
#include "gateway/api/message_json.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/base64.h"

static json_t *base64(const ProtobufCBinaryData *b) {
    char *text = malloc(FV_BASE64_SIZE(b->len) + 1);
    if (!text) return NULL;
    json_t *s = json_stringn(text, fv_base64_write(FV_BASE64, b->data, b->len, text));
    free(text);
    return s;
}

/* Returns the bytes of the UTF-8 character at s, 0 if there is none: asks json_stringn. */
static size_t character(const char *s, size_t n) {
    for (size_t k = 1; k <= 4 && k <= n; k++) {
        json_t *one = json_stringn(s, k);
        json_decref(one);
        if (one) return k;
    }
    return 0;
}

json_t *fv_json_text(const char *text, size_t n) {
    json_t *whole = json_stringn(text, n);
    if (whole) return whole;
    char *fixed = malloc(3 * n + 1);
    size_t n_fixed = 0;
    for (size_t i = 0, k; fixed && i < n; i += k ? k : 1) {
        k = character(text + i, n - i);
        memcpy(fixed + n_fixed, k ? text + i : "\xEF\xBF\xBD", k ? k : 3);
        n_fixed += k ? k : 3;
    }
    whole = fixed ? json_stringn(fixed, n_fixed) : NULL;
    free(fixed);
    return whole;
}

/* Writes null for infinities and NaN, which JSON lacks. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static size_t size_of(const ProtobufCFieldDescriptor *f) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_STRING: return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(ProtobufCMessage *);
    default: return 4;
    }
}

static json_t *value(const ProtobufCFieldDescriptor *f, const void *at) {
    const ProtobufCEnumValue *name;
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return json_integer(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT: return number((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE: return number(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        name = protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)at);
        return name ? json_string(name->name) : json_integer(*(const int *)at);
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)at;
        return fv_json_text(s, strlen(s));
    }
    case PROTOBUF_C_TYPE_BYTES: return base64(at);
    case PROTOBUF_C_TYPE_MESSAGE: return fv_message_json(*(ProtobufCMessage *const *)at);
    }
    return NULL;
}

static json_t *list(const ProtobufCFieldDescriptor *f, const char *at, size_t n) {
    json_t *out = json_array();
    for (size_t i = 0; out && i < n; i++)
        if (json_array_append_new(out, value(f, at + i * size_of(f))) != 0) {
            json_decref(out);
            return NULL;
        }
    return out;
}

/* Returns whether a field has the value of an empty message. A oneof's member is set when its case
 * says so. */
static bool is_unset(const ProtobufCFieldDescriptor *f, const char *base) {
    const char *at = base + f->offset;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)(base + f->quantifier_offset) != f->id;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)(const void *)(base + f->quantifier_offset) == 0;
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        const char *s = *(char *const *)(const void *)at;
        return !s || !*s;
    }
    if (f->type == PROTOBUF_C_TYPE_BYTES)
        return ((const ProtobufCBinaryData *)(const void *)at)->len == 0;
    static const char zero[sizeof(ProtobufCBinaryData)];
    return memcmp(at, zero, size_of(f)) == 0;
}

json_t *fv_message_json(const ProtobufCMessage *m) {
    json_t *out = json_object();
    for (unsigned i = 0; out && i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const char *base = (const char *)m, *at = base + f->offset;
        if (is_unset(f, base)) continue;
        json_t *v = f->label == PROTOBUF_C_LABEL_REPEATED
                        ? list(f, *(char *const *)(const void *)at,
                               *(const size_t *)(const void *)(base + f->quantifier_offset))
                        : value(f, at);
        if (json_object_set_new(out, f->name, v) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
