#include "tests/support/handshakes.h"

#include <malloc.h>
#include <string.h>
#include <time.h>

static void shake(net *r, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        net_heard h = {0};
        NET_CHECK(fv_rpc_channel_renew(r->channel) == FV_OK);
        net_ask_wait(r, &h, NET_ECHO, "x", 1);
        NET_CHECK(h.end.status == FV_OK);
    }
}

static size_t growth_since(size_t before) {
    size_t now = mallinfo2().uordblks;
    return now > before ? now - before : 0;
}

size_t handshakes_growth(net *r, int32_t warm, int32_t n, size_t limit) {
    enum { WAIT_MS = 60000, EACH_MS = 20 };
    shake(r, warm);
    size_t before = mallinfo2().uordblks;
    shake(r, n);
    size_t growth = growth_since(before);
    for (int32_t ms = 0; growth >= limit && ms < WAIT_MS; ms += EACH_MS) {
        nanosleep(&(struct timespec){.tv_nsec = EACH_MS * 1000000}, NULL);
        growth = growth_since(before);
    }
    return growth;
}
