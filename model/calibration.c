/* Reads calibration.json with checks, and writes it member by member. */
#include "model/calibration.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state is on the stack: allocating it cannot fail */
#include <xxhash.h>

#include "common/file.h"
#include "text/json.h"

enum { FILE_MAX = 16 << 20, PATH_CAP = 4096 };

static fv_status read_file(const char *dir, char path[PATH_CAP], json_t **out) {
    char *text;
    size_t n;
    FV_TRY(fv_path_join(dir, "calibration.json", path, PATH_CAP));
    FV_TRY(fv_file_read(path, FILE_MAX, &text, &n));
    fv_status st = fv_json_object(text, n, path, out);
    free(text);
    return st;
}

static fv_status check_fingerprint(const json_t *all, const char *path, const char *fingerprint) {
    const char *made_with = "";
    FV_TRY(fv_json_str(all, "fingerprint", path, &made_with));
    if (strcmp(made_with, fingerprint) == 0) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s belongs to checkpoint '%s', not to %s: run `fovea calibrate` again", path,
                   made_with, fingerprint);
}

static fv_status read_source_layers(const json_t *list, const char *path, int32_t n_layer,
                                    fv_calibrated_blocks *out) {
    fv_calibrated_blocks b = {.n_layer = n_layer};
    if (!json_is_array(list) || json_array_size(list) != (size_t)n_layer || n_layer > 256)
        return FV_FAIL(FV_EDATA, "%s: lazy.source_layers must be a list of %d layers", path,
                       n_layer);
    for (int32_t l = 0; l < n_layer; l++) {
        const json_t *item = json_array_get(list, (size_t)l);
        json_int_t v = json_is_integer(item) ? json_integer_value(item) : -1;
        bool leads = v == l, follows = l > 0 && v >= 0 && v == b.source_layer[l - 1];
        if (!leads && !follows)
            return FV_FAIL(FV_EDATA,
                           "%s: lazy.source_layers[%d] must be %d (itself) or the entry before",
                           path, l, l);
        b.source_layer[l] = (int32_t)v;
    }
    *out = b;
    return FV_OK;
}

static fv_status read_threshold(const json_t *from, const char *name, const char *path, double min,
                                double max, double *out) {
    const json_t *v = json_object_get(from, name);
    double x = json_is_number(v) ? json_number_value(v) : min - 1;
    if (!(x >= min && x <= max))
        return FV_FAIL(FV_EDATA, "%s: visipruner.%s must be a number from %g to %g", path, name,
                       min, max);
    *out = x;
    return FV_OK;
}

static fv_status read_thresholds(const json_t *from, const char *path, fv_calibration *out) {
    FV_TRY(read_threshold(from, "cos", path, -1, 1, &out->thresholds[0]));
    FV_TRY(read_threshold(from, "l2", path, 0, 1e6, &out->thresholds[1]));
    FV_TRY(read_threshold(from, "exit_cos", path, -1, 1, &out->thresholds[2]));
    out->has_thresholds = true;
    return FV_OK;
}

static fv_status read_withdraw(const json_t *from, const char *path, int32_t n_layer,
                               fv_calibration *out) {
    const json_t *v = json_object_get(from, "layer");
    json_int_t layer = json_is_integer(v) ? json_integer_value(v) : 0;
    if (layer < 1 || layer > n_layer)
        return FV_FAIL(FV_EDATA, "%s: vtw.layer must be a layer 1..%d", path, n_layer);
    out->withdraw = (int32_t)layer;
    return FV_OK;
}

static fv_status read_schedule(const json_t *from, const char *path, int32_t n_layer,
                               fv_schedule *out) {
    const json_t *target = json_object_get(from, "target"), *leave = json_object_get(from, "leave");
    json_int_t percent = json_is_integer(target) ? json_integer_value(target) : 0, sum = 0;
    bool good = percent > 0 && percent < 100 && json_array_size(leave) == (size_t)n_layer &&
                n_layer <= FV_SCHEDULE_LAYERS;
    for (int32_t l = 0; good && l < n_layer; l++) {
        const json_t *v = json_array_get(leave, (size_t)l);
        json_int_t rows = json_is_integer(v) ? json_integer_value(v) : -1;
        good = rows >= 0 && rows <= FV_SCHEDULE_OF - sum;
        sum += rows;
        out->leave[l] = (int32_t)rows;
    }
    out->target = (int32_t)percent;
    if (good) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: fitprune.schedules must have targets 1..99 and the number of tokens "
                   "dropped after each of %d layers, at most %d in total",
                   path, n_layer, FV_SCHEDULE_OF);
}

static fv_status read_schedules(const json_t *list, const char *path, int32_t n_layer,
                                fv_calibration *out) {
    if (!json_is_array(list) || json_array_size(list) > FV_SCHEDULES)
        return FV_FAIL(FV_EDATA, "%s: fitprune.schedules must be a list of at most %d", path,
                       FV_SCHEDULES);
    for (size_t i = 0; i < json_array_size(list); i++)
        FV_TRY(read_schedule(json_array_get(list, i), path, n_layer, &out->fitted[i]));
    out->n_fitted = (int32_t)json_array_size(list);
    return FV_OK;
}

static fv_status read_members(const json_t *all, const char *path, const char *fingerprint,
                              int32_t n_layer, fv_calibration *out) {
    FV_TRY(check_fingerprint(all, path, fingerprint));
    const json_t *lazy = json_object_get(all, "lazy");
    const json_t *visipruner = json_object_get(all, "visipruner");
    const json_t *vtw = json_object_get(all, "vtw");
    const json_t *fitprune = json_object_get(all, "fitprune");
    if (lazy)
        FV_TRY(read_source_layers(json_object_get(lazy, "source_layers"), path, n_layer,
                                  &out->blocks));
    if (visipruner) FV_TRY(read_thresholds(visipruner, path, out));
    if (vtw) FV_TRY(read_withdraw(vtw, path, n_layer, out));
    if (!fitprune) return FV_OK;
    return read_schedules(json_object_get(fitprune, "schedules"), path, n_layer, out);
}

fv_status fv_calibration_read(const char *dir, const char *fingerprint, int32_t n_layer,
                              fv_calibration *out) {
    char path[PATH_CAP];
    json_t *all;
    fv_calibration c = {0};
    FV_TRY(read_file(dir, path, &all));
    fv_status st = read_members(all, path, fingerprint, n_layer, &c);
    json_decref(all);
    if (st == FV_OK) *out = c;
    return st;
}

/* Returns the existing members if they belong to this checkpoint, else an empty object. */
static json_t *old_members(const char *dir, const char *fingerprint) {
    char path[PATH_CAP];
    json_t *all;
    if (read_file(dir, path, &all) != FV_OK) return json_object();
    if (check_fingerprint(all, path, fingerprint) == FV_OK) return all;
    json_decref(all);
    return json_object();
}

fv_status fv_calibration_write(const char *dir, const char *fingerprint, const char *name,
                               json_t *value) {
    char path[PATH_CAP], fresh[PATH_CAP];
    FV_TRY(fv_path_join(dir, "calibration.json", path, sizeof path));
    FV_TRY(fv_path_join(dir, "calibration.json.new", fresh, sizeof fresh));
    json_t *all = old_members(dir, fingerprint);
    if (!all || json_object_set_new(all, "fingerprint", json_string(fingerprint)) != 0 ||
        json_object_set(all, name, value) != 0) {
        json_decref(all);
        return FV_FAIL(FV_ENOMEM, "out of memory for %s", path);
    }
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(all);
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for %s", path);
    fv_status st = fv_file_write(fresh, text, strlen(text));
    free(text);
    if (st != FV_OK) return st;
    if (rename(fresh, path) != 0) return FV_FAIL(FV_EIO, "cannot write %s", path);
    return FV_OK;
}

/* Adds the name and contents of a file to the digest, if it exists. */
static fv_status digest_file(const char *dir, const char *name, XXH64_state_t *state, int *n_file) {
    char path[PATH_CAP], piece[1 << 16];
    FV_TRY(fv_path_join(dir, name, path, sizeof path));
    if (!fv_file_exists(path)) return FV_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return FV_FAIL(FV_EIO, "%s: %s", path, strerror(errno));
    XXH64_update(state, name, strlen(name) + 1);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) XXH64_update(state, piece, n);
    bool good = !ferror(f);
    fclose(f);
    *n_file += 1;
    return good ? FV_OK : FV_FAIL(FV_EIO, "%s cannot be read", path);
}

fv_status fv_calibration_digest(const char *dir, char out[17]) {
    XXH64_state_t state;
    int n_file = 0;
    XXH64_reset(&state, 0);
    FV_TRY(digest_file(dir, "calibration.json", &state, &n_file));
    FV_TRY(digest_file(dir, "latent.bin", &state, &n_file));
    snprintf(out, 17, "%016llx", (unsigned long long)XXH64_digest(&state));
    if (n_file == 0) snprintf(out, 17, "none");
    return FV_OK;
}
