/* Reads the few fields of descriptors that have names, numbered as in protobuf's own
 * descriptor.proto. The set is our own and a few kilobytes, so each lookup walks it. */
#include "rpc/descriptors.h"

#include "rpc/pb_wire.h"

enum { /* FileDescriptorSet, FileDescriptorProto, DescriptorProto, ServiceDescriptorProto */
       SET_FILE = 1,
       FILE_NAME = 1,
       FILE_PACKAGE = 2,
       FILE_MESSAGE = 4,
       FILE_ENUM = 5,
       FILE_SERVICE = 6,
       NAME = 1, /* in all of these messages */
       MESSAGE_NESTED = 3,
       MESSAGE_ENUM = 4,
       SERVICE_METHOD = 2,
};

static fv_pb_cursor cursor(const uint8_t *p, size_t n) { return (fv_pb_cursor){p, p + n}; }

/* Finds the first field `number` in the n bytes at p; bytes == NULL: none. */
static fv_pb_field field(const uint8_t *p, size_t n, uint32_t number) {
    fv_pb_cursor c = cursor(p, n);
    fv_pb_field f;
    while (fv_pb_next(&c, &f))
        if (f.number == number && f.type == FV_PB_BYTES) return f;
    return (fv_pb_field){0};
}

static bool is(fv_pb_field f, const char *s) {
    return f.bytes && f.value == strlen(s) && memcmp(f.bytes, s, f.value) == 0;
}

/* Skips "name." at the beginning of s, or all of s if it is `name`; NULL: s begins otherwise. */
static const char *strip(const char *s, fv_pb_field name) {
    if (!name.bytes || strncmp(s, (const char *)name.bytes, name.value) != 0) return NULL;
    s += name.value;
    return *s == '.' ? s + 1 : *s == '\0' ? s : NULL;
}

static bool defines(const uint8_t *p, size_t n, const char *symbol, uint32_t nested, uint32_t leaf);

/* Whether the definition at p is `symbol`, or contains it. */
static bool thing_is(const uint8_t *p, size_t n, const char *symbol, uint32_t nested,
                     uint32_t leaf) {
    const char *rest = strip(symbol, field(p, n, NAME));
    return rest && (*rest == '\0' || defines(p, n, rest, nested, leaf));
}

/* Whether `symbol` is among the messages (fields `nested`, searched with their contents) and simple definitions
 * (fields `leaf`) in p. */
static bool defines(const uint8_t *p, size_t n, const char *symbol, uint32_t nested,
                    uint32_t leaf) {
    fv_pb_cursor c = cursor(p, n);
    fv_pb_field f;
    while (fv_pb_next(&c, &f)) {
        if (f.type != FV_PB_BYTES) continue;
        if (nested && f.number == nested &&
            thing_is(f.bytes, f.value, symbol, MESSAGE_NESTED, MESSAGE_ENUM))
            return true;
        if (f.number == leaf && is(field(f.bytes, f.value, NAME), symbol)) return true;
    }
    return false;
}

static bool file_defines(const uint8_t *p, size_t n, const char *symbol) {
    fv_pb_field package = field(p, n, FILE_PACKAGE);
    if (package.bytes) symbol = strip(symbol, package);
    if (!symbol || *symbol == '\0') return false;
    if (defines(p, n, symbol, FILE_MESSAGE, FILE_ENUM)) return true;
    fv_pb_cursor c = cursor(p, n);
    fv_pb_field f;
    while (fv_pb_next(&c, &f))
        if (f.number == FILE_SERVICE && f.type == FV_PB_BYTES &&
            thing_is(f.bytes, f.value, symbol, 0, SERVICE_METHOD))
            return true;
    return false;
}

bool fv_descriptors_valid(const void *set, size_t n) {
    fv_pb_cursor c = cursor(set, n);
    fv_pb_field f;
    while (fv_pb_next(&c, &f)) {
    }
    return c.at == c.end;
}

fv_descriptor_file fv_descriptors_by_name(const void *set, size_t n, const char *name) {
    fv_pb_cursor c = cursor(set, n);
    fv_pb_field f;
    while (fv_pb_next(&c, &f))
        if (f.number == SET_FILE && f.type == FV_PB_BYTES &&
            is(field(f.bytes, f.value, FILE_NAME), name))
            return (fv_descriptor_file){f.bytes, f.value};
    return (fv_descriptor_file){0};
}

fv_descriptor_file fv_descriptors_by_symbol(const void *set, size_t n, const char *symbol) {
    fv_pb_cursor c = cursor(set, n);
    fv_pb_field f;
    while (fv_pb_next(&c, &f))
        if (f.number == SET_FILE && f.type == FV_PB_BYTES && file_defines(f.bytes, f.value, symbol))
            return (fv_descriptor_file){f.bytes, f.value};
    return (fv_descriptor_file){0};
}
