/* Measures tokens per second of the text model in one process: the prefill of a prompt of random
 * tokens, then steps of N sequences, each with a copy of that prompt. compare_engines runs this
 * program.
 *
 * The JSON also has the bytes that a step reads: all weights with their scales (with the output
 * head, without the input embedding), and the KV cache of all sequences half-way through their
 * answers. Beside seconds there are those of the process's CPU time, which with one thread hardly depend on what else
 * the machine does.
 *
 *     bench_engine --checkpoint DIR --prompt 640 --tokens 32 --batch 1,16 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/program.h"
#include "common/log.h"
#include "model/engine.h"
#include "model/net/step.h"

enum { BATCH_MAX = 256 };

static const fv_option table[] = {
    {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL,
     "Hugging Face checkpoint directory, or GGUF file of a text model", 0, 0},
    {"prompt", NULL, FV_OPTION_INT, "N", "640", "tokens of a prompt", 1, 1 << 20},
    {"tokens", NULL, FV_OPTION_INT, "N", "32", "steps after it", 1, 1 << 20},
    {"batch", NULL, FV_OPTION_STRING, "N,N,...", "1", "sequences of a step, ascending", 0, 0},
    {"compute", NULL, FV_OPTION_STRING, "TYPE", "auto", "data type of matrix products", 0, 0},
    {"kv-dtype", NULL, FV_OPTION_STRING, "TYPE", "bf16", "data type of keys and values", 0, 0},
    {"weights", NULL, FV_OPTION_STRING, "TYPE", "stored",
     "stored, int8, int4, int4-128, exact or dequantized", 0, 0},
    {"isa", NULL, FV_OPTION_STRING, "NAME", "auto", "CPU path", 0, 0},
    {"threads", NULL, FV_OPTION_INT, "N", "0", "0: all cores", 0, 256},
    {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the seconds here", 0, 0},
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A moment, or the time between two. */
typedef struct seconds {
    double wall, cpu;
} seconds;

static seconds now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (seconds){now_s(), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec};
}

static seconds since(seconds begin) {
    const seconds end = now();
    return (seconds){end.wall - begin.wall, end.cpu - begin.cpu};
}

typedef struct run {
    fv_engine e;
    fv_kv_pool *pool;
    fv_model_runner *runner;
    fv_kv *kv[BATCH_MAX];
    int32_t held[BATCH_MAX];         /* tokens in kv[i] */
    int32_t n_prompt, n_token, *ids; /* [n_prompt] */
    float *logits;
} run;

/* Prefills the prompt into a new KV store. */
static seconds prefill(run *r, fv_kv **kv) {
    bench_must(fv_kv_open(r->pool, kv));
    fv_step_seq seq = {.kv = *kv, .n = r->n_prompt, .ids = r->ids};
    const seconds begin = now();
    bench_must(fv_model_runner_run(r->runner, &seq, 1, r->logits));
    return since(begin);
}

/* Returns a new KV store with the entries of `from`. */
static fv_kv *copy(run *r, const fv_kv *from) {
    fv_kv *to;
    int32_t *pos = malloc((size_t)r->n_prompt * sizeof *pos);
    if (!pos) bench_must(FV_FAIL(FV_ENOMEM, "no memory for positions"));
    for (int32_t i = 0; i < r->n_prompt; i++) pos[i] = i;
    bench_must(fv_kv_open(r->pool, &to));
    const fv_kv_shape *s = fv_kv_get_shape(from);
    size_t row_bytes = (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    for (int32_t layer = 0; layer < s->n_layer; layer++) {
        bench_must(fv_kv_reserve(to, layer, r->n_prompt));
        bench_must(fv_kv_append(to, layer, FV_SEG_TEXT, pos, r->n_prompt));
        for (int32_t i = 0; i < 2 * s->n_kv; i++) { /* keys, then values */
            for (int32_t row = 0, n; row < r->n_prompt; row += n) {
                void *source, *target;
                bool value = i >= s->n_kv;
                int32_t head = i % s->n_kv;
                n = fv_kv_contiguous(from, layer, head, FV_SEG_TEXT, value, row, r->n_prompt,
                                     &source);
                n = fv_kv_contiguous(to, layer, head, FV_SEG_TEXT, value, row, row + n, &target);
                memcpy(target, source, (size_t)n * row_bytes);
            }
        }
    }
    free(pos);
    return to;
}

static size_t tensor_bytes(const fv_tensor *t) {
    size_t rows = (size_t)t->rows, cols = (size_t)t->cols;
    if (!t->data) return 0;
    if (!t->quant) return rows * cols * fv_dtype_bytes(t->dtype);
    const fv_quant *q = t->quant;
    if (!q->group) return rows * (cols + sizeof(float));
    size_t of_group = fv_dtype_bytes(q->scale_type);
    if (q->integers)
        of_group += q->offset ? sizeof(float) : 0;
    else
        of_group += (q->zero ? 1 : 0) + (q->min ? sizeof(float) : 0);
    return rows * (q->row_bytes + (size_t)q->groups * of_group);
}

/* Returns the bytes of all weights that a step reads. */
static size_t weight_bytes(const run *r) {
    const fv_text_weights *w = fv_checkpoint_text(r->e.ck);
    size_t bytes = tensor_bytes(&w->norm) + tensor_bytes(&w->head);
    for (int32_t i = 0; i < fv_decoder_config(r->e.dec)->n_layer; i++) {
        const fv_tensor *t = (const fv_tensor *)&w->layer[i]; /* a layer is tensors, one by one */
        _Static_assert(sizeof w->layer[i] % sizeof *t == 0, "and nothing else");
        for (size_t k = 0; k < sizeof w->layer[i] / sizeof *t; k++) bytes += tensor_bytes(&t[k]);
    }
    return bytes;
}

static size_t kv_bytes(const run *r, int32_t batch) {
    size_t bytes = 0;
    for (int32_t b = 0; b < batch; b++) bytes += fv_kv_bytes(r->kv[b], FV_SEG_TEXT);
    return bytes;
}

/* Runs n_token steps of the first `batch` sequences. */
static seconds decode(run *r, int32_t batch) {
    fv_step_seq seq[BATCH_MAX];
    const seconds begin = now();
    for (int32_t t = 0; t < r->n_token; t++) {
        for (int32_t b = 0; b < batch; b++)
            seq[b] = (fv_step_seq){
                .kv = r->kv[b], .n = 1, .ids = &r->ids[(t + b) % r->n_prompt], .pos = r->held[b]++};
        bench_must(fv_model_runner_run(r->runner, seq, batch, r->logits));
    }
    return since(begin);
}

static void open_run(run *r, const fv_options *o) {
    fv_engine_options opt = {.checkpoint = fv_options_string(o, "checkpoint"),
                             .backend = "cpu",
                             .isa = fv_options_string(o, "isa"),
                             .compute = fv_options_string(o, "compute"),
                             .kv_dtype = fv_options_string(o, "kv-dtype"),
                             .weights = fv_options_string(o, "weights"),
                             .threads = (int32_t)fv_options_int(o, "threads")};
    if (!opt.checkpoint) bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR is needed"));
    bench_must(fv_log_configure("warn"));
    bench_must(fv_engine_open(&opt, &r->e));
    fv_kv_shape shape = fv_engine_kv_shape(&r->e, r->e.kv_dtype);
    bench_must(fv_kv_pool_open(r->e.be.device, &shape, 0, &r->pool));
    bench_must(fv_model_runner_open(r->e.dec, &r->runner));
    r->n_prompt = (int32_t)fv_options_int(o, "prompt");
    r->n_token = (int32_t)fv_options_int(o, "tokens");
    size_t vocab = (size_t)fv_decoder_config(r->e.dec)->vocab;
    r->ids = malloc((size_t)r->n_prompt * sizeof *r->ids);
    r->logits = malloc(BATCH_MAX * vocab * sizeof *r->logits);
    if (!r->ids || !r->logits) bench_must(FV_FAIL(FV_ENOMEM, "no memory for logits"));
    uint32_t x = 17;
    for (int32_t i = 0; i < r->n_prompt; i++) {
        x = x * 1664525u + 1013904223u;
        r->ids[i] = (int32_t)((x >> 8) % (uint32_t)r->e.n_vocab);
    }
}

int main(int argc, char **argv) {
    static run r;
    fv_options *o = bench_options(table, sizeof table / sizeof *table, argc, argv,
                                  "bench_engine --checkpoint DIR [options]",
                                  "Tokens per second of prefill and decode.");
    open_run(&r, o);
    fv_kv *prompt;
    prefill(&r, &prompt); /* page in all memory */
    fv_kv_close(prompt);
    const seconds prefilled = prefill(&r, &prompt);
    json_t *decodes = json_object(), *decodes_cpu = json_object(), *kv = json_object();
    int32_t have = 0;
    for (const char *at = fv_options_string(o, "batch"); *at; at += strspn(at, ",")) {
        char *end;
        long batch = strtol(at, &end, 10);
        if (end == at || batch < have || batch < 1 || batch > BATCH_MAX)
            bench_must(FV_FAIL(FV_EINVAL, "--batch: ascending numbers from 1 to %d", BATCH_MAX));
        at = end;
        for (; have < batch; have++) {
            r.kv[have] = copy(&r, prompt);
            r.held[have] = r.n_prompt;
        }
        char name[16];
        snprintf(name, sizeof name, "%ld", batch);
        size_t before = kv_bytes(&r, (int32_t)batch);
        const seconds took = decode(&r, (int32_t)batch);
        size_t mean = (before + kv_bytes(&r, (int32_t)batch)) / 2;
        json_object_set_new(kv, name, json_integer((json_int_t)mean));
        json_object_set_new(decodes, name, json_real(took.wall));
        json_object_set_new(decodes_cpu, name, json_real(took.cpu));
        printf("batch %3ld: %8.1f tokens/s\n", batch, (double)batch * r.n_token / took.wall);
    }
    printf("prefill: %9.1f tokens/s (%s, %s, weights %s)\n", r.n_prompt / prefilled.wall,
           r.e.be.isa, fv_compute_name(r.e.be.compute), fv_options_string(o, "weights"));
    bench_write_json(o, json_pack("{s:f, s:f, s:o, s:o, s:s, s:I, s:o}", "prefill", prefilled.wall,
                                  "prefill_cpu", prefilled.cpu, "decode", decodes, "decode_cpu",
                                  decodes_cpu, "isa", r.e.be.isa, "weight_bytes",
                                  (json_int_t)weight_bytes(&r), "kv_bytes", kv));
    fv_kv_close(prompt);
    for (int32_t b = 0; b < have; b++) fv_kv_close(r.kv[b]);
    fv_model_runner_close(r.runner);
    fv_kv_pool_close(r.pool);
    fv_engine_close(&r.e);
    free(r.logits);
    free(r.ids);
    fv_options_free(o);
    return 0;
}
