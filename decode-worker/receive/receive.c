/* Checks who may send, how much, and until when. Every refusal is counted here and ends its hand-off, if
 * there is one (a late frame or a guessed ticket has none). For the pool's thread. */
#include "decode-worker/receive/receive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "decode-worker/receive/internal.h"

struct fv_receiver {
    fv_sink sink; /* first: a sink is a receiver */
    fv_receiver_options opt;
    fv_compat compat;
    fv_grants *grants;
    fv_receiver_counters count;
    fv_import *imports; /* granted and not attached */
};

fv_grants_options fv_grants_options_default(void) {
    return (fv_grants_options){
        .capacity = 256, .frame_max = FV_FRAME_MAX, .credits = 16, .lease_s = 30, .attach_s = 30};
}

/* ---- the list ---------------------------------------------------------------------------- */

static void add_import(fv_receiver *r, fv_import *l) {
    l->next = r->imports;
    l->at = &r->imports;
    if (l->next) l->next->at = &l->next;
    r->imports = l;
}

/* Takes a hand-off off the list and frees it; NULL is fine. */
static void close_import(fv_import *l) {
    if (l && l->at) *l->at = l->next;
    if (l && l->at && l->next) l->next->at = l->at;
    fv_import_close(l);
}

/* ---- ends ------------------------------------------------------------------------------ */

int32_t fv_receiver_expire(fv_receiver *r) {
    int32_t n = 0;
    double now = fv_grants_now(r->grants);
    for (fv_import *l; (l = fv_grants_expire(r->grants, now)) != NULL; n++) {
        FV_LOG(INFO, WIRE, "handoff=expired tokens=%llu bytes=%llu", (unsigned long long)l->n_rows,
               (unsigned long long)l->reader.totals.bytes);
        close_import(l);
    }
    r->count.expired += (uint64_t)n;
    return n;
}

static fv_status count(fv_receiver *r, fv_status st) {
    fv_refusal why = fv_refusal_of(st);
    if (st == FV_OK) return st;
    r->count.refused[why]++;
    FV_LOG(DEBUG, WIRE, "handoff=refused reason=%s text=\"%s\"", fv_refusal_name(why),
           fv_last_error());
    return st;
}

/* ---- offer ----------------------------------------------------------------------------- */

fv_status fv_receiver_check(const fv_receiver *r, const fv_hello *h, fv_decode_plan *plan) {
    const fv_kv_shape *shape = fv_kv_pool_shape(r->opt.pool);
    FV_TRY(fv_compat_check(&r->compat, &h->compat));
    uint64_t rows = (uint64_t)h->n_text + h->n_visual;
    if (rows == 0) return FV_REFUSE(INVALID, "the hand-off has no prompt tokens");
    if (rows + h->max_tokens > (uint64_t)r->opt.max_position)
        return FV_REFUSE(INVALID,
                         "%llu prompt tokens and %u new tokens exceed the model's context of %d",
                         (unsigned long long)rows, h->max_tokens, r->opt.max_position);
    uint64_t most = fv_import_most_visual(shape, h->n_visual);
    if (h->bytes_visual > most)
        return FV_REFUSE(
            INVALID, "%llu bytes of visual KV exceed the maximum of %llu for %u tokens per layer",
            (unsigned long long)h->bytes_visual, (unsigned long long)most, h->n_visual);
    most = fv_import_most_tables(shape, h);
    if (h->bytes_tables > most)
        return FV_REFUSE(
            INVALID, "%llu bytes of tables exceed the maximum of %llu for %llu tokens per layer",
            (unsigned long long)h->bytes_tables, (unsigned long long)most,
            (unsigned long long)rows);
    if (h->n_reused_text >= (uint32_t)shape->n_layer)
        return FV_REFUSE(INVALID,
                         "%u of %d layers borrow text keys; at least one must have its own",
                         h->n_reused_text, shape->n_layer);
    FV_TRY(fv_links_check(h->link, h->n_link, h->n_text, h->n_visual));
    if (h->n_tail > FV_TAIL_MAX || h->n_tail > h->n_text)
        return FV_REFUSE(INVALID, "%u of the prompt's %u text tokens came; at most %d may",
                         h->n_tail, h->n_text, FV_TAIL_MAX);
    if (h->adapter && h->adapter[0] &&
        !(r->opt.adapters && fv_adapters_with(r->opt.adapters, h->adapter)))
        return FV_REFUSE(
            INCOMPATIBLE,
            "this worker does not have the adapter with digest %.16s: start all workers "
            "with the same --adapter",
            h->adapter);
    if (strlen(h->policy) >= FV_POLICY_TEXT_MAX)
        return FV_REFUSE(INVALID, "the policy's text is too long");
    fv_policy policy;
    if (fv_policy_parse(h->policy, &policy) != FV_OK)
        return FV_REFUSE(INVALID, "this worker does not know the policy: %s", fv_last_error());
    fv_decode_plan_make(&policy, (int32_t)rows, plan);
    return FV_OK;
}

fv_status fv_receiver_offer(fv_receiver *r, const fv_hello *h, const fv_decode_plan *plan,
                            fv_grant *out) {
    fv_import *l;
    fv_receiver_expire(r);
    FV_TRY(fv_import_open(&r->opt, h, plan, &l));
    uint64_t bytes = fv_import_wire_bytes(fv_kv_pool_shape(r->opt.pool), h, plan, r->opt.n_group);
    fv_status st = fv_grants_issue(r->grants, bytes, l, out);
    if (st != FV_OK) {
        close_import(l);
        return st;
    }
    add_import(r, l);
    out->n_kept = l->n_kept;
    out->n_kept_tail = l->n_kept_tail;
    out->rest_most = fv_import_rest_most(l);
    r->count.granted++;
    return FV_OK;
}

bool fv_receiver_brings(fv_receiver *r, const fv_hello *h) {
    static const fv_wire_link nothing = {.n_text = 0};
    fv_kv_share *share;
    const char *owner = h->owner ? h->owner : "";
    if (!r->opt.prefixes || h->n_link == 0) return false;
    fv_receiver_expire(r);
    uint32_t n = fv_prefixes_find(r->opt.prefixes, owner, h->link, h->n_link,
                                  h->n_text + h->n_visual, &share);
    for (const fv_import *l = r->imports; l; l = l->next)
        if (strcmp(fv_kv_owner(l->got.kv), owner) == 0 &&
            fv_import_brings(l, h, n ? &h->link[n - 1] : &nothing))
            return true;
    return false;
}

uint64_t fv_receiver_bytes(const fv_receiver *r, const fv_hello *h, const fv_decode_plan *plan) {
    fv_hello reserved = *h;
    reserved.max_tokens = fv_import_answer_rows(h);
    return fv_import_pool_bytes(fv_kv_pool_shape(r->opt.pool), &reserved, plan);
}

void fv_receiver_count_refusal(fv_receiver *r, fv_status st) { (void)count(r, st); }

static fv_status sink_offer(fv_sink *sink, const fv_hello *hello, fv_grant *out) {
    fv_receiver *r = (fv_receiver *)sink;
    fv_decode_plan plan;
    fv_status st = fv_receiver_check(r, hello, &plan);
    return count(r, st == FV_OK ? fv_receiver_offer(r, hello, &plan, out) : st);
}

/* ---- frames, commit, abort ------------------------------------------------------------- */

static fv_status sink_frame(fv_sink *sink, const fv_ticket *ticket, uint64_t seq,
                            const fv_piece *piece, int32_t n_piece) {
    fv_receiver *r = (fv_receiver *)sink;
    void *owner;
    fv_receiver_expire(r);
    size_t bytes = fv_pieces_bytes(piece, n_piece);
    fv_status st = fv_grants_accept(r->grants, ticket, seq, bytes, &owner);
    if (st == FV_OK) {
        r->count.bytes += bytes;
        st = fv_import_read(owner, piece, n_piece);
        fv_grants_consumed(r->grants, ticket);
    }
    if (st != FV_OK && owner) close_import(fv_grants_drop(r->grants, ticket));
    return count(r, st);
}

static fv_status sink_oob(fv_sink *sink, const fv_ticket *ticket, uint64_t seq, const void *bytes,
                          size_t n, uint32_t crc) {
    fv_receiver *r = (fv_receiver *)sink;
    void *owner;
    fv_receiver_expire(r);
    fv_status st = fv_grants_accept(r->grants, ticket, seq, n, &owner);
    if (st == FV_OK) {
        r->count.bytes += n;
        r->count.bytes_oob += n;
        st = fv_import_read_oob(owner, bytes, n, crc);
        fv_grants_consumed(r->grants, ticket);
    }
    if (st != FV_OK && owner) close_import(fv_grants_drop(r->grants, ticket));
    return count(r, st);
}

static fv_status sink_commit(fv_sink *sink, const fv_ticket *ticket, uint64_t n_frame) {
    fv_receiver *r = (fv_receiver *)sink;
    void *owner;
    uint64_t surplus;
    fv_receiver_expire(r);
    fv_status st = fv_grants_commit(r->grants, ticket, n_frame, &owner, &surplus);
    if (st == FV_OK) st = fv_import_finish(owner);
    if (st == FV_OK) {
        r->count.committed++;
        fv_import_count_kept(owner, &r->count);
    } else if (owner)
        close_import(fv_grants_drop(r->grants, ticket));
    return count(r, st);
}

static fv_status sink_renew(fv_sink *sink, const fv_ticket *ticket) {
    fv_receiver *r = (fv_receiver *)sink;
    fv_receiver_expire(r);
    return count(r, fv_grants_renew(r->grants, ticket));
}

static void sink_abort(fv_sink *sink, const fv_ticket *ticket) {
    fv_receiver *r = (fv_receiver *)sink;
    fv_receiver_expire(r);
    fv_import *l = fv_grants_drop(r->grants, ticket);
    if (l) r->count.aborted++;
    close_import(l);
}

/* ---- the receiver ---------------------------------------------------------------------- */

fv_status fv_receiver_open(const fv_receiver_options *opt, fv_receiver **out) {
    static const fv_sink_ops ops = {.offer = sink_offer,
                                    .frame = sink_frame,
                                    .oob = sink_oob,
                                    .commit = sink_commit,
                                    .renew = sink_renew,
                                    .abort = sink_abort};
    const fv_kv_shape *shape = fv_kv_pool_shape(opt->pool);
    fv_compat_fields fields = {.model = opt->model,
                               .n_layer = shape->n_layer,
                               .n_kv = shape->n_kv,
                               .d_head = shape->d_head,
                               .dtype = fv_dtype_name(shape->dtype),
                               .compute = opt->sums ? opt->sums : "f32",
                               .latent = shape->latent_sum};
    fv_status st;
    fv_receiver *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for the receiver");
    r->sink.ops = &ops;
    r->opt = *opt;
    FV_TRY_GOTO(fv_compat_make(&fields, &r->compat), st, fail);
    FV_TRY_GOTO(fv_grants_open(&opt->grants, &r->grants), st, fail);
    *out = r;
    return FV_OK;
fail:
    fv_receiver_close(r);
    return st;
}

void fv_receiver_close(fv_receiver *r) {
    if (!r) return;
    for (fv_import *l; r->grants && (l = fv_grants_expire(r->grants, HUGE_VAL)) != NULL;)
        close_import(l);
    fv_grants_close(r->grants);
    free(r);
}

fv_sink *fv_receiver_sink(fv_receiver *r) { return &r->sink; }

double fv_receiver_next_deadline(const fv_receiver *r) {
    return fv_grants_next_deadline(r->grants);
}

double fv_receiver_now(const fv_receiver *r) { return fv_grants_now(r->grants); }

uint64_t fv_receiver_granted(const fv_receiver *r) { return fv_grants_bytes(r->grants); }

const fv_receiver_counters *fv_receiver_get_counters(const fv_receiver *r) { return &r->count; }

int32_t fv_receiver_live(const fv_receiver *r) { return fv_grants_live(r->grants); }

/* ---- attach ---------------------------------------------------------------------------- */

fv_status fv_receiver_attach(fv_receiver *r, const fv_ticket *ticket, fv_received *out) {
    void *owner;
    fv_receiver_expire(r);
    FV_TRY(count(r, fv_grants_attach(r->grants, ticket, &owner)));
    fv_import *l = owner;
    *out = l->got;
    /* Answers that evict rows, or attend otherwise than a prompt, keep nothing for later prompts. */
    if (l->got.plan.accum.kind == FV_ACCUM_NONE && l->got.plan.nsoftmax == 0) {
        out->link = l->link;
        out->n_link = l->link ? l->hello.n_link : 0;
        l->link = NULL;
    }
    l->got = (fv_received){0};
    close_import(l);
    r->count.attached++;
    return FV_OK;
}

void fv_received_free(fv_received *r) {
    fv_kv_close(r->kv);
    free(r->ids);
    free(r->seg);
    free(r->policy);
    free(r->link);
    *r = (fv_received){0};
}
