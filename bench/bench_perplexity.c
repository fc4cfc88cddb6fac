/* Measures a text model's perplexity on a text: exp of the mean negative log-likelihood over
 * windows of a fixed length, each read from its own start, without each window's first token.
 *
 *     bench_perplexity --checkpoint FILE.gguf --text FILE [--compute TYPE] [--weights TYPE]
 *
 * The JSON also has the sum of each window, so that two runs can be compared in pairs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "common/file.h"
#include "common/log.h"
#include "model/engine.h"

static const fv_option table[] = {
    {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL,
     "Hugging Face checkpoint directory, or GGUF file of a text model", 0, 0},
    {"text", NULL, FV_OPTION_STRING, "FILE", NULL, "text to read", 0, 0},
    {"window", NULL, FV_OPTION_INT, "N", "512", "tokens of a window", 2, 1 << 20},
    {"windows", NULL, FV_OPTION_INT, "N", "0", "windows at most; 0: all of the text", 0, 1 << 20},
    {"compute", NULL, FV_OPTION_STRING, "TYPE", "auto", "data type of matrix products", 0, 0},
    {"kv-dtype", NULL, FV_OPTION_STRING, "TYPE", "auto", "data type of keys and values", 0, 0},
    {"weights", NULL, FV_OPTION_STRING, "TYPE", "stored",
     "stored, int8, int4, int4-128, exact or dequantized", 0, 0},
    {"threads", NULL, FV_OPTION_INT, "N", "0", "0: all cores", 0, 256},
    {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the sums of windows here", 0, 0},
};

/* Returns the sum of -log p over ids[1..], each given the tokens before it. */
static double read_window(fv_engine *e, fv_kv_pool *pool, const int32_t *ids, int32_t n,
                          float *logits) {
    const fv_text_config *cfg = fv_decoder_config(e->dec);
    int32_t *pos = calloc((size_t)n, sizeof *pos);
    uint8_t *seg = malloc((size_t)n);
    fv_forward_seq seq = {.n_rows = n, .pos = pos, .seg = seg, .wanted = n};
    fv_forward_batch pass = {.n_seq = 1, .seq = &seq};
    fv_buf x;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) pos[i] = i;
    memset(seg, FV_SEG_TEXT, (size_t)n);
    bench_must(fv_kv_open(pool, &seq.kv));
    bench_must(fv_buf_alloc(e->be.device, (size_t)n * (size_t)cfg->d_model * sizeof(float),
                            FV_BUF_DEVICE, &x));
    pass.x = fv_tensor_of(x.data, FV_F32, n, cfg->d_model);
    bench_must(fv_decoder_embed(e->dec, ids, n, pass.x));
    bench_must(fv_decoder_layers(e->dec, &pass, 0, cfg->n_layer));
    bench_must(fv_decoder_logits(e->dec, pass.out, logits));
    for (int32_t i = 0; i + 1 < n; i++) {
        const float *row = logits + (size_t)i * (size_t)cfg->vocab;
        double most = (double)row[0], total = 0;
        for (int32_t v = 1; v < e->n_vocab; v++) most = fmax(most, (double)row[v]);
        for (int32_t v = 0; v < e->n_vocab; v++) total += exp((double)row[v] - most);
        sum += log(total) + most - (double)row[ids[i + 1]];
    }
    fv_buf_free(&x);
    fv_kv_close(seq.kv);
    free(seg);
    free(pos);
    return sum;
}

int main(int argc, char **argv) {
    fv_options *o = bench_options(table, sizeof table / sizeof *table, argc, argv,
                                  "bench_perplexity --checkpoint DIR --text FILE [options]",
                                  "Perplexity of a text under a text model.");
    fv_engine_options opt = {.checkpoint = fv_options_string(o, "checkpoint"),
                             .backend = "cpu",
                             .compute = fv_options_string(o, "compute"),
                             .kv_dtype = fv_options_string(o, "kv-dtype"),
                             .weights = fv_options_string(o, "weights"),
                             .threads = (int32_t)fv_options_int(o, "threads")};
    const char *file = fv_options_string(o, "text");
    char *text;
    size_t bytes;
    int32_t *ids, n, window = (int32_t)fv_options_int(o, "window");
    int32_t most = (int32_t)fv_options_int(o, "windows");
    fv_engine e;
    fv_kv_pool *pool;
    if (!opt.checkpoint || !file)
        bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR and --text FILE are needed"));
    bench_must(fv_log_configure("warn"));
    bench_must(fv_engine_open(&opt, &e));
    bench_must(fv_file_read(file, 1 << 28, &text, &bytes));
    bench_must(fv_tokenizer_encode(e.tok, text, bytes, false, &ids, &n));
    fv_kv_shape shape = fv_engine_kv_shape(&e, e.kv_dtype);
    bench_must(fv_kv_pool_open(e.be.device, &shape, 0, &pool));
    int32_t count = n / window;
    if (most > 0 && count > most) count = most;
    if (count == 0)
        bench_must(
            FV_FAIL(FV_EINVAL, "%s has %d tokens, less than a window of %d", file, n, window));
    float *logits =
        malloc((size_t)window * (size_t)fv_decoder_config(e.dec)->vocab * sizeof *logits);
    if (!logits) bench_must(FV_FAIL(FV_ENOMEM, "no memory for logits"));
    json_t *sums = json_array();
    double total = 0;
    for (int32_t w = 0; w < count; w++) {
        double sum = read_window(&e, pool, ids + (size_t)w * (size_t)window, window, logits);
        total += sum;
        json_array_append_new(sums, json_real(sum));
    }
    int64_t scored = (int64_t)count * (window - 1);
    printf("perplexity %.4f of %lld tokens in %d windows; %s, weights %s\n",
           exp(total / (double)scored), (long long)scored, count, fv_compute_name(e.be.compute),
           opt.weights);
    bench_write_json(o, json_pack("{s:f, s:I, s:i, s:s, s:o}", "perplexity",
                                  exp(total / (double)scored), "tokens", (json_int_t)scored,
                                  "window", window, "isa", e.be.isa, "sums", sums));
    free(logits);
    fv_kv_pool_close(pool);
    free(ids);
    free(text);
    fv_engine_close(&e);
    fv_options_free(o);
    return 0;
}
