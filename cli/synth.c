/* `fovea synth`: options -> fv_synth_options -> one line about what was written. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "common/options.h"
#include "model/config.h"
#include "model/synth/synth.h"

static fv_status dtype_by_name(const char *name, fv_dtype *out) {
    for (int t = 0; t < FV_N_DTYPE; t++) {
        if (strcmp(name, fv_dtype_name((fv_dtype)t)) != 0) continue;
        *out = (fv_dtype)t;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "--dtype is '%s'; f32, bf16 and f16 exist", name);
}

static fv_status read_options(const fv_options *o, fv_synth_options *s) {
    const char *const *items;
    if (fv_options_positional(o, &items) > 0)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option; see fovea synth --help", items[0]);
    *s = (fv_synth_options){
        .dir = fv_options_string(o, "out"),
        .shape = fv_options_string(o, "shape"),
        .config_file = fv_options_string(o, "config"),
        .family = fv_options_string(o, "family"),
        .text_family = fv_options_string(o, "text-family"),
        .n_layer = (int32_t)fv_options_int(o, "layers"),
        .n_vision_layer = (int32_t)fv_options_int(o, "vision-layers"),
        .n_shard = (int32_t)fv_options_int(o, "shards"),
        .force = fv_options_flag(o, "force"),
        .seed = (uint64_t)fv_options_int(o, "seed"),
    };
    if (!s->dir || !s->shape == !s->config_file)
        return FV_FAIL(FV_EINVAL, "--out and one of --shape and --config are needed");
    const char *form = fv_options_string(o, "key-form");
    if (strcmp(form, "v4") != 0 && strcmp(form, "v5") != 0)
        return FV_FAIL(FV_EINVAL, "--key-form is '%s'; v4 and v5 exist", form);
    s->config_v5 = !strcmp(form, "v5");
    FV_TRY(dtype_by_name(fv_options_string(o, "dtype"), &s->dtype));
    return fv_name_mapping_by_name(fv_options_string(o, "dialect"), &s->name_mapping);
}

static int run(const fv_options *o) {
    fv_synth_options s;
    fv_synth_report made = {0};
    fv_status st = read_options(o, &s);
    if (st == FV_OK) st = fv_synth_write(&s, &made);
    if (st == FV_OK)
        printf("wrote %s: %" PRId32 " tensors, %" PRIu64 " bytes, %" PRId32 " weight file%s\n",
               s.dir, made.n_tensor, made.bytes, made.n_file, made.n_file == 1 ? "" : "s");
    return fv_cli_end(&fv_cli_synth, st);
}

const fv_command fv_cli_synth = {.program = FV_PROGRAM_SYNTH, .run = run};
