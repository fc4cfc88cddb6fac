/* Folders from before config.json had a quantization_config: AutoGPTQ put quantize_config.json beside it, AutoAWQ
 * quant_config.json. */
#include <stdlib.h>
#include <string.h>

#include "gguf/texts.h"
#include "model/stored.h"
#include "text/json.h"

enum { CONFIG_MAX = 1 << 20 };

/* Fills in what quantization_config has and the file lacks, under its names. */
static int complete(json_t *q, const char *method) {
    const json_t *bits = json_object_get(q, "w_bit");
    int bad = 0;
    if (!json_object_get(q, "quant_method"))
        bad |= json_object_set_new(q, "quant_method", json_string(method));
    if (bits && !json_object_get(q, "bits"))
        bad |= json_object_set(q, "bits", (json_t *)(uintptr_t)bits);
    return bad;
}

/* Puts the object in `more` into the one in *text, as its quantization_config. */
static fv_status join(const char *path, const char *more, size_t n, const char *method, char **text,
                      size_t *bytes) {
    json_t *q = NULL, *root = NULL;
    char *joined = NULL;
    fv_status st = fv_json_object(more, n, path, &q);
    if (st == FV_OK) st = fv_json_object(*text, *bytes, "config.json", &root);
    if (st == FV_OK) {
        bool bad = complete(q, method) || json_object_set(root, "quantization_config", q);
        joined = bad ? NULL : json_dumps(root, JSON_COMPACT);
        if (!joined) st = FV_FAIL(FV_ENOMEM, "%s: no memory", path);
    }
    json_decref(q);
    json_decref(root);
    FV_TRY(st);
    free(*text);
    *text = joined;
    *bytes = strlen(joined);
    return FV_OK;
}

static fv_status says_quantized(const char *text, size_t bytes, bool *yes) {
    json_t *root = NULL;
    FV_TRY(fv_json_object(text, bytes, "config.json", &root));
    const json_t *inner = json_object_get(root, "text_config");
    *yes = json_object_get(root, "quantization_config") ||
           json_object_get(inner, "quantization_config");
    json_decref(root);
    return FV_OK;
}

fv_status fv_stored_join_config(const char *dir, char **text, size_t *bytes) {
    static const struct {
        const char *file, *method;
    } old[] = {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}};
    bool done;
    if (says_quantized(*text, *bytes, &done) != FV_OK)
        return FV_OK; /* the config's reader says what is wrong, and names it */
    for (size_t i = 0; i < sizeof old / sizeof *old && !done; i++) {
        char path[FV_CHECKPOINT_PATH], *more;
        size_t n;
        FV_TRY(fv_checkpoint_file(dir, old[i].file, CONFIG_MAX, path, &more, &n));
        if (!more) continue;
        fv_status st = join(path, more, n, old[i].method, text, bytes);
        free(more);
        FV_TRY(st);
        done = true;
    }
    return FV_OK;
}
