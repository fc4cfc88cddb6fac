#ifndef FOVEA_TESTS_SUPPORT_CONTRACTS_H
#define FOVEA_TESTS_SUPPORT_CONTRACTS_H

/* Every message of proto/: the requests and responses of its services, and the messages within
 * them. */
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

/* n: how many. The same list, in the same order, each time. */
const ProtobufCMessageDescriptor *const *contract_messages(int32_t *n);

#endif
