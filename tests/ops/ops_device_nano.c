/* Questions about images, by a trained checkpoint, on a device beside the CPU: greedy tokens, and
 * the logits that they were taken from.
 *
 *     FOVEA_ITEMS=FILE FOVEA_ITEMS_CHECKPOINT=DIR [FOVEA_ITEMS_COUNT=N] ops_device_nano
 *
 * FILE was written by tests/parity/nano_items.c from DIR; the first N items are asked. Prompts run
 * one by one, answers together, so that a batch shrinks as they end; keys and values are bf16. A
 * device that rounds the inputs of its products gives other logits, and may choose another token
 * where two are close: 99.5 % of the answers must be the CPU's. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kv/kv.h"
#include "model/net/decoder.h"
#include "model/net/step.h"
#include "model/net/vision.h"
#include "tests/ops/device_test.h"
#include "tests/ops/nano_items.h"

enum { GROUP = 8, TOKENS = 256, ALLOWED = 5 }; /* allowed: of 1000 answers that differ */
static const double LOGITS_NEAR = 3e-2;        /* relative, of the norm */

typedef struct reader {
    const char *at, *end;
} reader;

static const void *take(reader *r, size_t bytes) {
    const char *p = r->at;
    if (bytes > (size_t)(r->end - p)) {
        printf("FAILED: the file of items ends too early\n");
        exit(1);
    }
    r->at += bytes;
    return p;
}

static reader map_file(const char *path) {
    struct stat s;
    int fd = open(path, O_RDONLY);
    void *p = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &s) == 0)
        p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        printf("FAILED: %s cannot be read\n", path);
        exit(1);
    }
    close(fd);
    return (reader){p, (const char *)p + s.st_size};
}

/* ---- the checkpoint ---------------------------------------------------------------------- */

typedef struct items {
    items_head head;
    items_weights w;
    reader *file;    /* [n_file] */
    reader tensor;   /* the next one */
    reader item;     /* the next one */
    const char *dir; /* of the checkpoint */
} items;

static void place(void *arg, fv_tensor *t) {
    items *x = arg;
    items_tensor at;
    memcpy(&at, take(&x->tensor, sizeof at), sizeof at);
    if (at.file < 0) return;
    reader from = x->file[at.file];
    (void)take(&from, (size_t)at.offset);
    size_t bytes = (size_t)at.rows * (size_t)at.cols * fv_dtype_bytes(at.dtype);
    *t = fv_tensor_of((void *)(uintptr_t)take(&from, bytes), at.dtype, at.rows, at.cols);
}

static items items_open(const char *path, const char *dir) {
    items x = {.item = map_file(path), .dir = dir};
    memcpy(&x.head, take(&x.item, sizeof x.head), sizeof x.head);
    if (strncmp(x.head.magic, ITEMS_MAGIC, sizeof x.head.magic) != 0) {
        printf("FAILED: %s is no file of items\n", path);
        exit(1);
    }
    x.file = room((size_t)x.head.n_file * sizeof *x.file);
    for (int i = 0; i < x.head.n_file; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%.63s", dir, (const char *)take(&x.item, ITEMS_NAME));
        x.file[i] = map_file(name);
    }
    size_t bytes = (size_t)x.head.n_tensor * sizeof(items_tensor);
    x.tensor.at = take(&x.item, bytes);
    x.tensor.end = x.item.at;
    size_t n_text = (size_t)x.head.cfg.text.n_layer, n_tower = (size_t)x.head.cfg.vision.n_layer;
    x.w.text.layer = calloc(n_text, sizeof *x.w.text.layer);
    x.w.tower.layer = calloc(n_tower, sizeof *x.w.tower.layer);
    if (!x.w.text.layer || !x.w.tower.layer) must(FV_ENOMEM);
    items_tensors(&x.head.cfg, &x.w, place, &x);
    return x;
}

static void items_close(items *x) {
    free(x->file);
    free(x->w.text.layer);
    free(x->w.tower.layer);
}

/* ---- an answer --------------------------------------------------------------------------- */

typedef struct question {
    items_item head;
    int32_t *ids;  /* [n] */
    float *pixels; /* [n_image, 3, S, S] */
} question;

typedef struct answer {
    int32_t n, token[TOKENS];
    float *logits; /* [vocab] after the prompt */
} answer;

static question question_take(items *x) {
    question q;
    const fv_model_config *c = &x->head.cfg;
    size_t plane = (size_t)c->vision.image * (size_t)c->vision.image;
    memcpy(&q.head, take(&x->item, sizeof q.head), sizeof q.head);
    size_t n = (size_t)q.head.n * sizeof *q.ids, n_byte = (size_t)q.head.n_image * 3 * plane;
    q.ids = room(n);
    memcpy(q.ids, take(&x->item, n), n);
    const uint8_t *bytes = take(&x->item, n_byte);
    q.pixels = room(n_byte * sizeof *q.pixels);
    for (size_t i = 0; i < n_byte; i++) q.pixels[i] = x->head.value[i / plane % 3][bytes[i]];
    return q;
}

/* ---- the network on a backend ------------------------------------------------------------- */

typedef struct network {
    fv_backend *be;
    const fv_model_config *cfg;
    fv_decoder *dec;
    fv_vision *vision;
    fv_model_runner *runner;
    fv_kv_pool *pool;
} network;

static network network_open(fv_backend *be, items *x) {
    const fv_text_config *c = &x->head.cfg.text;
    network n = {.be = be, .cfg = &x->head.cfg};
    fv_kv_shape shape = {
        .n_layer = c->n_layer, .n_kv = c->n_kv, .d_head = c->d_head, .dtype = FV_BF16};
    must(fv_decoder_open(be, c, &x->w.text, &n.dec));
    must(fv_vision_open(be, &n.cfg->vision, &x->w.tower, &x->w.projector, &n.vision));
    must(fv_model_runner_open(n.dec, &n.runner));
    must(fv_kv_pool_open(be->device, &shape, 0, &n.pool));
    return n;
}

static void network_close(network *n) {
    fv_kv_pool_close(n->pool);
    fv_model_runner_close(n->runner);
    fv_vision_close(n->vision);
    fv_decoder_close(n->dec);
}

/* Embeds the prompt: its ids, with the images' embeddings in their places. */
static void embed(network *n, const question *q, const uint8_t *seg, fv_tensor x) {
    const fv_model_config *c = n->cfg;
    fv_device *dev = n->be->device;
    int32_t rows = q->head.n_image * fv_vision_tokens(&c->vision);
    size_t bytes = (size_t)c->text.d_model * sizeof(float);
    fv_buf buf;
    must(fv_buf_alloc(dev, (size_t)rows * bytes, FV_BUF_DEVICE, &buf));
    fv_vision_out out = {.embeds = fv_tensor_of(buf.data, FV_F32, rows, c->text.d_model)};
    must(fv_vision_encode(n->vision, q->pixels, q->head.n_image, &out));
    must(fv_decoder_embed(n->dec, q->ids, q->head.n, x));
    for (int32_t i = 0, at = 0; i < q->head.n; i++)
        if (seg[i] == FV_SEG_VISUAL)
            must(dev->ops->copy_async(dev, fv_tensor_rows(x, i, 1).data,
                                      fv_tensor_rows(out.embeds, at++, 1).data, bytes));
    fv_buf_free(&buf);
}

/* Prefills the prompt into a new store; gives the logits after it. */
static fv_kv *prefill(network *n, const question *q, float *logits) {
    const fv_text_config *c = &n->cfg->text;
    int32_t rows = q->head.n, n_visual = 0;
    int32_t *pos = room((size_t)rows * sizeof *pos);
    uint8_t *seg = room((size_t)rows);
    fv_kv *kv;
    fv_buf x;
    for (int32_t i = 0; i < rows; i++) {
        seg[i] = q->ids[i] == n->cfg->image_token ? FV_SEG_VISUAL : FV_SEG_TEXT;
        n_visual += seg[i] == FV_SEG_VISUAL;
        pos[i] = i;
    }
    must(fv_kv_open(n->pool, &kv));
    for (int32_t l = 0; l < c->n_layer; l++) must(fv_kv_extent(kv, l, n_visual));
    must(fv_buf_alloc(n->be->device, (size_t)rows * (size_t)c->d_model * 4, FV_BUF_DEVICE, &x));
    fv_forward_seq seq = {.kv = kv, .n_rows = rows, .pos = pos, .seg = seg, .wanted = 1};
    fv_forward_batch pass = {
        .x = fv_tensor_of(x.data, FV_F32, rows, c->d_model), .n_seq = 1, .seq = &seq};
    embed(n, q, seg, pass.x);
    must(fv_decoder_layers(n->dec, &pass, 0, c->n_layer));
    must(fv_decoder_logits(n->dec, pass.out, logits));
    fv_buf_free(&x);
    free(pos);
    free(seg);
    return kv;
}

/* Adds the likeliest token; false when the answer has ended. */
static bool choose(const network *n, const question *q, answer *a, const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < n->cfg->n_vocab_used; i++)
        if (logits[i] > logits[best]) best = i;
    a->token[a->n++] = best;
    for (int32_t i = 0; i < n->cfg->n_eos; i++)
        if (n->cfg->eos[i] == best) return false;
    return a->n < q->head.max_tokens && a->n < TOKENS;
}

/* Answers a group of questions; unfinished answers run together. */
static void answer_all(network *n, const question *q, answer *a, int32_t count) {
    size_t vocab = (size_t)n->cfg->text.vocab;
    fv_kv *kv[GROUP];
    bool runs[GROUP];
    float *logits = room(GROUP * vocab * sizeof *logits);
    for (int32_t i = 0; i < count; i++) {
        kv[i] = prefill(n, &q[i], a[i].logits);
        runs[i] = choose(n, &q[i], &a[i], a[i].logits);
    }
    for (;;) {
        fv_step_seq step[GROUP];
        int32_t n_step = 0;
        for (int32_t i = 0; i < count; i++)
            if (runs[i])
                step[n_step++] = (fv_step_seq){.kv = kv[i],
                                               .n = 1,
                                               .ids = &a[i].token[a[i].n - 1],
                                               .pos = q[i].head.n + a[i].n - 1};
        if (n_step == 0) break;
        must(fv_model_runner_run(n->runner, step, n_step, logits));
        for (int32_t i = 0, at = 0; i < count; i++)
            if (runs[i]) runs[i] = choose(n, &q[i], &a[i], logits + vocab * (size_t)at++);
    }
    for (int32_t i = 0; i < count; i++) fv_kv_close(kv[i]);
    free(logits);
}

/* ---- comparison -------------------------------------------------------------------------- */

typedef struct difference {
    int32_t n, n_other; /* answers; answers that differ from the CPU's */
    double most;        /* of logits */
} difference;

static double logits_error(const float *x, const float *y, size_t n) {
    double diff = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)x[i] * (double)x[i];
    }
    return sqrt(diff / all);
}

static void compare(const question *q, const answer *host, const answer *there, size_t vocab,
                    difference *d) {
    double e = logits_error(host->logits, there->logits, vocab);
    check(e < LOGITS_NEAR, "item %d (%s): logits differ by %g", d->n, q->head.task, e);
    bool same = host->n == there->n &&
                memcmp(host->token, there->token, (size_t)host->n * sizeof *host->token) == 0;
    if (!same) printf("  item %d (%s): another answer\n", d->n, q->head.task);
    d->most = e > d->most ? e : d->most;
    d->n_other += !same;
    d->n++;
}

static void run_group(items *x, network *on, int32_t count, difference *d) {
    size_t vocab = (size_t)x->head.cfg.text.vocab;
    question q[GROUP];
    answer a[2][GROUP] = {0};
    for (int32_t i = 0; i < count; i++) {
        q[i] = question_take(x);
        for (int k = 0; k < 2; k++) a[k][i].logits = room(vocab * sizeof(float));
    }
    for (int k = 0; k < 2; k++) answer_all(&on[k], q, a[k], count);
    for (int32_t i = 0; i < count; i++) {
        compare(&q[i], &a[0][i], &a[1][i], vocab, d);
        for (int k = 0; k < 2; k++) free(a[k][i].logits);
        free(q[i].ids);
        free(q[i].pixels);
    }
}

int main(void) {
    const char *path = getenv("FOVEA_ITEMS"), *dir = getenv("FOVEA_ITEMS_CHECKPOINT");
    const char *count = getenv("FOVEA_ITEMS_COUNT");
    if (!path || !dir || access(path, R_OK) != 0) {
        printf("skip: no items: FOVEA_ITEMS and FOVEA_ITEMS_CHECKPOINT name none\n");
        return 77;
    }
    items x = items_open(path, dir);
    int32_t n = count ? atoi(count) : x.head.n_item;
    if (n > x.head.n_item) n = x.head.n_item;
    device_test d = device_open("auto");
    fv_backend cpu;
    fv_backend_options opt = {.isa = "auto"};
    must(fv_backend_open(&cpu, "cpu", &opt));
    network on[2] = {network_open(&cpu, &x), network_open(&d.be, &x)};
    difference diff = {0};
    group("answers on the device: the CPU's tokens, logits near");
    for (int32_t i = 0; i < n; i += GROUP) run_group(&x, on, n - i < GROUP ? n - i : GROUP, &diff);
    check(diff.n > 0 && diff.n_other * 1000 <= diff.n * ALLOWED,
          "%d of %d answers are not the CPU's", diff.n_other, diff.n);
    printf("%d of %d answers are the CPU's; logits differ by at most %.2g of their norm\n",
           diff.n - diff.n_other, diff.n, diff.most);
    for (int k = 0; k < 2; k++) network_close(&on[k]);
    fv_backend_close(&cpu);
    device_close(&d);
    items_close(&x);
    return summary();
}
