/* Measures what LoRA adapters cost a decode step: batches in which no row has one, all rows have the same, and rows take
 * turns among three and none. Adapters are random and on every matrix of the text model's layers. The kinds of batch run in
 * turn, round after round, and the medians are compared.
 *
 *     bench_adapters --checkpoint DIR --batch 1,4,16 --rank 16 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/program.h"
#include "common/log.h"
#include "model/engine.h"
#include "model/net/step.h"

enum { BATCH_MAX = 64, ROUNDS_MAX = 64, ADAPTERS = 3 };

typedef enum kind { NONE, ONE, THREE, N_KIND } kind;

static const char *const kind_names[N_KIND] = {"none", "one", "three_and_none"};

static const fv_option table[] = {
    {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL, "Hugging Face checkpoint directory", 0, 0},
    {"batch", NULL, FV_OPTION_STRING, "N,N,...", "1,4,16", "sequences of a step", 0, 0},
    {"rank", NULL, FV_OPTION_INT, "N", "16", "of the adapters", 1, 1024},
    {"prompt", NULL, FV_OPTION_INT, "N", "64", "tokens that each sequence has", 1, 1 << 16},
    {"tokens", NULL, FV_OPTION_INT, "N", "8", "steps of a round", 1, 1 << 16},
    {"rounds", NULL, FV_OPTION_INT, "N", "9", "rounds", 1, ROUNDS_MAX},
    {"weights", NULL, FV_OPTION_STRING, "TYPE", "stored", "stored, int8, int4 or int4-128", 0, 0},
    {"isa", NULL, FV_OPTION_STRING, "NAME", "auto", "CPU path", 0, 0},
    {"threads", NULL, FV_OPTION_INT, "N", "0", "0: all cores", 0, 256},
    {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the seconds of a step here", 0, 0},
};

typedef struct run {
    fv_engine e;
    fv_kv_pool *pool;
    fv_model_runner *runner;
    fv_arena arena;
    fv_adapter adapter[ADAPTERS];
    int32_t n_prompt, n_token, n_round, *ids; /* [n_prompt] */
    float *logits;
} run;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- adapters ----------------------------------------------------------------------------- */

static fv_tensor matrix(run *r, int32_t rows, int32_t cols, uint32_t *state) {
    float *x;
    bench_must(FV_ARENA_NEW(&r->arena, (size_t)rows * (size_t)cols, x));
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++) {
        *state = *state * 1664525u + 1013904223u;
        x[i] = 1e-3f * ((float)(*state >> 8) * 0x1p-23f - 1);
    }
    return fv_tensor_of(x, FV_F32, rows, cols);
}

static void make_adapter(run *r, int32_t rank, uint32_t state, fv_adapter *out) {
    const fv_text_weights *w = fv_checkpoint_text(r->e.ck);
    int32_t n = fv_decoder_config(r->e.dec)->n_layer;
    static const size_t adapted[] = {offsetof(fv_text_layer, q),    offsetof(fv_text_layer, k),
                                     offsetof(fv_text_layer, v),    offsetof(fv_text_layer, o),
                                     offsetof(fv_text_layer, gate), offsetof(fv_text_layer, up),
                                     offsetof(fv_text_layer, down)};
    bench_must(FV_ARENA_NEW(&r->arena, n, out->layer));
    for (int32_t l = 0; l < n; l++)
        for (size_t i = 0; i < sizeof adapted / sizeof *adapted; i++) {
            size_t at = adapted[i] / sizeof(fv_tensor);
            const fv_tensor *t = (const fv_tensor *)&w->layer[l] + at;
            if (!t->data) continue;
            fv_adapter_pair *p = &out->layer[l].pair[at];
            p->a = matrix(r, rank, t->cols, &state);
            p->b = matrix(r, t->rows, rank, &state);
        }
}

/* ---- a batch ------------------------------------------------------------------------------ */

static const fv_adapter *adapter_of(const run *r, kind k, int32_t row) {
    if (k == NONE) return NULL;
    if (k == ONE) return &r->adapter[0];
    return row % (ADAPTERS + 1) < ADAPTERS ? &r->adapter[row % (ADAPTERS + 1)] : NULL;
}

/* Returns the seconds of a step of `batch` sequences, each after a prompt of its own. */
static double measure(run *r, kind k, int32_t batch) {
    fv_kv *kv[BATCH_MAX];
    fv_step_seq seq[BATCH_MAX];
    for (int32_t b = 0; b < batch; b++) {
        bench_must(fv_kv_open(r->pool, &kv[b]));
        fv_kv_get_sequence(kv[b])->adapter = adapter_of(r, k, b);
        seq[b] = (fv_step_seq){.kv = kv[b], .n = r->n_prompt, .ids = r->ids};
    }
    bench_must(fv_model_runner_run(r->runner, seq, batch, r->logits));
    double begin = now_s();
    for (int32_t t = 0; t < r->n_token; t++) {
        for (int32_t b = 0; b < batch; b++)
            seq[b] = (fv_step_seq){
                .kv = kv[b], .n = 1, .ids = &r->ids[(t + b) % r->n_prompt], .pos = r->n_prompt + t};
        bench_must(fv_model_runner_run(r->runner, seq, batch, r->logits));
    }
    double s = (now_s() - begin) / r->n_token;
    for (int32_t b = 0; b < batch; b++) fv_kv_close(kv[b]);
    return s;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static json_t *compare(run *r, int32_t batch) {
    double s[N_KIND][ROUNDS_MAX], median[N_KIND];
    json_t *out = json_object();
    for (int32_t i = 0; i < r->n_round; i++)
        for (int k = 0; k < N_KIND; k++) s[k][i] = measure(r, (kind)k, batch);
    for (int k = 0; k < N_KIND; k++) {
        qsort(s[k], (size_t)r->n_round, sizeof s[k][0], ascending);
        median[k] = s[k][r->n_round / 2];
        json_object_set_new(out, kind_names[k], json_real(median[k]));
    }
    printf("batch %2d: none %8.3f ms, one %8.3f ms (%.2f), three and none %8.3f ms (%.2f)\n", batch,
           1e3 * median[NONE], 1e3 * median[ONE], median[ONE] / median[NONE], 1e3 * median[THREE],
           median[THREE] / median[NONE]);
    return out;
}

static void open_run(run *r, const fv_options *o) {
    fv_engine_options opt = {.checkpoint = fv_options_string(o, "checkpoint"),
                             .backend = "cpu",
                             .isa = fv_options_string(o, "isa"),
                             .weights = fv_options_string(o, "weights"),
                             .threads = (int32_t)fv_options_int(o, "threads")};
    if (!opt.checkpoint) bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR is needed"));
    bench_must(fv_log_configure("warn"));
    bench_must(fv_engine_open(&opt, &r->e));
    fv_kv_shape shape = fv_engine_kv_shape(&r->e, r->e.kv_dtype);
    bench_must(fv_kv_pool_open(r->e.be.device, &shape, 0, &r->pool));
    bench_must(fv_model_runner_open(r->e.dec, &r->runner));
    for (uint32_t i = 0; i < ADAPTERS; i++)
        make_adapter(r, (int32_t)fv_options_int(o, "rank"), i + 1, &r->adapter[i]);
    r->n_prompt = (int32_t)fv_options_int(o, "prompt");
    r->n_token = (int32_t)fv_options_int(o, "tokens");
    r->n_round = (int32_t)fv_options_int(o, "rounds");
    r->ids = malloc((size_t)r->n_prompt * sizeof *r->ids);
    r->logits = malloc(BATCH_MAX * (size_t)fv_decoder_config(r->e.dec)->vocab * sizeof *r->logits);
    if (!r->ids || !r->logits) bench_must(FV_FAIL(FV_ENOMEM, "no memory for logits"));
    for (int32_t i = 0; i < r->n_prompt; i++)
        r->ids[i] = (int32_t)((uint32_t)i * 7919u % (uint32_t)r->e.n_vocab);
}

int main(int argc, char **argv) {
    static run r;
    fv_options *o = bench_options(table, sizeof table / sizeof *table, argc, argv,
                                  "bench_adapters --checkpoint DIR [options]",
                                  "Time of a decode step with LoRA adapters and without.");
    json_t *batches = json_object();
    open_run(&r, o);
    for (const char *at = fv_options_string(o, "batch"); *at; at += strspn(at, ",")) {
        char *end, name[16];
        long batch = strtol(at, &end, 10);
        if (end == at || batch < 1 || batch > BATCH_MAX)
            bench_must(FV_FAIL(FV_EINVAL, "--batch: numbers from 1 to %d", BATCH_MAX));
        at = end;
        snprintf(name, sizeof name, "%ld", batch);
        json_object_set_new(batches, name, compare(&r, (int32_t)batch));
    }
    bench_write_json(o, json_pack("{s:I, s:s, s:s, s:o}", "rank",
                                  (json_int_t)fv_options_int(o, "rank"), "weights",
                                  fv_options_string(o, "weights"), "isa", r.e.be.isa, "seconds",
                                  batches));
    fv_model_runner_close(r.runner);
    fv_kv_pool_close(r.pool);
    fv_engine_close(&r.e);
    fv_arena_fini(&r.arena);
    free(r.logits);
    free(r.ids);
    fv_options_free(o);
    return 0;
}
