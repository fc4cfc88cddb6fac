#ifndef FOVEA_TESTS_SUPPORT_CONTRACTS_H
#define FOVEA_TESTS_SUPPORT_CONTRACTS_H

/* Every message of the contracts in proto/: what the methods of its services take and give, and
 * what lies in those. */
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

/* *n says how many. The same list, in the same order, each time. */
const ProtobufCMessageDescriptor *const *contract_messages(int32_t *n);

#endif
