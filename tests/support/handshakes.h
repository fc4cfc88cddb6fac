#ifndef FOVEA_TESTS_SUPPORT_HANDSHAKES_H
#define FOVEA_TESTS_SUPPORT_HANDSHAKES_H

/* Many connections, one after the other. */
#include "tests/support/net.h"

/* Makes `warm` connections and then n, with a call on each, and returns by how many bytes the heap
 * grew meanwhile; 0 if it did not. gRPC's threads free connections some time after their end: if the
 * growth is not below `limit` yet, it is read again for up to a minute. A call that fails aborts. */
size_t handshakes_growth(net *r, int32_t warm, int32_t n, size_t limit);

#endif
