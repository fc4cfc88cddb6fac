/* Functions common to all transports. */
#include "handoff/transport.h"

void fv_transport_close(fv_transport *t, void (*closed)(void *user), void *user) {
    if (t)
        t->ops->close(t, closed, user);
    else if (closed)
        closed(user);
}

size_t fv_pieces_bytes(const fv_piece *piece, int32_t n) {
    size_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += piece[i].bytes;
    return bytes;
}
