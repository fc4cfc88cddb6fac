/* Decode steps on a device that holds launches back and replays graphs: the same bits as launch by
 * launch, while requests join and leave and KV grows across blocks. */
#include <dlfcn.h>

#include "kv/kv.h"
#include "model/net/decoder.h"
#include "model/net/step.h"
#include "tests/ops/device_test.h"

enum { N_LAYER = 2, D_MODEL = 64, D_FFN = 24, HEADS = 2, D_HEAD = 64, VOCAB = 24, ANSWERS = 5 };

/* ---- a network --------------------------------------------------------------------------- */

static const fv_text_config config = {.vocab = VOCAB,
                                      .d_model = D_MODEL,
                                      .d_ffn = D_FFN,
                                      .n_layer = N_LAYER,
                                      .n_head = HEADS,
                                      .n_kv = 1,
                                      .d_head = D_HEAD,
                                      .max_position = 1024,
                                      .rms_eps = 1e-5f,
                                      .act = FV_ACT_SILU,
                                      .rope = {.theta = 10000}};
static fv_text_layer layers[N_LAYER];
static fv_text_weights weights = {.layer = layers};

static fv_tensor weight(int rows, int cols) {
    fv_tensor t = tensor_new(FV_BF16, rows, cols, 0);
    fill_normal(&t, 0.2f);
    return t;
}

static void make_weights(void) {
    weights.embed = weight(VOCAB, D_MODEL);
    weights.norm = weight(1, D_MODEL);
    weights.head = weight(VOCAB, D_MODEL);
    for (int l = 0; l < N_LAYER; l++)
        layers[l] = (fv_text_layer){.attn_norm = weight(1, D_MODEL),
                                    .q = weight(HEADS * D_HEAD, D_MODEL),
                                    .k = weight(D_HEAD, D_MODEL),
                                    .v = weight(D_HEAD, D_MODEL),
                                    .o = weight(D_MODEL, HEADS * D_HEAD),
                                    .mlp_norm = weight(1, D_MODEL),
                                    .gate = weight(D_FFN, D_MODEL),
                                    .up = weight(D_FFN, D_MODEL),
                                    .down = weight(D_MODEL, D_FFN)};
}

static void free_weights(void) {
    fv_tensor *t = (fv_tensor *)layers;
    for (size_t i = 0; i < sizeof layers / (sizeof(fv_tensor)); i++) free(t[i].data);
    free(weights.embed.data);
    free(weights.norm.data);
    free(weights.head.data);
}

/* ---- a scenario: requests join, continue and end ----------------------------------------- */

typedef struct story {
    fv_model_runner *runner;
    fv_kv_pool *pool;
    fv_kv *kv[ANSWERS];
    int32_t pos[ANSWERS];
    float *logits; /* all of them, one step after the other */
    size_t n;
} story;

enum { STORY_LOGITS = 200 * VOCAB };

static const int32_t some_ids[] = {1, 7, 3, 22, 9, 14, 2, 19, 5, 11, 0, 23, 8};

/* n tokens for each of these requests. */
static void step(story *s, const char *who, int32_t n) {
    static int32_t ids[ANSWERS][256];
    fv_step_seq seq[ANSWERS];
    int32_t count = 0;
    for (; who[count]; count++) {
        int a = who[count] - 'A';
        for (int32_t i = 0; i < n; i++)
            ids[a][i] = some_ids[(s->pos[a] + i + a) % (int)(sizeof some_ids / sizeof *some_ids)];
        if (!s->kv[a]) must(fv_kv_open(s->pool, &s->kv[a]));
        seq[count] = (fv_step_seq){.kv = s->kv[a], .n = n, .ids = ids[a], .pos = s->pos[a]};
        s->pos[a] += n;
    }
    must(fv_model_runner_run(s->runner, seq, count, s->logits + s->n));
    s->n += (size_t)count * VOCAB;
}

static void leave(story *s, int a) {
    fv_kv_close(s->kv[a]);
    s->kv[a] = NULL;
    s->pos[a] = 0;
}

static float *tell(fv_backend *be, size_t *n) {
    story s = {.logits = room(STORY_LOGITS * sizeof(float))};
    fv_kv_shape shape = {.n_layer = N_LAYER, .n_kv = 1, .d_head = D_HEAD, .dtype = FV_BF16};
    fv_decoder *dec;
    must(fv_decoder_open(be, &config, &weights, &dec));
    must(fv_model_runner_open(dec, &s.runner));
    must(fv_kv_pool_open(be->device, &shape, 0, &s.pool));
    step(&s, "A", 60); /* prompts */
    step(&s, "B", 3);
    step(&s, "C", 20);
    for (int i = 0; i < 7; i++) step(&s, "ABC", 1); /* A reaches the end of a block */
    leave(&s, 1);
    for (int i = 0; i < 4; i++) step(&s, "AC", 1);
    step(&s, "D", 1);
    for (int i = 0; i < 4; i++) step(&s, "ACD", 1); /* as many as before, with other memory */
    leave(&s, 0);
    step(&s, "E", 5);
    for (int i = 0; i < 4; i++) step(&s, "DEC", 1); /* in another order */
    step(&s, "DEC", 2);
    for (int i = 0; i < 3; i++) step(&s, "DEC", 1);
    for (int a = 0; a < ANSWERS; a++)
        if (s.kv[a]) fv_kv_close(s.kv[a]);
    fv_kv_pool_close(s.pool);
    fv_model_runner_close(s.runner);
    fv_decoder_close(dec);
    *n = s.n;
    return s.logits;
}

/* ---- the emulated device ----------------------------------------------------------------- */

/* A function of the emulated plugin; NULL on a GPU. */
static void *emulated(const char *name) {
    static void *library;
    const char *dir = getenv("FOVEA_PLUGIN_DIR");
    if (dir && *dir && strcmp(dir, FOVEA_EMULATED) != 0) return NULL;
    if (!library) library = dlopen(FOVEA_EMULATED "/libfovea_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

typedef uint64_t count_fn(void);
typedef void refuse_fn(bool refuse);

static uint64_t graphs(void) {
    count_fn *launched = (count_fn *)(uintptr_t)emulated("fv_emu_graphs_launched");
    return launched ? launched() : 0;
}

/* ---- tests ------------------------------------------------------------------------------- */

static bool same(const float *x, const float *y, size_t n) {
    return memcmp(x, y, n * sizeof *x) == 0;
}

static void test_replay(const char *isa) {
    device_test d = device_open(isa);
    fv_backend_ops plain_ops = *d.be.ops;
    plain_ops.step_begin = NULL;
    plain_ops.step_end = NULL;
    fv_backend plain = d.be;
    plain.ops = &plain_ops;
    size_t n, n_plain;
    group(d.exact ? "steps in graphs, exact: the bits of the CPU"
                  : "steps in graphs: the bits of plain launches");
    float *by_launch = tell(&plain, &n_plain);
    uint64_t before = graphs();
    float *by_graph = tell(&d.be, &n);
    check(n == n_plain && same(by_graph, by_launch, n), "graphs against launches");
    if (emulated("fv_emu_graphs_launched"))
        check(graphs() > before + 10, "%d graphs ran", (int)(graphs() - before));
    if (d.exact) {
        float *by_cpu = tell(&d.plain, &n_plain);
        check(same(by_graph, by_cpu, n), "graphs against the CPU");
        free(by_cpu);
    }
    free(by_graph);
    by_graph = tell(&d.be, &n); /* another network, in the memory of the last one */
    check(same(by_graph, by_launch, n), "graphs of a network that came later");
    free(by_graph);
    free(by_launch);
    device_close(&d);
}

/* A device that makes no graphs still works. */
static void test_refused(void) {
    refuse_fn *refuse = (refuse_fn *)(uintptr_t)emulated("fv_emu_refuse_graphs");
    if (!refuse) return;
    device_test d = device_open("auto");
    size_t n, n_refused;
    group("no graphs can be made: the same bits");
    float *by_graph = tell(&d.be, &n);
    device_close(&d);
    d = device_open("auto");
    refuse(true);
    uint64_t before = graphs();
    float *refused = tell(&d.be, &n_refused);
    check(n == n_refused && same(by_graph, refused, n), "without graphs");
    check(graphs() == before, "a graph ran");
    refuse(false);
    free(by_graph);
    free(refused);
    device_close(&d);
}

/* A step whose operation fails has ended, and the next one works as before. */
static void test_failure(void) {
    device_test d = device_open("auto");
    group("a step in which something failed has ended");
    must(fv_backend_step_begin(&d.be, 1));
    fv_tensor bad = {.data = (void *)256, .dtype = FV_BF16, .rows = 1, .cols = 1, .ld = 1};
    check(d.be.ops->norm(&d.be, &(fv_norm_args){.x = bad, .w = bad, .y = bad}) != FV_OK, "norm");
    check(fv_backend_step_end(&d.be) == FV_OK, "%s", fv_last_error());
    check(fv_backend_step_end(&d.be) == FV_OK, "ended twice");
    size_t n, n_again;
    float *first = tell(&d.be, &n), *again = tell(&d.be, &n_again);
    check(n == n_again && same(first, again, n), "steps after it");
    free(first);
    free(again);
    device_close(&d);
}

int main(void) {
    make_weights();
    test_replay("auto");
    test_replay("exact");
    test_refused();
    test_failure();
    free_weights();
    return summary();
}
