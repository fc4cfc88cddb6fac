/* Compares the speed of compression policies with `exact` in the same run.
 *
 *   prefill   one request with one image and a question: the text model's prefill, and TTFT from
 *             the image's bytes, in this process without a network
 *   slice     the same for two layers of 7B dimensions with exact, pack=svd and pack=latent: the
 *             cost of compression
 *   decode    tokens per second in the KV memory of 8 exact requests: one prompt is prefilled and
 *             handed off in this process until the memory is full
 *
 * pack=latent needs checkpoints with directions (fovea calibrate --latent).
 *
 * exact runs before and after each policy, so that a slow moment of the machine affects both; a
 * ratio compares a policy with the mean of these two runs. The output is the median over the
 * rounds, with minimum and maximum. CPU times are listed too, since other load changes them less.
 *
 *     bench_policies --checkpoint build/bench/small --slice build/bench/slice --image demo.png */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/copies.h"
#include "bench/program.h"
#include "cli/bench/samples.h"
#include "common/clock.h"
#include "common/file.h"

enum { CHUNK = 512, GROUPS = 8, EXACT_REQUESTS = 8, MAX_ROUND = 99, TOKENS = 64 };

typedef struct row {
    const char *name, *policy;
    /* Target: at most this fraction of exact's prefill time or, when decoding, at least this
     * multiple of exact's tokens per second; 0: none. */
    double mark;
    fv_samples wall, cpu, ttft; /* seconds; when decoding, per token */
    /* Policy / exact; when decoding, exact / policy. */
    fv_samples wall_ratio, cpu_ratio, ttft_ratio;
    double visual_tokens; /* per layer, on average */
    copies *copies;       /* the answers when decoding */
} row;

#define ST3 "prune=pvtp,layer=3/32,stride=7/32,first=0.5,ratio=0.1225"

static row prefill_rows[] = {
    {.name = "exact", .policy = ""},
    {.name = "pvtp (7B setting of its paper)", .policy = ST3, .mark = 0.55},
    {.name = "visipruner, filter at mid-depth",
     .policy = "prune=visipruner,filter=15/32",
     .mark = 0.65},
    {.name = "vla (map of its paper)", .policy = "lazy=vla,map=paper_like", .mark = 0.93},
    {.name = "pvtp + vla", .policy = ST3 ";lazy=vla,map=paper_like"},
    {.name = "pack=svd", .policy = "pack=svd", .mark = 1.12},
    {.name = "quality", .policy = "preset=quality"},
    {.name = "pack=latent", .policy = "pack=latent", .mark = 1.02},
};

static row slice_rows[] = {
    {.name = "exact", .policy = ""},
    {.name = "pack=svd", .policy = "pack=svd", .mark = 1.05},
    {.name = "pack=latent", .policy = "pack=latent", .mark = 1.02},
};

/* preset=latent with keys=codes. */
#define LATENT_CODES                                                                               \
    "prune=fastv,layer=28/32,keep=0.5;pack=latent,budget=1/64,compress_text=all,bits_text=4,"      \
    "keys=codes;evict=vta,tau=640"

static row decode_rows[] = {
    {.name = "exact", .policy = ""},
    {.name = "quality", .policy = "preset=quality", .mark = 2},
    {.name = "long", .policy = "preset=long"},
    {.name = "fovea", .policy = "preset=fovea"},
    {.name = "pack=latent", .policy = "pack=latent"},
    {.name = "pack=latent, keys=codes", .policy = "pack=latent,keys=codes"},
    {.name = "latent", .policy = "preset=latent", .mark = 4},
    {.name = "latent, keys=codes", .policy = LATENT_CODES},
};

typedef struct bench {
    fv_options *options;
    fv_engine e;
    fv_kv_pool *pool;
    char *image;
    size_t image_bytes;
    fv_image_cache *cache;    /* with capacity 0 */
    int32_t n_visual, n_text; /* of the image, and of the question */
    float *logits;            /* [vocab] */
    json_t *json;
} bench;

static bool wants(const bench *b, const char *what) {
    const char *only = fv_options_string(b->options, "only");
    return !only || strstr(only, what);
}

/* ---- opening ------------------------------------------------------------------------------ */

static void open_engine(bench *b, const char *checkpoint) {
    fv_engine_options opt = {.checkpoint = checkpoint,
                             .backend = "auto",
                             .isa = "auto",
                             .compute = fv_options_string(b->options, "compute"),
                             .kv_dtype = fv_options_string(b->options, "kv-dtype"),
                             .threads = (int32_t)fv_options_int(b->options, "threads"),
                             .vision = true};
    bench_must(fv_engine_open(&opt, &b->e));
    const fv_model_config *cfg = fv_checkpoint_config(b->e.ck);
    fv_kv_shape shape = fv_engine_kv_shape(&b->e, b->e.kv_dtype);
    bench_must(fv_kv_pool_open(b->e.be.device, &shape, 0, &b->pool));
    bench_must(fv_image_cache_open(0, &b->cache));
    b->logits = malloc((size_t)cfg->text.vocab * sizeof *b->logits);
    if (!b->logits) bench_must(FV_FAIL(FV_ENOMEM, "out of memory for logits"));
}

static void close_engine(bench *b) {
    free(b->logits);
    fv_image_cache_close(b->cache);
    fv_kv_pool_close(b->pool);
    fv_engine_close(&b->e);
}

static void make_plan(const bench *b, const char *policy, int32_t n_visual, int32_t n_text,
                      fv_plan *out) {
    fv_prompt prompt = {.n_visual = n_visual, .n_text = n_text, .n_image = 1};
    fv_plan_shape shape = fv_plan_shape_of(&b->e, b->e.kv_dtype, &prompt);
    fv_policy p;
    bench_must(fv_policy_parse(policy, &p));
    bench_must(fv_plan_make(&p, &shape, out));
    if (out->note[FV_STAGE_PACK][0])
        bench_must(FV_FAIL(FV_EINVAL, "%s: %s", policy, out->note[FV_STAGE_PACK]));
}

/* Prefills as a prefill worker does. */
static void prefill(bench *b, fv_prefill_request *req) {
    static fv_pack_report packed;
    int32_t n_layer = fv_checkpoint_config(b->e.ck)->text.n_layer;
    fv_prefill_options opt = {.chunk = CHUNK, .group = (n_layer + GROUPS - 1) / GROUPS};
    packed = (fv_pack_report){0};
    req->packed = &packed;
    bench_must(fv_prefill_run(b->e.dec, req, 1, &opt, b->logits));
    if (packed.status != FV_OK) bench_must(FV_FAIL(packed.status, "%s", packed.text));
}

/* ---- prefill ------------------------------------------------------------------------------ */

typedef struct times {
    double wall, cpu, ttft;
} times;

static times prefill_once(bench *b, row *r) {
    static const fv_chat_turn turn = {
        .role = "user", .text = "What is in the image?", .n_image = 1};
    static fv_prefill_job job;
    fv_prefill_job *j = &job;
    int32_t n_layer = fv_checkpoint_config(b->e.ck)->text.n_layer;
    fv_job_image image = {.bytes = b->image, .n = b->image_bytes};
    fv_prefill_options opt = {.chunk = CHUNK, .group = (n_layer + GROUPS - 1) / GROUPS};
    times t;
    job = (fv_prefill_job){.engine = &b->e,
                           .cache = b->cache,
                           .pool = b->pool,
                           .form = {.chat_template = "", .n_turn = 1, .turn = &turn},
                           .n_image = 1,
                           .image = &image,
                           .generation = fv_engine_generation_options(&b->e, true)};
    job.generation.max_tokens = TOKENS;
    bench_must(fv_policy_parse(r->policy, &job.policy));
    bench_must(fv_prefill_job_open(j));
    double begin_s = fv_clock_s();
    bench_must(fv_prefill_job_encode_all(j));
    bench_must(fv_prefill_job_begin(j));
    double wall = fv_clock_s(), cpu = bench_cpu_s(0);
    bench_must(fv_prefill_jobs_run(&j, 1, &opt, b->logits));
    t.wall = fv_clock_s() - wall;
    t.cpu = bench_cpu_s(0) - cpu;
    t.ttft = fv_clock_s() - begin_s;
    bench_must(fv_prefill_job_packed(j));
    r->visual_tokens = 0;
    for (int32_t l = 0; l < n_layer; l++)
        r->visual_tokens += (double)job.visual_tokens[l] / n_layer;
    b->n_visual = job.prompt.n_visual;
    b->n_text = job.prompt.n_text;
    fv_prefill_job_free(j);
    return t;
}

static void note_time(fv_samples *s, fv_samples *ratio, double t, double exact, bool inverse) {
    bench_must(fv_samples_add(s, t));
    bench_must(fv_samples_add(ratio, inverse ? exact / t : t / exact));
}

static void note(row *r, times t, times exact) {
    bool inverse = r->copies != NULL;
    note_time(&r->wall, &r->wall_ratio, t.wall, exact.wall, inverse);
    note_time(&r->cpu, &r->cpu_ratio, t.cpu, exact.cpu, inverse);
    note_time(&r->ttft, &r->ttft_ratio, t.ttft, exact.ttft, inverse);
}

/* Runs all rows; row 0 is exact. The first call of each row warms up memory and weights. */
static void run_rows(bench *b, times (*once)(bench *b, row *r), row *rows, int n, int n_round) {
    times before;
    for (int i = 0; i < n; i++) once(b, &rows[i]);
    for (int round = 0; round < n_round; round++) {
        before = once(b, &rows[0]);
        note(&rows[0], before, before);
        for (int i = 1; i < n; i++) {
            times t = once(b, &rows[i]), after = once(b, &rows[0]);
            note(&rows[i], t,
                 (times){0.5 * (before.wall + after.wall), 0.5 * (before.cpu + after.cpu),
                         0.5 * (before.ttft + after.ttft)});
            note(&rows[0], after, after);
            before = after;
        }
    }
}

/* ---- the table ---------------------------------------------------------------------------- */

static double middle(fv_samples *s) { return fv_samples_quantile(s, 0.5); }

static json_t *spread(fv_samples *s) {
    return json_pack("{s:f, s:f, s:f}", "median", middle(s), "min", fv_samples_quantile(s, 0),
                     "max", fv_samples_quantile(s, 1));
}

static void print_rows(bench *b, const char *what, row *rows, int n) {
    json_t *list = json_array();
    printf("\n%s: %d layers, %d visual and %d text tokens\n", what,
           fv_checkpoint_config(b->e.ck)->text.n_layer, b->n_visual, b->n_text);
    printf("%-32s %9s %9s %21s %8s %6s %9s %8s %10s\n", "", "wall ms", "cpu ms", "of exact, wall",
           "cpu", "mark", "TTFT ms", "of exact", "vis tokens");
    for (int i = 0; i < n; i++) {
        row *r = &rows[i];
        char mark[16] = "";
        if (r->mark > 0) snprintf(mark, sizeof mark, "%.2f", r->mark);
        printf("%-32s %9.1f %9.1f %8.3f (%.3f-%.3f) %8.3f %6s %9.1f %8.3f %10.1f\n", r->name,
               1e3 * middle(&r->wall), 1e3 * middle(&r->cpu), middle(&r->wall_ratio),
               fv_samples_quantile(&r->wall_ratio, 0), fv_samples_quantile(&r->wall_ratio, 1),
               middle(&r->cpu_ratio), mark, 1e3 * middle(&r->ttft), middle(&r->ttft_ratio),
               r->visual_tokens);
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f}", "name", r->name,
                      "policy", r->policy, "wall_s", spread(&r->wall), "cpu_s", spread(&r->cpu),
                      "wall_of_exact", spread(&r->wall_ratio), "cpu_of_exact",
                      spread(&r->cpu_ratio), "ttft_s", spread(&r->ttft), "ttft_of_exact",
                      spread(&r->ttft_ratio), "mark", r->mark, "visual_tokens", r->visual_tokens));
    }
    fflush(stdout);
    json_object_set_new(b->json, what, list);
}

static void bench_rows(bench *b, const char *what, const char *checkpoint, row *rows, int n) {
    open_engine(b, checkpoint);
    run_rows(b, prefill_once, rows, n, (int)fv_options_int(b->options, "rounds"));
    print_rows(b, what, rows, n);
    close_engine(b);
}

/* ---- decode ------------------------------------------------------------------------------- */

/* A prompt of text, made-up image tokens and text. */
typedef struct long_prompt {
    int32_t n, n_visual;
    int32_t *ids;
    uint8_t *seg;
    float *embeds;
} long_prompt;

static long_prompt make_long(const bench *b) {
    const fv_text_config *text = &fv_checkpoint_config(b->e.ck)->text;
    int32_t n_visual = (int32_t)fv_options_int(b->options, "visual"), around = 16;
    long_prompt p = {.n = n_visual + 2 * around, .n_visual = n_visual};
    size_t n_number = (size_t)n_visual * (size_t)text->d_model;
    uint64_t state = 1;
    p.ids = calloc((size_t)p.n, sizeof *p.ids);
    p.seg = malloc((size_t)p.n);
    p.embeds = malloc(n_number * sizeof *p.embeds);
    if (!p.ids || !p.seg || !p.embeds) bench_must(FV_FAIL(FV_ENOMEM, "out of memory for a prompt"));
    memset(p.seg, FV_SEG_TEXT, (size_t)p.n);
    memset(p.seg + around, FV_SEG_VISUAL, (size_t)n_visual);
    for (int32_t j = 0; j < p.n; j++) p.ids[j] = 10 + j % 100;
    for (size_t i = 0; i < n_number; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        p.embeds[i] = (float)((int32_t)(state >> 32)) * 0x1p-36f;
    }
    return p;
}

/* Hands off as many answers under a policy as fit into `bytes`; 0: one, to measure its size. */
static copies *fill(bench *b, const long_prompt *p, const char *policy, size_t bytes) {
    static fv_plan plan;
    const fv_text_config *text = &fv_checkpoint_config(b->e.ck)->text;
    copies *c;
    fv_kv *kv;
    make_plan(b, policy, p->n_visual, p->n - p->n_visual, &plan);
    bench_must(fv_kv_open(b->pool, &kv));
    fv_prefill_request req = {.n = p->n,
                              .ids = p->ids,
                              .seg = p->seg,
                              .embeds = fv_tensor_of(p->embeds, FV_F32, p->n_visual, text->d_model),
                              .plan = &plan,
                              .kv = kv};
    prefill(b, &req);
    prefilled from = {.n = p->n,
                      .ids = p->ids,
                      .seg = p->seg,
                      .plan = &plan,
                      .kv = kv,
                      .logits = b->logits,
                      .max_tokens = TOKENS};
    bench_must(copies_open(&b->e, &from, bytes, bytes ? 1024 : 1, &c));
    fv_kv_close(kv);
    return c;
}

/* Runs a step of all answers; returns seconds per token. */
static times step_once(bench *b, row *r) {
    (void)b;
    double wall = fv_clock_s(), cpu = bench_cpu_s(0);
    bench_must(copies_step(r->copies));
    int n = copies_count(r->copies);
    return (times){(fv_clock_s() - wall) / n, (bench_cpu_s(0) - cpu) / n, 0};
}

static void print_decode(bench *b, row *rows, int n, const long_prompt *p, size_t bytes) {
    json_t *list = json_array();
    const char *why;
    const fv_latent *latent = fv_engine_latent(&b->e, b->e.kv_dtype, &why);
    int32_t n_dir = latent ? latent->info.n_dir : 0;
    printf("\ndecode: %d visual and %d text tokens, products in %s, KV in %s, %.1f MiB for all "
           "requests; %d directions\n",
           p->n_visual, p->n - p->n_visual, fv_compute_name(b->e.be.compute),
           fv_dtype_name(b->e.kv_dtype), (double)bytes / (1 << 20), n_dir);
    printf("%-32s %9s %9s %12s %24s %8s %6s\n", "", "requests", "MiB each", "tokens/s",
           "of exact's, wall", "cpu", "mark");
    for (int i = 0; i < n; i++) {
        row *r = &rows[i];
        int count = copies_count(r->copies);
        double each = (double)copies_bytes(r->copies) / count;
        char mark[16] = "";
        if (r->mark > 0) snprintf(mark, sizeof mark, "%.2f", r->mark);
        printf("%-32s %9d %9.1f %12.2f %11.2f (%.2f-%.2f) %8.2f %6s\n", r->name, count,
               each / (1 << 20), 1 / middle(&r->wall), middle(&r->wall_ratio),
               fv_samples_quantile(&r->wall_ratio, 0), fv_samples_quantile(&r->wall_ratio, 1),
               middle(&r->cpu_ratio), mark);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:i, s:f, s:o, s:o, s:o, s:o, s:f}", "name", r->name,
                            "policy", r->policy, "requests", count, "bytes_each", each,
                            "wall_s_per_token", spread(&r->wall), "cpu_s_per_token",
                            spread(&r->cpu), "wall_times_exact", spread(&r->wall_ratio),
                            "cpu_times_exact", spread(&r->cpu_ratio), "mark", r->mark));
    }
    json_object_set_new(b->json, "decode", list);
    json_object_set_new(b->json, "directions", json_integer(n_dir));
}

static void bench_decode(bench *b, const char *checkpoint) {
    enum { N = sizeof decode_rows / sizeof *decode_rows };
    open_engine(b, checkpoint);
    long_prompt p = make_long(b);
    copies *one = fill(b, &p, "", 0);
    size_t bytes = EXACT_REQUESTS * copies_bytes(one);
    copies_close(one);
    for (int i = 0; i < N; i++) decode_rows[i].copies = fill(b, &p, decode_rows[i].policy, bytes);
    run_rows(b, step_once, decode_rows, N, (int)fv_options_int(b->options, "steps"));
    print_decode(b, decode_rows, N, &p, bytes);
    for (int i = 0; i < N; i++) copies_close(decode_rows[i].copies);
    free(p.ids);
    free(p.seg);
    free(p.embeds);
    close_engine(b);
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL, "of prefill and decode", 0, 0},
        {"slice", NULL, FV_OPTION_STRING, "DIR", NULL, "of the slice", 0, 0},
        {"image", NULL, FV_OPTION_STRING, "FILE", NULL, "the picture of all prompts", 0, 0},
        {"rounds", NULL, FV_OPTION_INT, "N", "3", "of prefills, of which the median", 1, MAX_ROUND},
        {"steps", NULL, FV_OPTION_INT, "N", "7", "of decoding, likewise", 1, TOKENS / 8},
        {"visual", NULL, FV_OPTION_INT, "N", "2048", "visual tokens of a prompt that is decoded", 1,
         65536},
        {"compute", NULL, FV_OPTION_STRING, "TYPE", "auto", "products: f32 or bf16", 0, 0},
        {"kv-dtype", NULL, FV_OPTION_STRING, "TYPE", "bf16", "KV cache: f32, bf16 or f16", 0, 0},
        {"threads", NULL, FV_OPTION_INT, "N", "0", "threads; 0 = all cores", 0, 256},
        {"only", NULL, FV_OPTION_STRING, "WHAT", NULL, "prefill, slice, decode, or two of them", 0,
         0},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the numbers as JSON", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    static bench b;
    b.options = bench_options(table, N_OPTION, argc, argv,
                              "bench_policies --checkpoint DIR --image FILE [options]",
                              "Policies against exact: prefill, first token, decoding.");
    const char *checkpoint = fv_options_string(b.options, "checkpoint");
    const char *slice = fv_options_string(b.options, "slice");
    const char *image = fv_options_string(b.options, "image");
    if (!checkpoint || !image)
        bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR and --image FILE are needed"));
    bench_must(fv_file_read(image, fv_image_limits_default().bytes_max, &b.image, &b.image_bytes));
    b.json = json_object();
    if (wants(&b, "prefill"))
        bench_rows(&b, "prefill", checkpoint, prefill_rows,
                   sizeof prefill_rows / sizeof *prefill_rows);
    if (slice && wants(&b, "slice"))
        bench_rows(&b, "slice", slice, slice_rows, sizeof slice_rows / sizeof *slice_rows);
    if (wants(&b, "decode")) bench_decode(&b, checkpoint);
    bench_write_json(b.options, b.json);
    free(b.image);
    fv_options_free(b.options);
    return 0;
}
