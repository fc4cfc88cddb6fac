/* `fovea inspect`: prints what a checkpoint is, its memory and its faults, as text or JSON. */
#include "model/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "common/log.h"
#include "gguf/files.h"
#include "model/engine.h"
#include "serving/worker/checkpoint.h"

/* The memory that is asked for. */
typedef struct demand {
    int64_t context; /* tokens of a sequence */
    fv_dtype kv;
} demand;

/* "1.50 GiB" */
typedef struct amount {
    char text[32];
} amount;

static amount amount_of(uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    amount a;
    double x = (double)bytes;
    int u = 0;
    for (; u < 4 && x >= 1024; u++) x /= 1024;
    snprintf(a.text, sizeof a.text, "%.*f %s", u ? 2 : 0, x, units[u]);
    return a;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_text_model(const fv_model_config *c) {
    const fv_text_config *t = &c->text;
    const int32_t run = t->recurrent.n;
    printf("text         %s: %d layers", t->family, t->n_layer * (run + 1) + t->n_sharer);
    if (run) printf(" (%d with attention)", t->n_layer);
    if (t->n_sharer) printf(" (%d with keys and values)", t->n_layer);
    printf(", width %d, %d heads, %d KV heads of %d, FFN %d, vocabulary %d\n", t->d_model,
           t->n_head, t->n_kv, t->d_head, t->d_ffn, t->vocab);
    if (t->n_expert)
        printf("experts      %d of width %d, %d active\n", t->n_expert, t->d_expert, t->n_active);
    printf("context      %d tokens", t->max_position);
    if (t->window) printf(", window %d", t->window);
    putchar('\n');
}

static void print_tower(const fv_model_config *c) {
    const fv_vision_config *v = &c->vision;
    if (!c->has_vision) {
        puts("tower        none: a text model");
        return;
    }
    printf("tower        %d layers, width %d, %d heads, patches of %d x %d, %d x %d to a token%s\n",
           v->n_layer, v->d_model, v->n_head, v->patch, v->patch, v->merge, v->merge,
           c->video_tower        ? "; one more for videos"
           : c->video_token >= 0 ? "; videos too"
                                 : "");
}

static void print_weights(const fv_inspection *in) {
    printf("files        %d of weights, %s, %d tensors", in->n_file, amount_of(in->file_bytes).text,
           in->n_tensor);
    for (int32_t i = 0; i < in->n_dtype; i++)
        printf("%s%d %s", i ? ", " : ": ", in->dtype[i].n, in->dtype[i].name);
    putchar('\n');
    printf("quantized    %s\n", in->quantization);
    if (in->has_weights)
        printf("parameters   %.3f million\nweights      %s, %d tensors unused\n",
               (double)in->n_param * 1e-6, amount_of(in->weight_bytes).text, in->n_unused);
    if (in->table_bytes)
        printf("embeddings   %s of each layer's own, which stay a mapping of the file\n",
               amount_of(in->table_bytes).text);
}

static void print_memory(const fv_inspection *in, const demand *d) {
    const uint64_t token = fv_inspection_kv_bytes(in, d->kv);
    const uint64_t state = fv_inspection_state_bytes(in), kv = token * (uint64_t)d->context;
    printf("KV cache     %s a token in %s; %s for %" PRId64 " tokens\n", amount_of(token).text,
           fv_dtype_name(d->kv), amount_of(kv).text, d->context);
    if (state) printf("state        %s a sequence\n", amount_of(state).text);
    if (in->has_weights)
        printf("memory       %s for the weights and one such sequence\n",
               amount_of(in->weight_bytes + kv + state).text);
}

static void print_text(const fv_inspection *in, const demand *d) {
    printf("checkpoint   %s\n", in->shown);
    if (in->has_config) {
        printf("family       %s\n", in->config.family->name);
        print_text_model(&in->config);
        print_tower(&in->config);
    }
    if (in->n_file) print_weights(in);
    if (in->has_config) print_memory(in, d);
    if (in->n_token) printf("tokenizer    %d tokens\n", in->n_token);
    if (in->chat) printf("chat         %s\n", in->chat);
    for (int32_t i = 0; i < in->n_fault; i++) {
        const fv_fault *f = &in->fault[i];
        printf("%s %s\n  %s\n  to do: %s\n", f->fatal ? "fault       " : "note        ", f->file,
               f->what, f->remedy);
    }
    printf("served       %s\n", in->can_serve ? "yes" : "no");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *faults_json(const fv_inspection *in) {
    json_t *list = json_array();
    for (int32_t i = 0; i < in->n_fault; i++) {
        const fv_fault *f = &in->fault[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "file", f->file, "fault",
                                              f->what, "remedy", f->remedy, "fatal", f->fatal));
    }
    return list;
}

static json_t *network_json(const fv_inspection *in) {
    const fv_text_config *t = &in->config.text;
    const fv_vision_config *v = &in->config.vision;
    json_t *tower =
        in->config.has_vision
            ? json_pack("{s:i, s:i, s:i, s:i, s:i}", "layers", v->n_layer, "width", v->d_model,
                        "heads", v->n_head, "patch", v->patch, "merge", v->merge)
            : json_null();
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}",
                     "text", t->family, "layers", t->n_layer * (t->recurrent.n + 1) + t->n_sharer,
                     "layers_with_attention", fv_text_layers(t), "layers_with_kv", t->n_layer,
                     "width", t->d_model, "heads", t->n_head, "kv_heads", t->n_kv, "head_width",
                     t->d_head, "ffn", t->d_ffn, "vocabulary", t->vocab, "context", t->max_position,
                     "window", t->window, "experts", t->n_expert, "tower", tower);
}

static json_t *memory_json(const fv_inspection *in, const demand *d) {
    const uint64_t token = fv_inspection_kv_bytes(in, d->kv);
    return json_pack("{s:I, s:I, s:s, s:I, s:I}", "context", (json_int_t)d->context,
                     "kv_bytes_a_token", (json_int_t)token, "kv_dtype", fv_dtype_name(d->kv),
                     "kv_bytes", (json_int_t)token * d->context, "state_bytes",
                     (json_int_t)fv_inspection_state_bytes(in));
}

static json_t *dtypes_json(const fv_inspection *in) {
    json_t *object = json_object();
    for (int32_t i = 0; i < in->n_dtype; i++)
        json_object_set_new(object, in->dtype[i].name, json_integer(in->dtype[i].n));
    return object;
}

static void print_json(const fv_inspection *in, const demand *d) {
    json_t *root = json_pack(
        "{s:s, s:b, s:o, s:o, s:s, s:i, s:I, s:i, s:o, s:o, s:o, s:o, s:i, s:o}", "checkpoint",
        in->shown, "can_serve", in->can_serve, "family",
        in->has_config ? json_string(in->config.family->name) : json_null(), "network",
        in->has_config ? network_json(in) : json_null(), "quantization", in->quantization, "files",
        in->n_file, "file_bytes", (json_int_t)in->file_bytes, "tensors", in->n_tensor, "dtypes",
        dtypes_json(in), "parameters",
        in->has_weights ? json_integer((json_int_t)in->n_param) : json_null(), "weight_bytes",
        in->has_weights ? json_integer((json_int_t)in->weight_bytes) : json_null(), "memory",
        in->has_config ? memory_json(in, d) : json_null(), "tokens", in->n_token, "faults",
        faults_json(in));
    fv_output_json(root);
    json_decref(root);
}

/* ---- the command --------------------------------------------------------------------------- */

static fv_status read_demand(const fv_options *o, const fv_inspection *in, demand *d) {
    d->context = fv_options_int(o, "context");
    if (d->context == 0) d->context = in->config.text.max_position;
    return fv_engine_kv_dtype(fv_options_string(o, "kv-dtype"),
                              in->embed_dtype == FV_BF16 ? FV_COMPUTE_BF16 : FV_COMPUTE_F32,
                              &d->kv);
}

static fv_status inspect_path(const fv_options *o, const char *path, int *rc) {
    demand d;
    fv_inspection in;
    FV_TRY(fv_inspect(path, &in));
    fv_status st = read_demand(o, &in, &d);
    if (st == FV_OK) {
        *rc = in.can_serve ? 0 : 1;
        if (fv_options_flag(o, "json"))
            print_json(&in, &d);
        else
            print_text(&in, &d);
        st = fv_output_flush();
    }
    fv_inspection_free(&in);
    return st;
}

static fv_status inspect(const fv_options *o, int *rc) {
    char path[FV_HUB_PATH_MAX], pair[FV_HUB_PATH_MAX];
    const char *const *words, *mmproj = fv_options_string(o, "mmproj");
    const fv_hub_places places = fv_checkpoint_places(o);
    if (fv_options_positional(o, &words) != 1)
        return FV_FAIL(FV_EINVAL,
                       "name one checkpoint: a directory, a GGUF file, or ORG/NAME; see fovea "
                       "inspect --help");
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(fv_hub_locate(&places, words[0], path));
    if (mmproj) FV_TRY(fv_gguf_name_pair(path, mmproj, pair));
    return inspect_path(o, mmproj ? pair : path, rc);
}

static int run(const fv_options *o) {
    int rc = 0;
    fv_status st = inspect(o, &rc);
    return st == FV_OK ? rc : fv_cli_end(&fv_cli_inspect, st);
}

const fv_command fv_cli_inspect = {.program = FV_PROGRAM_INSPECT, .run = run};
