#ifndef FOVEA_TESTS_UNIT_MODEL_CHECKPOINT_RIG_H
#define FOVEA_TESTS_UNIT_MODEL_CHECKPOINT_RIG_H

/* Synthetic checkpoints, whose files a test changes. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "model/checkpoint.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };
static const char weights[] __attribute__((unused)) = "model.safetensors";

typedef struct checkpoint {
    char dir[PATH_CAP];
} checkpoint;

static inline checkpoint made(fv_synth_options o) {
    checkpoint c;
    scratch_dir(c.dir, sizeof c.dir);
    o.dir = c.dir;
    if (!o.config_file && !o.shape) o.shape = "tiny-gqa";
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    return c;
}

static inline checkpoint tiny(void) { return made((fv_synth_options){.dtype = FV_BF16}); }

static inline fv_checkpoint *opened(const checkpoint *c) {
    fv_checkpoint *ck = NULL;
    cr_assert_eq(fv_checkpoint_open(c->dir, &ck), FV_OK, "%s", fv_last_error());
    return ck;
}

static inline void refused(const checkpoint *c, fv_status want, const char *words) {
    fv_checkpoint *ck = NULL;
    fv_status st = fv_checkpoint_open(c->dir, &ck);
    cr_assert_eq(st, want, "%s: %s", fv_status_name(st), fv_last_error());
    cr_assert_null(ck);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static inline void path_of(const checkpoint *c, const char *name, char path[PATH_CAP]) {
    cr_assert_eq(fv_path_join(c->dir, name, path, PATH_CAP), FV_OK);
}

static inline void remove_file(const checkpoint *c, const char *name) {
    char path[PATH_CAP];
    path_of(c, name, path);
    cr_assert_eq(unlink(path), 0, "%s", path);
}

static inline void rename_file(const checkpoint *c, const char *from, const char *to) {
    char a[PATH_CAP], b[PATH_CAP];
    path_of(c, from, a);
    path_of(c, to, b);
    cr_assert_eq(rename(a, b), 0);
}

/* Sets one key of a JSON file; part NULL = top level. */
static inline void set_json(const checkpoint *c, const char *name, const char *part,
                            const char *key, json_t *value) {
    char path[PATH_CAP];
    path_of(c, name, path);
    json_t *root = json_load_file(path, 0, NULL);
    cr_assert_not_null(root);
    json_object_set_new(part ? json_object_get(root, part) : root, key, value);
    cr_assert_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

static inline void fingerprint_of(const checkpoint *c, char out[17]) {
    fv_checkpoint *ck = opened(c);
    fv_checkpoint_fingerprint(ck, out);
    fv_checkpoint_close(ck);
}

#endif
