#ifndef FOVEA_RPC_DESCRIPTORS_H
#define FOVEA_RPC_DESCRIPTORS_H

/* DESCRIPTORS: finds a file by name or symbol in a FileDescriptorSet, as protoc writes it with
 * --descriptor_set_out. Results point into the set. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fv_descriptor_file {
    const uint8_t *bytes; /* [n] a serialized FileDescriptorProto; NULL: not found */
    size_t n;
} fv_descriptor_file;

bool fv_descriptors_valid(const void *set, size_t n); /* the set can be read to its end */

fv_descriptor_file fv_descriptors_by_name(const void *set, size_t n, const char *name);

/* `symbol` is the full name of a message, an enum, a service or a method. */
fv_descriptor_file fv_descriptors_by_symbol(const void *set, size_t n, const char *symbol);

#endif
