/* Per item: the first policy's tokens and logits -> every policy along them -> sums. */
#include "cli/eval/follow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/progress.h"
#include "cli/client/table.h"
#include "cli/eval/session.h"

enum { SPANS = 4 };
static const int32_t SPAN_END[SPANS] = {10, 100, 1000,
                                        FV_FOLLOW_TOKENS_MAX}; /* tokens 1..10, ... */

/* Sums of one policy over all items. */
typedef struct sums {
    int32_t n_answer, n_whole; /* n_whole: answers without a different choice */
    int64_t n, same;           /* tokens; tokens that it would have chosen too */
    double before;             /* tokens before the first different choice */
    double divergence[SPANS];  /* divergence from the first policy's probabilities, in nats */
    int64_t n_span[SPANS];
    double surprise; /* -log of its probability of each token, */
    double own;      /* and of the first policy's */
    double bytes, bytes_end, bytes_exact;
} sums;

/* The first policy's answer to an item. */
typedef struct lead {
    int32_t n_vocab, n, most; /* n of `most` tokens so far */
    bool given;               /* the ids are a document's */
    int32_t *id;              /* [most] */
    float *logits;            /* [most, n_vocab] */
} lead;

/* A policy on one item. */
typedef struct walk {
    sums *sums;
    lead *lead;
    bool leads, over;
    int32_t n;     /* tokens so far */
    int32_t first; /* the first different choice; -1: none yet */
    fv_status status;
    size_t bytes, bytes_end, bytes_exact;
} walk;

static double log_total(const float *x, int32_t n) {
    double m = (double)x[0], sum = 0;
    for (int32_t i = 1; i < n; i++) m = fmax(m, (double)x[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - m);
    return m + log(sum);
}

static int32_t likeliest(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* sum p log (p / q), with p from `from` and q from `to` */
static double divergence(const float *from, const float *to, int32_t n) {
    double p_total = log_total(from, n), q_total = log_total(to, n), sum = 0;
    for (int32_t i = 0; i < n; i++) {
        double p = (double)from[i] - p_total;
        sum += exp(p) * (p - ((double)to[i] - q_total));
    }
    return fmax(sum, 0);
}

/* ---- one answer ----------------------------------------------------------------------------- */

static void compare(walk *w, const float *logits) {
    const lead *l = w->lead;
    const float *led = l->logits + (size_t)w->n * (size_t)l->n_vocab;
    sums *s = w->sums;
    int32_t span = 0, id = l->id[w->n];
    while (w->n >= SPAN_END[span]) span++;
    bool same = likeliest(logits, l->n_vocab) == id;
    if (!same && w->first < 0) w->first = w->n;
    s->same += same;
    s->n++;
    s->n_span[span]++;
    s->divergence[span] += divergence(led, logits, l->n_vocab);
    s->surprise += log_total(logits, l->n_vocab) - (double)logits[id];
    s->own += log_total(led, l->n_vocab) - (double)led[id];
}

/* n: the checkpoint's vocabulary, of which the first n_vocab ids may be sampled. */
static fv_status on_logits(void *user, const float *logits, int32_t n) {
    walk *w = user;
    lead *l = w->lead;
    (void)n;
    if (w->leads) {
        size_t row = (size_t)l->n_vocab;
        memcpy(l->logits + (size_t)w->n * row, logits, row * sizeof *logits);
        if (!l->given) l->id[l->n] = likeliest(logits, l->n_vocab);
        l->n++;
    }
    compare(w, logits);
    w->n++;
    return FV_OK;
}

static void on_over(void *user, fv_status st, fv_report *report) {
    walk *w = user;
    w->over = true;
    w->status = st;
    if (st != FV_OK) return;
    w->bytes = report->bytes_visual;
    w->bytes_end = report->bytes_visual_end;
    w->bytes_exact = report->bytes_raw - report->bytes_text;
}

static fv_ask ask_of(const fv_eval_follow *f, const fv_eval_session *s, int32_t policy,
                     const lead *l) {
    fv_ask ask = {.n_image = s->n_image,
                  .images = s->image,
                  .n_turn = s->n_chat,
                  .turns = s->chat,
                  .policy = f->policy[policy],
                  .sampling = fv_sampling_default(),
                  .max_tokens = f->n_token,
                  .ignore_eos = true,
                  .n_forced = policy || l->given ? l->most : 0,
                  .forced = l->id,
                  .first_held = f->first_held};
    fv_eval_document_ask(&s->document, &ask);
    return ask;
}

static void count(walk *w) {
    sums *s = w->sums;
    s->n_answer++;
    s->n_whole += w->first < 0;
    s->before += w->first < 0 ? w->n : w->first;
    s->bytes += (double)w->bytes;
    s->bytes_end += (double)w->bytes_end;
    s->bytes_exact += (double)w->bytes_exact;
}

/* Runs policies first .. first + n - 1 at once. */
static fv_status walk_some(const fv_eval_follow *f, fv_local *local, const fv_eval_session *s,
                           lead *l, sums *all, walk *w, int32_t first, int32_t n) {
    fv_ask_hooks hooks = {.logits = on_logits};
    for (int32_t i = 0; i < n; i++) {
        fv_ask ask = ask_of(f, s, first + i, l);
        w[i] = (walk){.sums = &all[first + i], .lead = l, .leads = first + i == 0, .first = -1};
        hooks.user = &w[i];
        FV_TRY(fv_local_begin(local, &ask, &hooks, on_over, &w[i]));
    }
    for (int32_t i = 0; i < n; i++) {
        while (!w[i].over) fv_local_step(local);
        if (w[i].status != FV_OK) return w[i].status;
        if (w[i].n < f->n_token)
            return FV_FAIL(FV_EINVAL,
                           "--follow %d: the checkpoint has positions for %d tokens of this answer",
                           f->n_token, w[i].n);
        count(&w[i]);
    }
    return FV_OK;
}

/* Makes the prompt of a document, and takes the tokens behind it if it has no question. */
static fv_status take_document(const fv_eval_follow *f, fv_local *local, fv_eval_session *s,
                               lead *l) {
    l->given = false;
    if (!s->own || !s->own->document) return FV_OK;
    FV_TRY(fv_eval_document_make(local, s->own, f->span, f->n_token, &s->document));
    l->given = s->document.n_after > 0;
    if (l->given) memcpy(l->id, s->document.id + s->document.n, (size_t)f->n_token * sizeof *l->id);
    return FV_OK;
}

static fv_status walk_item(const fv_eval_follow *f, fv_local *local, int32_t item, lead *l,
                           sums *all, walk *w) {
    fv_eval_session session;
    l->n = 0;
    FV_TRY(fv_eval_session_take(f->suite, f->side, 0, item, &session));
    fv_status st = fv_eval_session_failed(&session, take_document(f, local, &session, l));
    if (st == FV_OK) st = walk_some(f, local, &session, l, all, w, 0, 1);
    for (int32_t p = 1; p < f->n_policy && st == FV_OK; p += f->at_once) {
        int32_t n = f->n_policy - p < f->at_once ? f->n_policy - p : f->at_once;
        st = walk_some(f, local, &session, l, all, w, p, n);
    }
    fv_eval_session_leave(&session);
    return st;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *spans_json(const sums *s) {
    json_t *list = json_array();
    for (int32_t i = 0; i < SPANS && s->n_span[i]; i++)
        json_array_append_new(list, json_real(s->divergence[i] / (double)s->n_span[i]));
    return list;
}

static json_t *policy_json(const fv_eval_follow *f, const sums *s, int32_t policy) {
    double n = (double)s->n, answers = s->n_answer, all = 0;
    for (int32_t i = 0; i < SPANS; i++) all += s->divergence[i];
    return json_pack("{s:s, s:f, s:f, s:i, s:f, s:o, s:f, s:f, s:f, s:f, s:f}", "policy",
                     f->text[policy], "same", (double)s->same / n, "before_other",
                     s->before / answers, "whole", s->n_whole, "divergence", all / n, "spans",
                     spans_json(s), "perplexity", exp(s->surprise / n), "perplexity_first",
                     exp(s->own / n), "bytes_exact", s->bytes_exact / answers, "bytes_visual",
                     s->bytes / answers, "bytes_visual_end", s->bytes_end / answers);
}

static json_t *to_json(const fv_eval_follow *f, const sums *all) {
    json_t *list = json_array();
    for (int32_t p = 0; p < f->n_policy; p++)
        json_array_append_new(list, policy_json(f, &all[p], p));
    return json_pack("{s:i, s:i, s:s, s:i, s:o}", "tokens", f->n_token, "items", f->suite->n_item,
                     "first", f->first_held ? "held" : "prefill", "seed", f->suite->seed, "results",
                     list);
}

/* ---- the whole run -------------------------------------------------------------------------- */

static fv_status run(const fv_eval_follow *f, fv_local *local, fv_arena *arena, json_t **out) {
    lead l = {.n_vocab = fv_local_vocab(local), .most = f->n_token};
    sums *all;
    walk *w;
    fv_progress progress;
    FV_TRY(FV_ARENA_NEW(arena, f->n_policy, all));
    FV_TRY(FV_ARENA_NEW(arena, f->at_once, w));
    FV_TRY(FV_ARENA_NEW(arena, l.most, l.id));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)l.most * (size_t)l.n_vocab, l.logits));
    fv_progress_begin(&progress);
    fv_status st = FV_OK;
    for (int32_t i = 0; i < f->suite->n_item && st == FV_OK; i++) {
        st = walk_item(f, local, i, &l, all, w);
        fv_progress_show(&progress, i + 1, f->suite->n_item, "followed");
    }
    fv_progress_end(&progress);
    FV_TRY(st);
    *out = to_json(f, all);
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the results");
}

fv_status fv_eval_follow_run(const fv_eval_follow *f, fv_local *local, json_t **out) {
    fv_arena arena = {0};
    fv_status st = run(f, local, &arena, out);
    fv_arena_fini(&arena);
    return st;
}

/* ---- the table ------------------------------------------------------------------------------ */

static double number(const json_t *json, const char *key) {
    return json_number_value(json_object_get(json, key));
}

fv_status fv_eval_follow_print(FILE *to, const json_t *json) {
    static const char *const head[] = {"policy",     "same, %",    "before other", "whole",
                                       "divergence", "perplexity", "held, KiB",    "at end"};
    enum { COLUMNS = sizeof head / sizeof *head };
    fv_table t;
    size_t i;
    const json_t *r;
    fv_table_init(&t, COLUMNS);
    for (int32_t c = 0; c < COLUMNS; c++) fv_table_cell(&t, "%s", head[c]);
    json_array_foreach(json_object_get(json, "results"), i, r) {
        fv_table_cell(&t, "%s", json_string_value(json_object_get(r, "policy")));
        fv_table_number(&t, 100 * number(r, "same"), 2);
        fv_table_number(&t, number(r, "before_other"), 1);
        fv_table_cell(&t, "%d", (int)number(r, "whole"));
        fv_table_number(&t, number(r, "divergence"), 5);
        fv_table_number(&t, number(r, "perplexity"), 4);
        fv_table_number(&t, number(r, "bytes_visual") / 1024, 1);
        fv_table_number(&t, number(r, "bytes_visual_end") / 1024, 1);
    }
    fprintf(to,
            "along %d answers of %d tokens of the first policy; before other: tokens of a greedy "
            "answer before the first that differs, mean;\n"
            "whole: answers that never do; divergence from the first policy's probabilities in "
            "nats a token\n",
            (int)number(json, "items"), (int)number(json, "tokens"));
    fv_status st = fv_table_print(to, &t);
    fv_table_fini(&t);
    return st;
}
