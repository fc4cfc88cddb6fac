/* Writes a checkpoint's directory with quantized weights: one safetensors file, config.json with a
 * quantization_config, and copies of the other files. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"
#include "model/compressed.h"
#include "text/json.h"

enum { PATH_CAP = 4096, NAME_CAP = FV_TENSOR_NAME_MAX + 16, FILE_MAX = 256 << 20 };

/* Writes a new file: the target of a link at this path must not change. */
static fv_status write_new(const char *path, const void *data, size_t bytes) {
    unlink(path);
    return fv_file_write(path, data, bytes);
}

/* ---- config.json ----------------------------------------------------------------------- */

static const char *format_of(const fv_weights *to) {
    return to->dtype == FV_INT8 ? "int-quantized" : "pack-quantized";
}

static json_t *scheme(const fv_weights *to, json_t *targets) {
    bool groups = to->group > 0;
    json_t *weights =
        json_pack("{s:i, s:s, s:b, s:b, s:s}", "num_bits", to->dtype == FV_INT8 ? 8 : 4, "type",
                  "int", "symmetric", 1, "dynamic", 0, "strategy", groups ? "group" : "channel");
    json_object_set_new(weights, "group_size", groups ? json_integer(to->group) : json_null());
    json_t *x = json_pack("{s:i, s:s, s:b, s:b, s:s}", "num_bits", 8, "type", "int", "symmetric", 1,
                          "dynamic", 1, "strategy", groups ? "group" : "token");
    if (groups) json_object_set_new(x, "group_size", json_integer(32));
    return json_pack("{s:o, s:o, s:o, s:s}", "targets", targets, "weights", weights,
                     "input_activations", x, "format", format_of(to));
}

static bool has_head(const fv_compressed_job *job) {
    bool found = false;
    for (int32_t i = 0; i < job->n; i++) {
        const fv_tensor *t = &job->quantized[i].as;
        found = found || (t->dtype == FV_INT8 && t->quant->group > 0);
    }
    return found;
}

/* Records that the head is a tensor of its own. */
static void untie(json_t *root) {
    json_t *text = json_object_get(root, "text_config");
    json_object_set_new(root, "tie_word_embeddings", json_false());
    if (json_object_get(text, "tie_word_embeddings"))
        json_object_set_new(text, "tie_word_embeddings", json_false());
}

/* Linear layers outside the text model's layers are ignored, except the output head. */
static fv_status write_config(const fv_compressed_job *job) {
    char path[PATH_CAP];
    json_t *root = NULL;
    bool head = has_head(job), mixed = head && job->to->dtype != FV_INT8;
    FV_TRY(fv_json_object(job->config, job->config_bytes, "config.json", &root));
    json_t *ignored = json_pack("[s, s, s, s, s, s]", "re:.*vision_tower.*", "re:.*image_tower.*",
                                "re:.*video_tower.*", "re:.*vision_model.*",
                                "re:.*multi_modal_projector.*", "re:.*connector.*");
    json_t *groups = json_pack("{s:o}", "group_0", scheme(job->to, json_pack("[s]", "Linear")));
    if (head)
        json_object_set_new(
            groups, "group_1",
            scheme(&fv_weights_head, json_pack("[s, s]", "lm_head", "re:.*lm_head")));
    else
        json_array_append_new(ignored, json_string("re:.*lm_head"));
    json_t *q =
        json_pack("{s:s, s:s, s:s, s:o, s:o}", "quant_method", "compressed-tensors", "format",
                  mixed ? "mixed-precision" : format_of(job->to), "quantization_status",
                  "compressed", "ignore", ignored, "config_groups", groups);
    if (head) untie(root);
    json_object_set_new(root, "quantization_config", q);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory for config.json");
    fv_status st = fv_path_join(job->dir, "config.json", path, sizeof path);
    if (st == FV_OK) st = write_new(path, text, strlen(text));
    free(text);
    return st;
}

/* ---- other files ----------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_copied(const char *name) {
    static const char *const weights[] = {".safetensors", ".index.json", ".bin",
                                          ".gguf",        ".pt",         ".pth"};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (ends_with(name, weights[i])) return false;
    return name[0] != '.' && strcmp(name, "config.json") != 0 &&
           strcmp(name, "calibration.json") != 0;
}

/* Skips directories, links to them, and files larger than any that a reader of checkpoints needs,
 * such as weights in another format. */
static fv_status copy_file(const fv_compressed_job *job, const char *name) {
    char from[PATH_CAP], to[PATH_CAP], *text;
    size_t bytes;
    struct stat sb;
    FV_TRY(fv_path_join(job->from, name, from, sizeof from));
    FV_TRY(fv_path_join(job->dir, name, to, sizeof to));
    if (stat(from, &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_size > FILE_MAX) {
        FV_LOG(INFO, MODEL, "event=not-copied file=%s", from);
        return FV_OK;
    }
    FV_TRY(fv_file_read(from, FILE_MAX, &text, &bytes));
    fv_status st = write_new(to, text, bytes);
    free(text);
    return st;
}

static fv_status copy_files(const fv_compressed_job *job) {
    DIR *d = opendir(job->from);
    if (!d) return FV_FAIL(FV_EIO, "cannot read %s: %s", job->from, strerror(errno));
    fv_status st = FV_OK;
    for (struct dirent *f = readdir(d); f && st == FV_OK; f = readdir(d))
        if (is_copied(f->d_name)) st = copy_file(job, f->d_name);
    closedir(d);
    return st;
}

/* ---- weights --------------------------------------------------------------------------- */

/* A tensor of the new file. */
typedef struct output {
    char name[NAME_CAP];
    const char *dtype;
    int32_t n_dim;
    int64_t shape[FV_SAFETENSORS_MAX_DIMS];
    const void *data;
    size_t bytes;
    int64_t shape_data[2]; /* data of weight_shape */
} output;

static const fv_compressed_weight *instead_of(const fv_compressed_job *job,
                                              const fv_shard_tensor *t) {
    for (int32_t i = 0; i < job->n; i++)
        if (job->quantized[i].tensor == t) return &job->quantized[i];
    return NULL;
}

static output *add(output **to, const char *name, const char *end, const char *dtype, int64_t rows,
                   int64_t cols, const void *data, size_t bytes) {
    output *o = (*to)++;
    *o = (output){.dtype = dtype, .n_dim = 2, .shape = {rows, cols}, .data = data, .bytes = bytes};
    snprintf(o->name, sizeof o->name, "%s%s", name, end);
    return o;
}

/* Adds a weight as up to 3 tensors of the new file. */
static void add_weight(const char *name, const fv_tensor *as, output **to) {
    const fv_quant *q = as->quant;
    size_t rows = (size_t)as->rows, numbers = rows * (size_t)as->cols;
    if (!q) {
        static const char *const type[FV_N_DTYPE] = {"F32", "BF16", "F16"};
        add(to, name, "", type[as->dtype], as->rows, as->cols, as->data,
            numbers * fv_dtype_bytes(as->dtype));
        return;
    }
    if (as->dtype == FV_INT8)
        add(to, name, "", "I8", as->rows, as->cols, as->data, numbers);
    else
        add(to, name, "_packed", "I32", as->rows, (int64_t)q->row_bytes / 4, as->data,
            rows * q->row_bytes);
    size_t scales = rows * (size_t)q->groups * fv_dtype_bytes(q->scale_type);
    add(to, name, "_scale", q->scale_type == FV_F32 ? "F32" : "BF16", as->rows, q->groups, q->scale,
        scales);
    if (as->dtype == FV_INT8) return;
    output *o = add(to, name, "_shape", "I64", 2, 0, NULL, 16);
    o->n_dim = 1;
    o->shape_data[0] = as->rows;
    o->shape_data[1] = as->cols;
    o->data = o->shape_data;
}

static void add_tensor(const fv_compressed_job *job, const fv_shard_tensor *t, output **to) {
    const fv_compressed_weight *w = instead_of(job, t);
    const fv_safetensors_entry *e = t->entry;
    if (w) {
        add_weight(e->name, &w->as, to);
        return;
    }
    output *o = add(to, e->name, "", e->dtype, 0, 0, e->data, e->bytes);
    o->n_dim = e->n_dim;
    memcpy(o->shape, e->shape, sizeof o->shape);
}

/* Writes the header: length, JSON, and spaces up to a multiple of 64. */
static bool write_header(const output *o, int32_t n, FILE *f) {
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (int32_t d = 0; d < o[i].n_dim; d++)
            json_array_append_new(shape, json_integer(o[i].shape[d]));
        json_object_set_new(root, o[i].name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", o[i].dtype, "shape", shape,
                                      "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + o[i].bytes)));
        at += o[i].bytes;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text) return false;
    size_t length = strlen(text), pad = (64 - (length + 8) % 64) % 64;
    uint64_t total = length + pad;
    bool ok = fwrite(&total, 8, 1, f) == 1 && fwrite(text, 1, length, f) == length;
    for (size_t i = 0; ok && i < pad; i++) ok = fputc(' ', f) != EOF;
    free(text);
    return ok;
}

/* Sorts large elements first, so that each tensor starts at a multiple of its element size. */
static int by_element(const void *a, const void *b) {
    const output *x = a, *y = b;
    static const char *const order[] = {"I64", "I32", "F32", "BF16", "F16", "I8"};
    int p[2] = {5, 5};
    for (int i = 0; i < 6; i++) {
        if (!strcmp(x->dtype, order[i])) p[0] = i;
        if (!strcmp(y->dtype, order[i])) p[1] = i;
    }
    return p[0] != p[1] ? p[0] - p[1] : strcmp(x->name, y->name);
}

static fv_status write_file(const fv_compressed_job *job, const output *o, int32_t n, FILE *f,
                            const char *path) {
    bool ok = write_header(o, n, f);
    for (int32_t i = 0; ok && i < n; i++) {
        ok = o[i].bytes == 0 || fwrite(o[i].data, 1, o[i].bytes, f) == o[i].bytes;
        if (job->on_tensor) job->on_tensor(job->user, i + 1, n);
    }
    ok = ok && fflush(f) == 0;
    if (!ok) return FV_FAIL(FV_EIO, "cannot write %s: %s", path, strerror(errno));
    return FV_OK;
}

/* Removes config.json: until everything is written, the directory is no checkpoint. */
static fv_status forget_config(const fv_compressed_job *job) {
    char path[PATH_CAP];
    FV_TRY(fv_path_join(job->dir, "config.json", path, sizeof path));
    if (unlink(path) == 0 || errno == ENOENT) return FV_OK;
    return FV_FAIL(FV_EIO, "cannot remove %s: %s", path, strerror(errno));
}

static fv_status write_weights(const fv_compressed_job *job, uint64_t *bytes) {
    char path[PATH_CAP], part[PATH_CAP];
    int32_t n_old = fv_shards_tensors(job->shards);
    FV_TRY(fv_path_join(job->dir, "model.safetensors", path, sizeof path));
    FV_TRY(fv_path_join(job->dir, "model.safetensors.part", part, sizeof part));
    output *all = calloc(((size_t)n_old + (size_t)job->n) * 3 + 1, sizeof *all), *end = all;
    if (!all) return FV_FAIL(FV_ENOMEM, "no memory for a list of %d tensors", n_old);
    for (int32_t i = 0; i < n_old; i++) add_tensor(job, fv_shards_at(job->shards, i), &end);
    for (int32_t i = 0; i < job->n; i++)
        if (!job->quantized[i].tensor)
            add_weight(job->quantized[i].name, &job->quantized[i].as, &end);
    int32_t n = (int32_t)(end - all);
    qsort(all, (size_t)n, sizeof *all, by_element);
    *bytes = 0;
    for (int32_t i = 0; i < n; i++) {
        *bytes += all[i].bytes;
        if (!strcmp(all[i].dtype, "I64") && all[i].bytes == 16 && ends_with(all[i].name, "_shape"))
            all[i].data = all[i].shape_data; /* the array has moved */
    }
    /* Rename when complete: mappings of an older file stay valid. */
    FILE *f = fopen(part, "wb");
    fv_status st = f ? write_file(job, all, n, f, part)
                     : FV_FAIL(FV_EIO, "cannot create %s: %s", part, strerror(errno));
    if (f && fclose(f) != 0 && st == FV_OK)
        st = FV_FAIL(FV_EIO, "cannot write %s: %s", part, strerror(errno));
    if (st == FV_OK) st = forget_config(job);
    if (st == FV_OK && rename(part, path) != 0)
        st = FV_FAIL(FV_EIO, "cannot rename %s: %s", part, strerror(errno));
    if (f && st != FV_OK) remove(part);
    free(all);
    return st;
}

fv_status fv_compressed_write(const fv_compressed_job *job, uint64_t *bytes) {
    FV_TRY(fv_dir_make(job->dir));
    FV_TRY(write_weights(job, bytes));
    FV_TRY(copy_files(job));
    return write_config(job); /* last: without it the directory is no checkpoint */
}
