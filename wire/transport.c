/* What every transport has in common. */
#include "wire/transport.h"

void fv_transport_close(fv_transport *t) {
    if (t) t->ops->close(t);
}

size_t fv_pieces_bytes(const fv_piece *piece, int32_t n) {
    size_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += piece[i].bytes;
    return bytes;
}
