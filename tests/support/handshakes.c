#include "tests/support/handshakes.h"

#include <malloc.h>
#include <string.h>

static void shake(net *r, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        net_heard h = {0};
        NET_CHECK(fv_rpc_channel_renew(r->channel) == FV_OK);
        net_ask_wait(r, &h, NET_ECHO, "x", 1);
        NET_CHECK(h.end.status == FV_OK);
    }
}

size_t handshakes_growth(net *r, int32_t warm, int32_t n) {
    shake(r, warm);
    size_t before = mallinfo2().uordblks;
    shake(r, n);
    size_t after = mallinfo2().uordblks;
    return after > before ? after - before : 0;
}
