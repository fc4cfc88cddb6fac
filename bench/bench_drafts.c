/* Measures decoding with drafts against decoding without, in one process: the text model of a checkpoint, N answers at
 * a time, and a source of drafts that is right as often as it is told, because it knows the answers from a first run. Random
 * weights do for that. Every run's tokens must be those of the first one.
 *
 *   all       every draft of eight tokens runs
 *   weighed   those that are worth their time, as on a worker
 *   lookup    sampled tokens, which do not repeat, by the prompt lookup: what drafts cost where there are none
 *
 * Runs with and without drafts alternate, after one of each; the medians of wall and CPU seconds are reported.
 *
 *     bench_drafts --checkpoint DIR --batch 1,4,16 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "common/clock.h"
#include "common/log.h"
#include "decode-worker/schedule/batch.h"
#include "decode-worker/speculate/lookup.h"
#include "model/engine.h"

enum { BATCH_MAX = 64, ROUNDS_MAX = 32, TOKENS_MAX = 4096 };

static const fv_option table[] = {
    {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL, "checkpoint directory", 0, 0},
    {"prompt", NULL, FV_OPTION_INT, "N", "640", "tokens of a prompt", 2, 1 << 20},
    {"tokens", NULL, FV_OPTION_INT, "N", "64", "tokens of an answer", 2, TOKENS_MAX},
    {"batch", NULL, FV_OPTION_STRING, "N,N,...", "1,4,16", "answers at a time", 0, 0},
    {"rounds", NULL, FV_OPTION_INT, "N", "3", "runs of each kind", 1, ROUNDS_MAX},
    {"compute", NULL, FV_OPTION_STRING, "TYPE", "auto", "data type of matrix products", 0, 0},
    {"kv-dtype", NULL, FV_OPTION_STRING, "TYPE", "bf16", "data type of keys and values", 0, 0},
    {"weights", NULL, FV_OPTION_STRING, "TYPE", "stored", "stored, int8, int4 or int4-128", 0, 0},
    {"threads", NULL, FV_OPTION_INT, "N", "0", "0: all cores", 0, 256},
    {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the results here", 0, 0},
};

typedef struct answer {
    fv_kv *kv; /* holds the prompt between runs */
    int32_t *ids;
    int32_t truth[TOKENS_MAX], n_truth; /* its tokens after the first, from a run without drafts */
    int32_t n;                          /* of them so far */
    fv_speculation spec;
    fv_generation *seq;
    int32_t percent; /* of drafted tokens that are right */
} answer;

typedef struct bench {
    fv_engine e;
    fv_kv_pool *pool;
    int32_t n_prompt, n_token;
    float *logits; /* [vocab] after the prompt */
    answer a[BATCH_MAX];
} bench;

typedef enum kind { ALL, WEIGHED, LOOKUP } kind;
static const char *const kind_names[] = {"all", "weighed", "lookup"};

typedef struct times {
    double wall[ROUNDS_MAX], cpu[ROUNDS_MAX];
} times;

/* Whether the draft's token at this place of the answer is right: the same places in every run. */
static bool is_right(const answer *a, int32_t at) {
    uint32_t x = (uint32_t)at * 2654435761u;
    return (int32_t)((x >> 16) % 100) < a->percent;
}

static void draft_known(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    const answer *a = user;
    (void)ids, (void)n;
    for (int32_t at = a->n; at < a->n_truth && out->n < most; at++)
        out->id[out->n++] = is_right(a, at) ? a->truth[at] : a->truth[at] ^ 1;
    out->grade = FV_DRAFT_MODEL_GRADE - 1;
}

static void on_event(void *ctx, const fv_batch_event *e) {
    answer *a = e->user;
    bool first = *(bool *)ctx;
    bench_must(e->status);
    if (first) a->truth[a->n_truth++] = e->token->id;
    if (!first && a->truth[a->n] != e->token->id)
        bench_must(FV_FAIL(FV_EDATA, "token %d differs with drafts", a->n));
    a->n++;
}

/* Makes the answer's prompt and prefills it. */
static void prefill(bench *b, answer *a, uint32_t x) {
    fv_model_runner *runner;
    a->ids = malloc((size_t)b->n_prompt * sizeof *a->ids);
    if (!a->ids) bench_must(FV_FAIL(FV_ENOMEM, "no memory for a prompt"));
    for (int32_t i = 0; i < b->n_prompt; i++) {
        x = x * 1664525u + 1013904223u;
        a->ids[i] = (int32_t)((x >> 8) % (uint32_t)b->e.n_vocab);
    }
    bench_must(fv_model_runner_open(b->e.dec, &runner));
    bench_must(fv_kv_open(b->pool, &a->kv));
    fv_step_seq seq = {.kv = a->kv, .n = b->n_prompt, .ids = a->ids};
    bench_must(fv_model_runner_run(runner, &seq, 1, b->logits));
    fv_model_runner_close(runner);
}

/* Begins the answer with a first token that does not depend on the prompt's logits, which are gone. */
static void begin(const bench *b, answer *a, bool samples, uint64_t seed) {
    fv_generation_options opt = fv_engine_generation_options(&b->e, true);
    opt.max_tokens = b->n_token;
    opt.context = 1 << 24;
    if (samples) opt.sampling.temperature = 2;
    opt.sampling.seed = seed;
    int32_t *ids = malloc(((size_t)b->n_prompt + 1) * sizeof *ids);
    if (!ids) bench_must(FV_FAIL(FV_ENOMEM, "no memory for a prompt"));
    memcpy(ids, a->ids, (size_t)b->n_prompt * sizeof *ids);
    ids[b->n_prompt] = a->ids[0];
    bench_must(fv_generation_open(&opt, b->e.tok, ids, b->n_prompt + 1, b->n_prompt, &a->seq));
    free(ids);
    a->n = 0;
}

/* Runs n answers to their ends and takes their rows out of the stores again. draft: NULL: without drafts. */
static void run(bench *b, fv_batch *batch, int32_t n, bool first, bool samples, const kind *draft,
                double *wall, double *cpu) {
    fv_lookup *lookup[BATCH_MAX] = {0};
    fv_batch_weigh_drafts(batch, draft && *draft != ALL);
    for (int32_t i = 0; i < n; i++) {
        answer *a = &b->a[i];
        begin(b, a, samples, (uint64_t)i);
        a->spec = (fv_speculation){
            .source = {draft_known, a}, .n_vocab = b->e.n_vocab, .rows_end = INT32_MAX};
        bench_must(fv_batch_join(batch, a->seq, a->kv, NULL, NULL, b->n_prompt, a));
        if (draft && *draft == LOOKUP) {
            bench_must(fv_lookup_open(a->ids, b->n_prompt, NULL, 0, &lookup[i]));
            a->spec.source = fv_lookup_source(lookup[i]);
        }
        if (draft) fv_batch_speculate(batch, a->seq, &a->spec);
    }
    double wall_s = fv_clock_s(), cpu_s = bench_cpu_s(0);
    while (fv_batch_count(batch) > 0) bench_must(fv_batch_step(batch, on_event, &first));
    *wall = fv_clock_s() - wall_s;
    *cpu = bench_cpu_s(0) - cpu_s;
    for (int32_t i = 0; i < n; i++) {
        fv_kv_cut(b->a[i].kv, b->n_token - 1); /* the last token never ran */
        fv_generation_close(b->a[i].seq);
        fv_lookup_close(lookup[i]);
    }
}

/* Compares rounds with and without drafts of n answers, and reports them. */
static json_t *compare(bench *b, int32_t n, kind k, int32_t percent, int32_t rounds) {
    times with = {0}, without = {0};
    double s;
    bool samples = k == LOOKUP;
    fv_batch *batch; /* keeps what it has measured from round to round, as a worker does */
    uint64_t drafted = 0, kept = 0;
    for (int32_t i = 0; i < n; i++) b->a[i].percent = percent, b->a[i].n_truth = 0;
    bench_must(fv_batch_open(b->e.dec, n, 1, &batch));
    run(b, batch, n, true, samples, NULL, &s, &s);
    run(b, batch, n, false, samples, &k, &s, &s);
    for (int32_t r = 0; r < rounds; r++) {
        run(b, batch, n, false, samples, NULL, &without.wall[r], &without.cpu[r]);
        run(b, batch, n, false, samples, &k, &with.wall[r], &with.cpu[r]);
        for (int32_t i = 0; i < n; i++)
            drafted += b->a[i].spec.n_drafted, kept += b->a[i].spec.n_kept;
    }
    fv_batch_close(batch);
    double tokens = (double)n * (b->n_token - 1), plain = bench_median(without.wall, rounds);
    double fast = bench_median(with.wall, rounds), cpu = bench_median(with.cpu, rounds),
           plain_cpu = bench_median(without.cpu, rounds);
    printf(
        "%-8s %3d %% right  %2d answers: %8.1f tokens/s, without %8.1f: %5.2fx; CPU time %5.2fx; "
        "%llu of %llu drafts kept\n",
        kind_names[k], percent, n, tokens / fast, tokens / plain, plain / fast, plain_cpu / cpu,
        (unsigned long long)kept, (unsigned long long)drafted);
    fflush(stdout);
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:I, s:I}", "kind", kind_names[k],
                     "percent_right", percent, "answers", n, "tokens_per_second", tokens / fast,
                     "without", tokens / plain, "speedup", plain / fast, "speedup_cpu",
                     plain_cpu / cpu, "drafted", (json_int_t)drafted, "kept", (json_int_t)kept);
}

static void open_bench(bench *b, const fv_options *o) {
    fv_engine_options opt = {.checkpoint = fv_options_string(o, "checkpoint"),
                             .backend = "cpu",
                             .isa = "auto",
                             .compute = fv_options_string(o, "compute"),
                             .kv_dtype = fv_options_string(o, "kv-dtype"),
                             .weights = fv_options_string(o, "weights"),
                             .threads = (int32_t)fv_options_int(o, "threads")};
    if (!opt.checkpoint) bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR is needed"));
    bench_must(fv_log_configure("warn"));
    bench_must(fv_engine_open(&opt, &b->e));
    fv_kv_shape shape = fv_engine_kv_shape(&b->e, b->e.kv_dtype);
    bench_must(fv_kv_pool_open(b->e.be.device, &shape, 0, &b->pool));
    b->n_prompt = (int32_t)fv_options_int(o, "prompt");
    b->n_token = (int32_t)fv_options_int(o, "tokens");
    b->logits = malloc((size_t)fv_decoder_config(b->e.dec)->vocab * sizeof *b->logits);
    if (!b->logits) bench_must(FV_FAIL(FV_ENOMEM, "no memory for logits"));
}

int main(int argc, char **argv) {
    static bench b;
    static const int32_t percents[] = {0, 50, 100};
    fv_options *o = bench_options(table, sizeof table / sizeof *table, argc, argv,
                                  "bench_drafts --checkpoint DIR [options]",
                                  "Decoding with drafts against decoding without.");
    int32_t have = 0, rounds = (int32_t)fv_options_int(o, "rounds");
    json_t *results = json_array();
    open_bench(&b, o);
    for (const char *at = fv_options_string(o, "batch"); *at; at += strspn(at, ",")) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > BATCH_MAX)
            bench_must(FV_FAIL(FV_EINVAL, "--batch: numbers from 1 to %d", BATCH_MAX));
        at = end;
        for (; have < n; have++) prefill(&b, &b.a[have], 17 + (uint32_t)have);
        for (kind k = ALL; k <= WEIGHED; k++)
            for (size_t i = 0; i < sizeof percents / sizeof *percents; i++)
                json_array_append_new(results, compare(&b, (int32_t)n, k, percents[i], rounds));
        json_array_append_new(results, compare(&b, (int32_t)n, LOOKUP, 0, rounds));
    }
    bench_write_json(o,
                     json_pack("{s:s, s:i, s:i, s:i, s:o}", "isa", b.e.be.isa, "prompt", b.n_prompt,
                               "tokens", b.n_token, "rounds", rounds, "runs", results));
    for (int32_t i = 0; i < have; i++) {
        fv_kv_close(b.a[i].kv);
        free(b.a[i].ids);
    }
    fv_kv_pool_close(b.pool);
    fv_engine_close(&b.e);
    free(b.logits);
    fv_options_free(o);
    return 0;
}
