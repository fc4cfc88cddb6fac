/* Inspects a checkpoint step by step; a step that fails adds a fault, and the steps that do not need it go on. */
#include "model/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/files.h"
#include "gguf/texts.h"
#include "model/checkpoint_internal.h"
#include "model/compressed.h"
#include "model/engine.h"
#include "model/folder.h"
#include "text/json.h"
#include "text/unicode.h"

enum { CONFIG_MAX = 1 << 20 };

typedef struct inspector {
    fv_inspection *in;
    fv_checkpoint *ck;
    char get[FV_CHECKPOINT_PATH + 64]; /* the command that downloads the checkpoint */
    bool is_none;                      /* there is no config.json: it is no checkpoint */
    const char *gguf;                  /* the model's file; NULL: the checkpoint is not GGUF */
    bool brings_code;                  /* config.json names Python code of its own */
} inspector;

static const char unsupported_weights[] =
    "take the model in a form that is read, such as the original weights, and quantize these while "
    "loading (--weights int4)";

static fv_status keep(fv_inspection *in, const char *text, const char **out) {
    char *copy;
    FV_TRY(fv_arena_strndup(&in->arena, text, strlen(text), &copy));
    *out = copy;
    return FV_OK;
}

/* Files may have any names, also such as command a terminal, or are no UTF-8, which JSON cannot have. */
static void make_printable(const char *text) {
    char *s = (char *)(uintptr_t)text; /* of the inspection's arena */
    for (size_t left = strlen(s), n; left > 0; s += n, left -= n) {
        int32_t cp;
        fv_utf8 is = fv_utf8_next(s, left, &cp, &n);
        if (is != FV_UTF8_OK || cp < ' ' || (cp >= 0x7f && cp < 0xa0)) memset(s, '?', n);
    }
}

fv_status fv_inspection_add(fv_inspection *in, const char *file, const char *what,
                            const char *remedy, bool fatal) {
    for (int32_t i = 0; i < in->n_fault; i++) /* one that is known under a file's own name */
        if (in->fault[i].fatal && strstr(what, in->fault[i].file) &&
            strcmp(in->fault[i].file, in->path) != 0)
            return FV_OK;
    if (fatal) in->can_serve = false;
    if (in->n_fault == FV_INSPECT_FAULTS) return FV_OK;
    fv_fault f = {.fatal = fatal};
    FV_TRY(keep(in, file, &f.file));
    FV_TRY(keep(in, what, &f.what));
    FV_TRY(keep(in, remedy, &f.remedy));
    make_printable(f.file);
    make_printable(f.what);
    make_printable(f.remedy);
    in->fault[in->n_fault++] = f;
    return FV_OK;
}

static fv_status add_in(inspector *i, const char *name, const char *what, const char *remedy,
                        bool fatal) {
    char path[FV_CHECKPOINT_PATH];
    FV_TRY(fv_path_join(i->in->path, name, path, sizeof path));
    return fv_inspection_add(i->in, path, what, remedy, fatal);
}

/* Copies the file that an error names, the first below the checkpoint's directory or the first with
 * weights; false: it names none. */
static bool file_of(const inspector *i, const char *what, char out[FV_CHECKPOINT_PATH]) {
    static const char ends[] = " :,;'";
    const char *dir = i->in->path, *at = what, *end;
    const size_t n = strlen(dir);
    while ((at = strstr(at, dir)) && at[n] != '/') at += n;
    if (at) {
        snprintf(out, FV_CHECKPOINT_PATH, "%.*s", (int)(n + 1 + strcspn(at + n + 1, ends)), at);
        return strchr(out + n + 1, '.') != NULL;
    }
    if (!(end = strstr(what, ".safetensors"))) return false;
    for (at = end; at > what && !strchr(ends, at[-1]); at--) {
    }
    snprintf(out, FV_CHECKPOINT_PATH, "%s/%.*s", dir, (int)(end - at) + 12, at);
    return fv_file_exists(out);
}

/* The remedy for a form that is not read. */
static const char *remedy_of(const char *what, const char *usual) {
    static const struct {
        const char *word, *remedy;
    } known[] = {
        {"quantization_config", unsupported_weights},
        {"save_pretrained(", "run that command where torch and transformers are installed, "
                             "or fetch the model in a form that has safetensors"},
        {"Mistral's own", "fetch config.json and model.safetensors, which mostly lie in "
                          "the same repository"},
        {"it is an adapter", "serve its base model, and the adapter with --adapter NAME=DIR "
                             "(docs/ADAPTERS.md)"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(what, known[i].word)) return known[i].remedy;
    return usual;
}

/* Adds the last error as the fault of a file, with the remedy of its kind; memory that is short is no fault. */
static fv_status add_error(inspector *i, fv_status st, const char *name, const char *unsupported) {
    char remedy[FV_CHECKPOINT_PATH + 300], what[4096], file[FV_CHECKPOINT_PATH];
    if (st == FV_ENOMEM) return st;
    snprintf(what, sizeof what, "%s", fv_last_error());
    if (st == FV_EUNSUPPORTED || st == FV_EINVAL)
        snprintf(remedy, sizeof remedy, "%s", remedy_of(what, unsupported));
    else
        snprintf(remedy, sizeof remedy,
                 "take the file from where the checkpoint comes from: %s; a file that was changed "
                 "by hand must agree with the others",
                 i->get);
    if (i->gguf) return fv_inspection_add(i->in, i->gguf, what, remedy, true);
    if (file_of(i, what, file)) return fv_inspection_add(i->in, file, what, remedy, true);
    return add_in(i, name, what, remedy, true);
}

/* ---- the folder ---------------------------------------------------------------------------- */

static fv_status check_file(inspector *i, const fv_folder_file *f) {
    char what[FV_CHECKPOINT_PATH + 100], remedy[2 * FV_CHECKPOINT_PATH + 200];
    if (f->target) {
        snprintf(what, sizeof what, "the file is a link to %s, which is not there", f->target);
        snprintf(remedy, sizeof remedy, "%s fetches it; a copy of a cache needs cp -L", i->get);
        return add_in(i, f->name, what, remedy, true);
    }
    if (f->pointer) {
        snprintf(remedy, sizeof remedy, "run `git lfs pull` in %s, or %s", i->in->path, i->get);
        return add_in(i, f->name, "the file is a Git LFS pointer, not the file itself", remedy,
                      true);
    }
    return FV_OK;
}

static bool is_read(const char *name) {
    static const char *const ends[] = {".json", ".safetensors", ".jinja",
                                       ".gguf", ".model",       ".txt"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}

/* Notes files beside the weights that are not used. */
static fv_status check_beside(inspector *i, const fv_folder *f) {
    if (fv_folder_find(f, "adapter_config.json") && fv_folder_find(f, "config.json"))
        FV_TRY(add_in(i, "adapter_config.json",
                      "an adapter (LoRA) lies beside the weights; they are served without it",
                      "serve it with --adapter NAME=DIR (docs/ADAPTERS.md), or merge it into the "
                      "weights (PEFT's merge_and_unload, then save_pretrained)",
                      false));
    if (f->n_part > 0) {
        char what[200], remedy[FV_CHECKPOINT_PATH + 100];
        snprintf(what, sizeof what, "%d file%s of a download that was not finished", f->n_part,
                 f->n_part == 1 ? "" : "s");
        snprintf(remedy, sizeof remedy, "%s continues the download", i->get);
        FV_TRY(fv_inspection_add(i->in, f->part, what, remedy, false));
    }
    return FV_OK;
}

/* Finds the files of a GGUF checkpoint. */
static fv_status find_gguf(inspector *i) {
    fv_gguf_files files;
    fv_status st = fv_gguf_files_find(i->in->path, &files);
    if (st == FV_ENOMEM) return st;
    i->is_none = st != FV_OK;
    if (st != FV_OK)
        return fv_inspection_add(
            i->in, i->in->path, fv_last_error(),
            "name the model's file by its path, and its mmproj file with --mmproj", true);
    return files.n ? keep(i->in, files.model, &i->gguf) : FV_OK;
}

static fv_status check_folder(inspector *i) {
    fv_folder f;
    FV_TRY(find_gguf(i));
    if (i->gguf || i->is_none) return FV_OK;
    fv_status st = fv_folder_open(i->in->path, &f);
    if (st == FV_ENOMEM) return st;
    if (st != FV_OK)
        return fv_inspection_add(i->in, i->in->path, fv_last_error(),
                                 "name a checkpoint's directory, a GGUF file, or ORG/NAME", true);
    for (int32_t k = 0; k < f.n && st == FV_OK; k++)
        if (is_read(f.file[k].name)) st = check_file(i, &f.file[k]);
    if (st == FV_OK) st = check_beside(i, &f);
    fv_folder_close(&f);
    return st;
}

/* ---- configs ------------------------------------------------------------------------------- */

static fv_status note_kv_scheme(inspector *i, const json_t *q) {
    if (!json_is_object(json_object_get(q, "kv_cache_scheme"))) return FV_OK;
    return add_in(
        i, "config.json",
        "key 'kv_cache_scheme' asks for a quantized KV cache, which is not applied: keys "
        "and values are stored as --kv-dtype says",
        "nothing has to be done; compress the KV cache with a policy (pack=...) if memory "
        "is short",
        false);
}

static fv_status note_type(inspector *i, const json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const char *known = type ? fv_family_known_type(root, type) : NULL;
    char what[300];
    if (!type || !strcmp(type, known)) return FV_OK;
    snprintf(
        what, sizeof what,
        "key 'model_type' is '%.80s', which is not known; the model is taken for the %.80s that "
        "'architectures' names",
        type, known);
    return add_in(
        i, "config.json", what,
        "compare its answers with transformers', in case the model differs from that class", false);
}

/* Reads what config.json says beside the network's shape. */
static fv_status look_at_config(inspector *i) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t bytes;
    json_t *root;
    i->in->quantization = i->gguf ? "gguf" : "none";
    if (fv_checkpoint_file(i->in->path, "config.json", CONFIG_MAX, path, &text, &bytes) != FV_OK ||
        !text)
        return FV_OK;
    fv_status st = fv_stored_join_config(i->in->path, &text, &bytes);
    if (st == FV_OK) st = fv_json_object(text, bytes, path, &root);
    free(text);
    if (st != FV_OK) return FV_OK; /* reading the network's shape reports it */
    const json_t *q = json_object_get(root, "quantization_config"), *t;
    if (!q && (t = json_object_get(root, "text_config")))
        q = json_object_get(t, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    i->brings_code = json_is_object(json_object_get(root, "auto_map"));
    st = json_is_object(q) ? keep(i->in, method ? method : "unnamed", &i->in->quantization) : FV_OK;
    if (st == FV_OK) st = note_kv_scheme(i, q);
    if (st == FV_OK) st = note_type(i, root);
    json_decref(root);
    return st;
}

/* An error about a GGUF file says what to do. */
static const char unsupported_gguf[] =
    "do what the fault says, or take the model's safetensors (docs/SUPPORTED.md)";

static const char unsupported_model[] =
    "docs/SUPPORTED.md lists what is served; llama.cpp or transformers may run this model";
static const char unsupported_code[] =
    "the model brings Python code of its own (auto_map in config.json), which fovea does not run: "
    "look for the same model in transformers' layout (its name often ends with -hf)";
static fv_status read_configs(inspector *i) {
    const char *dir = i->in->path, *no = i->brings_code ? unsupported_code : unsupported_model;
    if (i->gguf) no = unsupported_gguf;
    fv_checkpoint *ck = i->ck;
    FV_TRY(fv_arena_strndup(&ck->arena, dir, strlen(dir), &ck->dir));
    fv_status st = fv_checkpoint_read_config(ck, dir);
    i->is_none = !ck->config_text && (st == FV_ENOTFOUND || st == FV_EUNSUPPORTED);
    if (st != FV_OK) return add_error(i, st, "config.json", no);
    i->in->has_config = true;
    st = fv_checkpoint_read_generation(ck, dir);
    if (st != FV_OK) FV_TRY(add_error(i, st, "generation_config.json", no));
    i->in->config = ck->cfg;
    if (!ck->cfg.has_vision) return FV_OK;
    st = fv_checkpoint_read_processors(ck, ck->tower_dir.path ? ck->tower_dir.path : dir);
    return st == FV_OK ? FV_OK : add_error(i, st, "preprocessor_config.json", no);
}

/* ---- weights ------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const fv_inspected_dtype *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void count_tensor(fv_inspection *in, const fv_safetensors_entry *t) {
    int32_t k = 0;
    in->file_bytes += t->bytes;
    while (k < in->n_dtype && strcmp(in->dtype[k].name, t->dtype) != 0) k++;
    if (k == FV_INSPECT_DTYPES) return;
    if (k == in->n_dtype) memcpy(in->dtype[in->n_dtype++].name, t->dtype, sizeof t->dtype);
    in->dtype[k].n++;
    in->dtype[k].bytes += t->bytes;
}

static void count_files(fv_inspection *in, const fv_shards *sh) {
    in->n_file += fv_shards_files(sh);
    in->n_tensor += fv_shards_tensors(sh);
    for (int32_t i = 0; i < fv_shards_tensors(sh); i++)
        count_tensor(in, fv_shards_at(sh, i)->entry);
    qsort(in->dtype, (size_t)in->n_dtype, sizeof *in->dtype, by_bytes);
}

/* Whether a tensor is a part of a quantized weight, such as its scales. */
static bool is_part(const fv_checkpoint *ck, const fv_shard_tensor *t) {
    char weight[FV_TENSOR_NAME_MAX];
    return fv_compressed_belongs(t->canonical, weight) ||
           fv_stored_belongs(&ck->stored, t->canonical, weight);
}

/* Counts the tensors of one table that the network uses, or parts of them, and their bytes. */
static fv_status count_used(fv_inspection *in, const fv_checkpoint *ck, const fv_shards *sh) {
    const int32_t n = fv_shards_tensors(sh);
    bool *used = calloc((size_t)n + 1, sizeof *used);
    if (!used) return FV_FAIL(FV_ENOMEM, "%s: no memory for a list of tensors", in->path);
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_shard_tensor *t = ck->used[i].found;
        if (fv_shards_find(sh, t->canonical) == t) used[t - fv_shards_at(sh, 0)] = true;
    }
    for (int32_t i = 0; i < n; i++) {
        const fv_shard_tensor *t = fv_shards_at(sh, i);
        if (used[i] || is_part(ck, t))
            in->weight_bytes += t->entry->bytes;
        else
            in->n_unused++;
    }
    free(used);
    return FV_OK;
}

static fv_status count_network(fv_inspection *in, const fv_checkpoint *ck) {
    in->has_weights = true;
    in->embed_dtype = ck->text.embed.dtype;
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor_spec *e = ck->used[i].expected;
        uint64_t n = 1;
        for (int32_t d = 0; d < e->n_dim; d++) n *= (uint64_t)e->shape[d];
        in->n_param += n;
    }
    FV_TRY(count_used(in, ck, ck->shards));
    in->table_bytes = fv_checkpoint_table_bytes(ck);
    in->weight_bytes -= in->table_bytes;
    return ck->tower ? count_used(in, ck, ck->tower) : FV_OK;
}

static fv_status read_weights(inspector *i) {
    fv_checkpoint *ck = i->ck;
    fv_status st = fv_checkpoint_open_weights(ck);
    if (st != FV_OK) return add_error(i, st, "model.safetensors", unsupported_weights);
    count_files(i->in, ck->shards);
    if (ck->tower) count_files(i->in, ck->tower);
    if (!i->in->has_config) return FV_OK;
    st = fv_checkpoint_open_tensors(ck);
    if (st != FV_OK) return add_error(i, st, "model.safetensors", unsupported_weights);
    return count_network(i->in, ck);
}

/* ---- text ---------------------------------------------------------------------------------- */

static fv_status read_tokenizer(inspector *i) {
    fv_tokenizer *tok;
    fv_status st = fv_tokenizer_open(i->in->path, &tok);
    if (st != FV_OK)
        return add_error(i, st, "tokenizer.json",
                         "write the tokenizer anew with transformers: "
                         "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)");
    i->in->n_token = fv_tokenizer_vocab(tok);
    if (i->in->has_config) st = fv_engine_check_tokenizer(&i->in->config, tok, i->in->path);
    fv_tokenizer_free(tok);
    return st == FV_OK ? FV_OK : add_error(i, st, "tokenizer.json", "");
}

/* A template that cannot run is no obstacle: another can be chosen, or prompts given whole. */
static fv_status read_chat(inspector *i) {
    fv_chat *chat;
    const fv_model_config *c = &i->in->config;
    if (!i->in->has_config) return FV_OK;
    fv_status st = fv_chat_open("", i->in->path, c->text.family, c->has_vision, &chat);
    if (st == FV_ENOMEM) return st;
    if (st != FV_OK)
        return add_in(i, "chat_template.jinja", fv_last_error(),
                      "choose a template with --chat NAME or --chat FILE.jinja", false);
    st = keep(i->in, fv_chat_name(chat), &i->in->chat);
    fv_chat_free(chat);
    return st;
}

static fv_status inspect(inspector *i) {
    FV_TRY(check_folder(i));
    if (i->is_none) return FV_OK;
    FV_TRY(look_at_config(i));
    FV_TRY(read_configs(i));
    if (i->is_none) return FV_OK;
    FV_TRY(read_weights(i));
    FV_TRY(read_tokenizer(i));
    return read_chat(i);
}

fv_status fv_inspect(const char *from, fv_inspection *out) {
    fv_checkpoint *ck = calloc(1, sizeof *ck);
    if (!ck) return FV_FAIL(FV_ENOMEM, "%s: no memory", from);
    ck->headers_only = true;
    *out = (fv_inspection){.can_serve = true, .quantization = "none"};
    inspector i = {.in = out, .ck = ck};
    fv_folder_download(from, i.get, sizeof i.get);
    fv_status st = keep(out, from, &out->path);
    if (st == FV_OK) st = keep(out, from, &out->shown);
    if (st == FV_OK) make_printable(out->shown);
    if (st == FV_OK) st = inspect(&i);
    fv_checkpoint_close(ck);
    if (st != FV_OK) fv_inspection_free(out);
    return st;
}

void fv_inspection_free(fv_inspection *in) {
    fv_arena_fini(&in->arena);
    *in = (fv_inspection){0};
}

uint64_t fv_inspection_kv_bytes(const fv_inspection *in, fv_dtype dtype) {
    const fv_text_config *t = &in->config.text;
    return 2 * (uint64_t)t->n_layer * (uint64_t)t->n_kv * (uint64_t)t->d_head *
           fv_dtype_bytes(dtype);
}

uint64_t fv_inspection_state_bytes(const fv_inspection *in) {
    return (uint64_t)in->config.text.n_layer * fv_recurrent_state_bytes(&in->config.text.recurrent);
}
