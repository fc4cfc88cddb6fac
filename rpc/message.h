#ifndef FOVEA_RPC_MESSAGE_H
#define FOVEA_RPC_MESSAGE_H

/* MESSAGES: protobuf-c structures <-> gRPC byte buffers, and byte buffers of borrowed memory.
 *
 * protobuf-c copies every `bytes` field, accepts strings that are not UTF-8, and lets a message
 * request much more memory than it has bytes. So control messages go through fv_rpc_unpack, which
 * checks and bounds them; KV goes through fv_rpc_wrap and fv_rpc_slices, which copy nothing. */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <protobuf-c/protobuf-c.h>

#include "common/arena.h"
#include "handoff/kv_packet.h"

/* Packs a message; gives *out (grpc_byte_buffer_destroy). Strings must be UTF-8. */
fv_status fv_rpc_pack(const ProtobufCMessage *m, grpc_byte_buffer **out);

/* Unpacks a message; all of *out is in the arena. FV_EDATA: not a valid message, or a string field is not
 * UTF-8 or contains U+0000 (the sentence names the field). FV_ENOMEM: the unpacked message would take more
 * than the packed bytes and FV_RPC_UNPACK_EXTRA. */
enum { FV_RPC_UNPACK_EXTRA = 8 << 20 };
fv_status fv_rpc_unpack(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *b, fv_arena *arena,
                        ProtobufCMessage **out);

/* Makes a message of n_head bytes, which are copied, and n pieces, which are borrowed. `release`
 * runs once, when gRPC no longer needs the last piece: on any thread, at the latest when the bridge
 * has closed. On failure it does not run. Gives *out. */
fv_status fv_rpc_wrap(const void *head, size_t n_head, const fv_piece *piece, int32_t n,
                      void (*release)(void *user), void *user, grpc_byte_buffer **out);

/* As fv_rpc_pack, but borrows the `bytes` fields whose value is one of the n pieces: packing a message with images
 * takes neither time nor memory for them. `release` as in fv_rpc_wrap. */
fv_status fv_rpc_pack_borrowing(const ProtobufCMessage *m, const fv_piece *piece, int32_t n,
                                void (*release)(void *user), void *user, grpc_byte_buffer **out);

/* The bytes of a message in place, slice by slice:
 *     fv_rpc_slices it;
 *     if (!fv_rpc_slices_begin(&it, message)) ...;
 *     while (fv_rpc_slices_next(&it, &p, &n)) ...
 *     fv_rpc_slices_end(&it);
 * `p` is borrowed from the message. */
typedef struct fv_rpc_slices {
    grpc_byte_buffer_reader reader;
} fv_rpc_slices;
bool fv_rpc_slices_begin(fv_rpc_slices *it, grpc_byte_buffer *b);
bool fv_rpc_slices_next(fv_rpc_slices *it, const uint8_t **p, size_t *n);
void fv_rpc_slices_end(fv_rpc_slices *it);

/* The check that fv_rpc_unpack makes before protobuf-c sees the bytes. Messages nest as deep as
 * their descriptors, which must not be recursive. */
fv_status fv_pb_check(const ProtobufCMessageDescriptor *d, const uint8_t *p, size_t n);

#endif
