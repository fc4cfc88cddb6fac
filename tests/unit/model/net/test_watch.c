/* A decoder's watcher sees the right values and changes nothing. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/support/tiny_net.h"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

typedef struct seen {
    int32_t layers, fail_at;
    double off; /* the most that a row's probabilities are off a sum of 1 */
} seen;

/* exp(scale q k - lse) over all that the sequence's last row sees, in one layer and head. */
static double sum_of(const fv_attn_args *a, const fv_kv *kv, int32_t l, int32_t h) {
    int32_t D = a->d_head, g = h / (a->n_head / a->n_kv), row = a->q.rows - 1;
    const float *q = (const float *)fv_tensor_rows(a->q, row, 1).data + h * D;
    double lse = (double)((const float *)a->lse.data)[row * a->n_head + h], sum = 0;
    for (int seg = 0; seg < FV_N_SEG; seg++)
        for (int32_t j = 0, n = fv_kv_len(kv, l, g, (fv_kv_segment)seg); j < n; j++) {
            void *k;
            double score = 0;
            fv_kv_contiguous(kv, l, g, (fv_kv_segment)seg, false, j, n, &k);
            for (int32_t c = 0; c < D; c++) score += (double)q[c] * (double)((float *)k)[c];
            sum += exp((double)a->scale * score - lse);
        }
    return sum;
}

static fv_status on_layer(void *user, const fv_forward_batch *pass, int32_t l,
                          const fv_attn_args *a) {
    seen *s = user;
    cr_assert(pass->n_seq == 1 && pass->x.data && a->o.rows == a->q.rows);
    for (int32_t h = 0; h < a->n_head; h++) {
        double off = fabs(sum_of(a, pass->seq[0].kv, l, h) - 1);
        if (off > s->off) s->off = off;
    }
    s->layers++;
    return l == s->fail_at ? FV_FAIL(FV_ECANCELLED, "seen enough") : FV_OK;
}

static fv_status run(tiny_net *net, seen *s, float *logits) {
    tiny_prompt p;
    tiny_prompt_make(net, &p, 3, 20, 5, 8, "");
    fv_decoder_watch(net->dec, s ? on_layer : NULL, s);
    fv_status st = tiny_prefill(net, &p, 1, 0);
    fv_decoder_watch(net->dec, NULL, NULL);
    memcpy(logits, p.logits, (size_t)net->cfg.vocab * sizeof *logits);
    tiny_prompt_free(&p);
    return st;
}

Test(watch, every_layer_is_shown_and_no_bit_changes) {
    tiny_net net;
    float plain[200], watched[200];
    seen s = {.fail_at = -1};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    ok(run(&net, NULL, plain));
    ok(run(&net, &s, watched));
    cr_assert(same_bits(plain, watched, (size_t)net.cfg.vocab));
    cr_assert_eq(s.layers, net.cfg.n_layer);
    cr_assert(s.off < 1e-5, "%g", s.off);
    ok(run(&net, NULL, plain));
    cr_assert_eq(s.layers, net.cfg.n_layer);
    tiny_net_close(&net);
}

Test(watch, its_failure_ends_the_pass) {
    tiny_net net;
    float logits[200];
    seen s = {.fail_at = 1};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    cr_assert_eq(run(&net, &s, logits), FV_ECANCELLED);
    cr_assert_eq(s.layers, 2);
    tiny_net_close(&net);
}
