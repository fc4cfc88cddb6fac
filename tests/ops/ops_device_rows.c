/* Rows that move within a device's memory against the same moves by the host: chains whose rows take each other's
 * places, words of 16 and of 2 bytes, one row and many chains. */
#include "tests/ops/device_test.h"

enum { ROWS = 300, CHAINS = 40 };

typedef struct moves {
    fv_row_move move[CHAINS * ROWS];
    int32_t end[CHAINS];
    int32_t n, n_chain;
} moves;

/* Chain i moves rows within lines [i, i + 1) of ROWS rows: ascending, as rows that are kept close up, or descending, as
 * rows that are repeated spread. */
static void make_chain(moves *m, int i, size_t bytes) {
    char *base = (char *)NULL + (size_t)(i * ROWS) * bytes;
    int n = random_int(0, ROWS / 2);
    bool down = random_int(0, 1);
    for (int j = 0, from = 0; j < n; j++) {
        from += random_int(1, 2);
        int to = j;
        if (down) to = ROWS - 1 - j;
        m->move[m->n++] = (fv_row_move){base + (size_t)to * bytes,
                                        base + (size_t)(down ? ROWS - 1 - from : from) * bytes};
    }
    if (m->n > (m->n_chain ? m->end[m->n_chain - 1] : 0)) m->end[m->n_chain++] = m->n;
}

static void move_in(fv_device *dev, const moves *m, char *base, size_t bytes) {
    fv_row_move *at = room((size_t)m->n * sizeof *at);
    for (int32_t i = 0; i < m->n; i++)
        at[i] = (fv_row_move){base + (uintptr_t)m->move[i].to, base + (uintptr_t)m->move[i].from};
    must(fv_device_move_rows(
        dev, &(fv_row_moves){.bytes = bytes, .n_chain = m->n_chain, .end = m->end, .move = at}));
    free(at); /* the arrays are the caller's again */
}

int main(void) {
    static moves m;
    device_test d = device_open("auto");
    group("moved rows have the bytes that copies give");
    for (int i = 0; i < 40; i++) {
        int chains = i < 2 ? i : random_int(1, CHAINS);
        size_t bytes = (size_t)PICK(16, 64, 256, 512, 1024, 2, 6, 130, 272);
        both b = both_normal(&d, FV_F32, 1, (int)((size_t)CHAINS * ROWS * bytes / 4 + 1), 0);
        m.n = m.n_chain = 0;
        for (int c = 0; c < chains; c++) make_chain(&m, c, bytes);
        move_in(fv_device_host(), &m, b.host.data, bytes);
        move_in(d.be.device, &m, b.buf.data, bytes);
        char *p = fetch(&d, &b);
        check(memcmp(p, b.host.data, tensor_bytes(&b.host)) == 0, "%d chains of rows of %zu bytes",
              chains, bytes);
        free(p);
        both_free(&b);
    }
    device_close(&d);
    return summary();
}
