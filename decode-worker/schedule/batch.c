/* The list of running answers and the step over them. */
#include "decode-worker/schedule/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum { ROWS_MOST = 1 + FV_DRAFT_MOST }; /* of an answer whose logits a step wants */

typedef struct member {
    fv_generation *seq;
    fv_kv *kv;
    fv_evict *evict;     /* or NULL */
    fv_text_codes *text; /* or NULL */
    int32_t n_held;      /* ids that have run */
    int32_t n_now;       /* ids that run in this step */
    int32_t n_told;      /* ids that had run at its last token, or when it joined */
    bool last;           /* the last id runs in this step */
    void *user;
    fv_speculation *spec;       /* NULL: it runs no drafts */
    bool begun;                 /* a step has chosen a token of it since it joined */
    int32_t n_draft;            /* rows of drafts in this step, after the last id */
    int32_t drafted[ROWS_MOST]; /* the last id and the drafts; what runs if there are any */
    const float *logits;        /* of the last id, then of the drafts */
    bool over; /* its last token of this step was told: the drafts after it were wrong, */
    bool gone; /* or the answer has ended, or failed */
} member;

/* The result of choosing a token: the token, or why it failed. */
typedef struct choice {
    fv_batch_event event;
    char failure[256];
} choice;

struct fv_batch {
    fv_decoder *dec;
    fv_model_runner *runner;
    fv_device *device;
    int32_t n, n_max, prompt_tokens;
    size_t vocab;
    member *list;           /* [n_max] in the order of joining */
    fv_step_seq *step;      /* [n_max] */
    choice *choice;         /* [n_max] results of a step */
    member **chooses;       /* [n_max] whose they are */
    fv_speculation **spec;  /* [n_max] those that draft in a step */
    fv_step_costs costs[2]; /* of drafts that were found, and of those that a model made */
    bool modelled;          /* a model was asked for some of them */
    bool drafts_all;        /* whatever they cost */
    fv_buf
        logits; /* [at least n_max, vocab], grown as answers join and draft; a GPU writes to it directly */
    int32_t cap_logits; /* rows of it */
};

fv_status fv_batch_open(fv_decoder *dec, int32_t n_max, int32_t prompt_tokens, fv_batch **out) {
    fv_batch *b = calloc(1, sizeof *b);
    if (!b) return FV_FAIL(FV_ENOMEM, "out of memory for a batch");
    b->dec = dec;
    b->device = fv_decoder_backend(dec)->device;
    b->n_max = n_max;
    b->prompt_tokens = prompt_tokens;
    b->vocab = (size_t)fv_decoder_config(dec)->vocab;
    b->list = calloc((size_t)n_max, sizeof *b->list);
    b->step = calloc((size_t)n_max, sizeof *b->step);
    b->choice = calloc((size_t)n_max, sizeof *b->choice);
    b->chooses = calloc((size_t)n_max, sizeof *b->chooses);
    b->spec = calloc((size_t)n_max, sizeof *b->spec);
    fv_status st = b->list && b->step && b->choice && b->chooses && b->spec
                       ? fv_model_runner_open(dec, &b->runner)
                       : FV_FAIL(FV_ENOMEM, "out of memory for a batch");
    if (st != FV_OK) {
        fv_batch_close(b);
        return st;
    }
    *out = b;
    return FV_OK;
}

void fv_batch_close(fv_batch *b) {
    if (!b) return;
    fv_model_runner_close(b->runner);
    free(b->list);
    free(b->step);
    free(b->choice);
    free(b->chooses);
    free(b->spec);
    fv_buf_free(&b->logits);
    free(b);
}

int32_t fv_batch_count(const fv_batch *b) { return b->n; }

/* Makes room for the logits of so many rows; what was there is gone. */
static fv_status logits_for(fv_batch *b, int32_t rows) {
    fv_buf grown;
    if (rows <= b->cap_logits) return FV_OK;
    FV_TRY(fv_buf_alloc(b->device, (size_t)rows * b->vocab * sizeof(float), FV_BUF_PINNED, &grown));
    fv_buf_free(&b->logits);
    b->logits = grown;
    b->cap_logits = rows;
    return FV_OK;
}

fv_status fv_batch_join(fv_batch *b, fv_generation *seq, fv_kv *kv, fv_evict *evict,
                        fv_text_codes *text, int32_t n_held, void *user) {
    if (b->n == b->n_max)
        return FV_FAIL(FV_EBUSY, "the batch is full: %d answers are running", b->n);
    if (b->n == b->cap_logits)
        FV_TRY(logits_for(b, 2 * b->n + 1 < b->n_max ? 2 * b->n + 1 : b->n_max));
    b->list[b->n++] = (member){.seq = seq,
                               .kv = kv,
                               .evict = evict,
                               .text = text,
                               .n_held = n_held,
                               .n_told = n_held,
                               .user = user};
    return FV_OK;
}

void fv_batch_speculate(fv_batch *b, const fv_generation *seq, fv_speculation *s) {
    for (int32_t i = 0; i < b->n; i++)
        if (b->list[i].seq == seq) b->list[i].spec = s;
}

void fv_batch_weigh_drafts(fv_batch *b, bool measured) { b->drafts_all = !measured; }

int32_t fv_batch_leave(fv_batch *b, const fv_generation *seq) {
    for (int32_t i = 0; i < b->n; i++) {
        if (b->list[i].seq != seq) continue;
        int32_t n_held = b->list[i].n_held;
        memmove(&b->list[i], &b->list[i + 1], (size_t)(b->n - i - 1) * sizeof *b->list);
        b->n--;
        return n_held;
    }
    return -1;
}

static fv_status evict(fv_decoder *dec, const member *m) {
    int32_t n_ids, n_prompt;
    if (m->text) FV_TRY(fv_text_codes_step(m->text, dec, m->kv, m->n_held));
    if (!m->evict) return FV_OK;
    fv_generation_ids(m->seq, &n_ids, &n_prompt);
    return fv_evict_step(m->evict, m->kv, n_ids - n_prompt);
}

/* Evicts entries and compresses text before the step; removes answers for which that fails. */
static void evict_all(fv_batch *b, fv_batch_on_event on_event, void *ctx) {
    int32_t n = b->n;
    b->n = 0;
    for (int32_t i = 0; i < n; i++) {
        member m = b->list[i];
        fv_batch_event e = {.user = m.user, .seq = m.seq, .status = evict(b->dec, &m)};
        if (e.status == FV_OK)
            b->list[b->n++] = m;
        else
            on_event(ctx, &e);
    }
}

/* Returns how many rows may run before text becomes due. */
static int32_t until_due(const member *m) {
    return m->text ? fv_text_until(&m->text->rule, m->text->n_prompt, m->n_held) : INT32_MAX;
}

/* Plans which rows run now: one for each answer, and as many prompt rows as a step may have. */
static int32_t plan_step(fv_batch *b) {
    int32_t n_seq = 0, left = b->prompt_tokens;
    for (int32_t i = 0; i < b->n; i++) {
        member *m = &b->list[i];
        int32_t n_ids, n_prompt;
        const int32_t *ids = fv_generation_ids(m->seq, &n_ids, &n_prompt);
        int32_t pending = n_ids - m->n_held;
        m->n_now = pending == 1 || pending < left ? pending : left;
        if (m->n_now > until_due(m)) m->n_now = until_due(m);
        m->last = m->n_now == pending;
        if (pending > 1) left -= m->n_now;
        if (m->n_now == 0) continue;
        b->step[n_seq++] = (fv_step_seq){.kv = m->kv,
                                         .n = m->n_now,
                                         .ids = ids + m->n_held,
                                         .pos = m->n_held,
                                         .partial = !m->last};
    }
    return n_seq;
}

/* ---- drafts ----------------------------------------------------------------------------- */

/* How many drafted rows an answer has memory and tokens for, before text becomes due. */
static int32_t drafts_most(const member *m) {
    int32_t most = fv_generation_left(m->seq) - 1, rows = m->spec->rows_end - m->n_held - 1;
    int32_t due = until_due(m) - 1;
    if (rows < most) most = rows;
    return due < most ? due : most;
}

/* Appends drafts to the rows of a step in which each answer has one row. */
static void append_drafts(fv_batch *b) {
    for (int32_t i = 0; i < b->n; i++) {
        member *m = &b->list[i];
        m->n_draft = m->spec && m->begun ? m->spec->draft.n : 0;
        if (m->n_draft == 0) continue;
        m->drafted[0] = b->step[i].ids[0];
        memcpy(&m->drafted[1], m->spec->draft.id, (size_t)m->n_draft * sizeof *m->drafted);
        b->step[i].ids = m->drafted;
        b->step[i].n = 1 + m->n_draft;
        b->step[i].n_before = m->n_draft;
    }
}

/* Has the draft model guess what is left to it. Returns the rows of all drafts. */
static int32_t fill_drafts(fv_batch *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++) {
        const member *m = &b->list[i];
        int32_t n_ids, n_prompt;
        if (!m->spec || !m->begun) continue;
        const int32_t *ids = fv_generation_ids(m->seq, &n_ids, &n_prompt);
        fv_speculation_fill(m->spec, ids, n_ids);
        n += m->spec->draft.n;
    }
    return n;
}

/* Drafts for all answers that speculate, unless the step has rows of prompts. Returns the rows of logits. */
static int32_t plan_drafts(fv_batch *b, int32_t n_seq) {
    int32_t n_spec = 0, rows = 0;
    b->modelled = false;
    bool plain = n_seq == b->n && n_seq <= FV_DRAFT_ROWS_MOST;
    for (int32_t i = 0; i < b->n; i++) {
        if (b->list[i].spec) b->list[i].spec->draft.n = 0;
        b->list[i].n_draft = 0;
        rows += b->list[i].last;
        plain = plain && b->list[i].last && b->list[i].n_now == 1;
    }
    for (int32_t i = 0; plain && i < b->n; i++) {
        member *m = &b->list[i];
        if (!m->spec || !m->begun) continue;
        int32_t n_ids, n_prompt;
        const int32_t *ids = fv_generation_ids(m->seq, &n_ids, &n_prompt);
        fv_speculation_propose(m->spec, ids, n_ids, drafts_most(m));
        b->spec[n_spec++] = m->spec;
    }
    if (n_spec == 0) return rows;
    for (int32_t i = 0; i < n_spec; i++) b->modelled |= b->spec[i]->is_open;
    const fv_step_costs *costs = b->drafts_all ? NULL : &b->costs[b->modelled];
    if (fv_speculation_trim(b->spec, n_spec, b->n, costs) == 0) return rows;
    int32_t n = fill_drafts(b);
    if (n == 0) return rows;
    if (logits_for(b, rows + n) != FV_OK) {
        for (int32_t i = 0; i < n_spec; i++) b->spec[i]->draft.n = 0;
        return rows;
    }
    append_drafts(b);
    return rows + n;
}

/* Measures a step that had no rows of prompts. Returns the time that it would have taken without drafts. */
static double note_time(fv_batch *b, int32_t n_seq, int32_t rows, double seconds) {
    int32_t run = 0;
    for (int32_t i = 0; i < n_seq; i++) run += b->step[i].n;
    if (run != rows) return 0;
    if (rows == n_seq) fv_step_costs_note(&b->costs[!b->modelled], n_seq, 0, seconds);
    fv_step_costs_note(&b->costs[b->modelled], n_seq, rows - n_seq, seconds);
    return fv_step_costs_plain(&b->costs[b->modelled], n_seq);
}

/* ---- tokens ----------------------------------------------------------------------------- */

/* Runs on any thread: answers share no state. */
static void choose(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    choice *c = &((fv_batch *)arg)->choice[i];
    fv_batch_event *e = &c->event;
    (void)be, (void)slot;
    e->status = fv_generation_take(e->seq, e->logits, &e->token, &e->text, &e->n_text);
    e->finish = fv_generation_finish(e->seq);
    if (e->status != FV_OK) snprintf(c->failure, sizeof c->failure, "%s", fv_last_error());
}

/* Chooses number `nth` of the step's tokens, of each answer that has one, in parallel, because sampling from a large
 * vocabulary takes time. Returns how many there are in *n. */
static fv_status choose_nth(fv_batch *b, int32_t n_member, int32_t nth, int32_t *n) {
    *n = 0;
    for (int32_t i = 0; i < n_member; i++) {
        member *m = &b->list[i];
        if (m->over) continue;
        b->chooses[*n] = m;
        b->choice[(*n)++].event = (fv_batch_event){
            .user = m->user, .seq = m->seq, .logits = m->logits + (size_t)nth * b->vocab};
    }
    return *n ? fv_backend_each(fv_decoder_backend(b->dec), *n, choose, b) : FV_OK;
}

/* Settles what the token says about the next draft, and tells it. The store has the rows of the tokens before it. */
static void tell(member *m, const choice *c, int32_t nth, const double seconds[2],
                 fv_batch_on_event on_event, void *ctx) {
    fv_batch_event e = c->event;
    bool rejected = nth < m->n_draft;
    m->n_held += nth > 0;
    m->gone = e.status != FV_OK || e.finish != FV_FINISH_NOT;
    if (rejected && !m->gone && e.token->id == m->drafted[1 + nth]) rejected = false;
    m->over = m->gone || rejected || nth == m->n_draft;
    if (m->over && nth < m->n_draft) {
        e.n_wasted = m->n_draft - nth;
        fv_kv_cut(m->kv, e.n_wasted);
    }
    if (m->over && m->spec && m->begun)
        fv_speculation_note(m->spec, nth, rejected && !m->gone, seconds[0], seconds[1]);
    e.n_rows = m->n_held - m->n_told;
    m->n_told = m->n_held;
    m->begun = true;
    if (e.status != FV_OK) (void)FV_FAIL(e.status, "%s", c->failure);
    on_event(ctx, &e);
}

/* Chooses and tells all tokens of a step. seconds: that it took, and would have taken without drafts. */
static fv_status tell_all(fv_batch *b, int32_t n_member, const double seconds[2],
                          fv_batch_on_event on_event, void *ctx) {
    const float *logits = b->logits.data;
    for (int32_t i = 0; i < n_member; i++) {
        member *m = &b->list[i];
        m->n_held += m->n_now;
        m->over = !m->last;
        m->gone = false;
        m->logits = logits;
        if (m->last) logits += (size_t)(1 + m->n_draft) * b->vocab;
    }
    for (int32_t nth = 0, n = 1; n > 0; nth++) {
        FV_TRY(choose_nth(b, n_member, nth, &n));
        for (int32_t i = 0; i < n; i++)
            tell(b->chooses[i], &b->choice[i], nth, seconds, on_event, ctx);
    }
    return FV_OK;
}

fv_status fv_batch_step(fv_batch *b, fv_batch_on_event on_event, void *ctx) {
    evict_all(b, on_event, ctx);
    int32_t n = b->n, n_seq = plan_step(b), stay = 0;
    double begin_s = fv_clock_s(), seconds[2];
    int32_t rows = plan_drafts(b, n_seq);
    if (rows <= n)
        begin_s = fv_clock_s(); /* drafts that came to nothing are no part of a plain step */
    b->n = 0;
    FV_TRY(fv_model_runner_run(b->runner, b->step, n_seq, b->logits.data));
    seconds[0] = fv_clock_s() - begin_s;
    seconds[1] = note_time(b, n_seq, rows, seconds[0]);
    FV_TRY(tell_all(b, n, seconds, on_event, ctx));
    for (int32_t i = 0; i < n; i++)
        if (!b->list[i].gone) b->list[stay++] = b->list[i];
    b->n = stay;
    return FV_OK;
}
