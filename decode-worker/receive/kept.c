/* The part of a prompt that was kept from an earlier hand-off, and the prompt that this one leaves. Only raw KV that
 * no method of the policy changes is shared. For the pool's thread. */
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/internal.h"

/* Whether answers evict rows one by one: then the request has copies. */
static bool evicts(const fv_import *l) { return l->got.plan.accum.kind != FV_ACCUM_NONE; }

/* Whether the policy leaves the rows of a prompt as they are, until the answer begins. */
static bool is_raw(const fv_import *l) {
    const fv_decode_plan *p = &l->got.plan;
    return p->dup_max == 0 && p->text_keys.rank == 0 && p->text.bits == 0 &&
           (!p->evict || evicts(l)) && l->hello.n_reused_text == 0;
}

size_t fv_import_kept_bytes(const fv_import *l) {
    return l->n_kept && !evicts(l) ? fv_kv_prefix_bytes(l->shape, &l->kept) : 0;
}

static uint32_t tokens_of(const fv_import *l) { return l->hello.n_text + l->hello.n_visual; }

/* Bytes of raw KV of n tokens. */
static uint64_t raw_bytes(const fv_import *l, uint64_t n) {
    return 2 * n * (uint64_t)l->shape->n_layer * (uint64_t)l->shape->n_kv * l->row_bytes;
}

/* Finds tokens that were kept after the last link that was found; returns how many. The prompt's last token runs in any
 * case. */
static uint32_t find_tail(fv_import *l) {
    const fv_wire_link *last = &l->link[l->n_kept - 1];
    uint32_t end = last->n_text + last->n_visual, n = tokens_of(l), n_tail = l->hello.n_tail;
    if (n_tail > n || end < n - n_tail || end + 1 >= n) return 0;
    return fv_prefixes_find_tail(l->opt->prefixes, fv_kv_owner(l->got.kv), last,
                                 l->hello.tail + (end - (n - n_tail)), n - 1 - end, &l->share);
}

fv_status fv_import_find_kept(fv_import *l) {
    fv_prefixes *prefixes = l->opt->prefixes;
    uint32_t n = l->hello.n_link;
    if (!prefixes || n == 0 || !is_raw(l) ||
        l->hello.bytes_visual < raw_bytes(l, l->hello.n_visual))
        return FV_OK;
    l->link = malloc(n * sizeof *l->link);
    if (!l->link) return FV_FAIL(FV_ENOMEM, "out of memory for %u links of a prompt", n);
    memcpy(l->link, l->hello.link, n * sizeof *l->link);
    l->n_kept =
        fv_prefixes_find(prefixes, fv_kv_owner(l->got.kv), l->link, n, tokens_of(l), &l->share);
    if (l->n_kept == 0) return FV_OK;
    l->n_kept_tail = find_tail(l);
    fv_kv_share_use(l->share);
    const fv_wire_link *last = &l->link[l->n_kept - 1];
    l->kept = (fv_kv_prefix){.n_text = (int32_t)(last->n_text + l->n_kept_tail),
                             .n_visual = (int32_t)last->n_visual,
                             .visual_rows = (int32_t)l->hello.n_visual,
                             .brief = l->n_kept_tail > 0};
    return FV_OK;
}

void fv_import_forgo_kept(fv_import *l) {
    fv_kv_share_unuse(l->share);
    l->share = NULL;
    l->n_kept = l->n_kept_tail = 0;
    l->kept = (fv_kv_prefix){.n_text = 0};
}

int32_t fv_import_left_out(const fv_import *l, fv_kv_segment seg) {
    if (!l->adopted) return 0;
    return seg == FV_SEG_TEXT ? l->kept.n_text : l->kept.n_visual;
}

/* Checks that the prompt begins with text and visual tokens where the kept rows have them. */
static fv_status check_prompt(const fv_import *l) {
    int32_t n[FV_N_SEG] = {0}, end = l->kept.n_text + l->kept.n_visual;
    bool same = true;
    for (int32_t i = 0; i < end && same; i++) {
        fv_kv_segment seg = l->got.seg[i] == FV_SEG_TEXT ? FV_SEG_TEXT : FV_SEG_VISUAL;
        same = n[seg] < fv_kv_share_rows(l->share, seg) &&
               fv_kv_share_positions(l->share, seg)[n[seg]++] == i;
    }
    if (same && n[FV_SEG_TEXT] == l->kept.n_text) return FV_OK;
    return FV_REFUSE(MALFORMED, "the prompt's first %d tokens are not where those kept are", end);
}

fv_status fv_import_take_kept(fv_import *l) {
    fv_wire_kept said;
    fv_wire_kept_get(l->payload, &said);
    if (said.n_link != l->n_kept || said.n_text != (uint32_t)l->kept.n_text ||
        said.n_visual != (uint32_t)l->kept.n_visual)
        return FV_REFUSE(MALFORMED,
                         "the stream leaves out %u text and %u visual tokens, but the grant was "
                         "given for one without %d and %d",
                         said.n_text, said.n_visual, l->kept.n_text, l->kept.n_visual);
    FV_TRY(check_prompt(l));
    l->adopted = true;
    FV_TRY(fv_kv_adopt(l->got.kv, l->share, &l->kept));
    fv_kv_share_unuse(l->share); /* the store uses it now */
    l->share = NULL;
    return FV_OK;
}

static uint32_t end_of(const fv_wire_link *link) { return link->n_text + link->n_visual; }

bool fv_import_brings(const fv_import *l, const fv_hello *h, const fv_wire_link *have) {
    const fv_wire_link *most = NULL;
    uint32_t n = h->n_text + h->n_visual, j = 0, kept = end_of(have);
    if (!l->link || l->committed) return false;
    for (uint32_t i = 0; i < h->n_link && end_of(&h->link[i]) < n; i++) { /* ends ascend */
        while (j < l->hello.n_link && end_of(&l->link[j]) < end_of(&h->link[i])) j++;
        if (j == l->hello.n_link || end_of(&l->link[j]) >= tokens_of(l)) break;
        if (memcmp(l->link[j].key, h->link[i].key, sizeof l->link[j].key) == 0) most = &h->link[i];
    }
    if (!most || end_of(most) <= kept ||
        !fv_prefixes_may_keep(l->opt->prefixes, fv_kv_owner(l->got.kv), raw_bytes(l, end_of(most))))
        return false;
    return most->n_visual > have->n_visual || end_of(most) - kept >= (n - kept) / 2;
}

uint32_t fv_import_rest_most(const fv_import *l) {
    /* Rows that run here must attend as those of a prompt do. */
    bool all = l->n_kept > 0 && l->kept.n_visual == l->kept.visual_rows && !evicts(l) &&
               l->got.plan.nsoftmax == 0;
    return all && l->hello.may_leave_rest ? (uint32_t)l->opt->rest_most : 0;
}

/* The prompt's end may be missing only if the grant has allowed it, and then as a whole. */
fv_status fv_import_take_rest(fv_import *l) {
    int32_t held = l->kept.n_text + l->kept.n_visual;
    l->got.n_held = l->got.n;
    if (!l->adopted || l->n_rows > 0) return FV_OK;
    if (l->got.first.step > 0 || (uint32_t)(l->got.n - held) > fv_import_rest_most(l))
        return FV_REFUSE(MALFORMED, "the stream has none of the prompt's last %d tokens",
                         l->got.n - held);
    l->got.n_held = held;
    return FV_OK;
}

void fv_import_keep(fv_import *l) {
    if (l->link && l->got.n_held == l->got.n)
        fv_prefixes_keep(l->opt->prefixes, fv_kv_owner(l->got.kv), l->link, l->hello.n_link,
                         l->n_kept, tokens_of(l), l->got.kv);
}

void fv_import_count_kept(const fv_import *l, fv_receiver_counters *count) {
    uint64_t n = (uint64_t)l->kept.n_text + (uint64_t)l->kept.n_visual;
    count->tokens_kept += n;
    count->bytes_kept += raw_bytes(l, n);
    count->prompts_found += l->n_kept > 0;
    count->prompts_missed += l->link && l->n_kept == 0;
}

void fv_import_close_kept(fv_import *l) {
    if (l->share) fv_kv_share_unuse(l->share);
    free(l->link);
}
