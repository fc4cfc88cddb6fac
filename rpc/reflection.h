#ifndef FOVEA_RPC_REFLECTION_H
#define FOVEA_RPC_REFLECTION_H

/* REFLECTION: grpc.reflection.v1, and v1alpha for older clients, for one server, from the .proto files
 * as protoc compiled them. With it grpcurl and other tools call our services without these files. Loop
 * thread. */
#include "rpc/server.h"

typedef struct fv_reflection fv_reflection; /* opaque */

/* Opens a reflection that lists `services` and itself, and describes them from `set`, n bytes of a
 * FileDescriptorSet (fovea_proto_set in the library of proto/). All borrowed. FV_EDATA: `set` is not a
 * FileDescriptorSet. */
fv_status fv_reflection_open(const void *set, size_t n, const fv_rpc_service *services,
                             int32_t n_service, fv_reflection **out);
void fv_reflection_close(fv_reflection *r); /* its server has stopped; NULL is fine */

fv_rpc_service fv_reflection_service(fv_reflection *r);

#endif
