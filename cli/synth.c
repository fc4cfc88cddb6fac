/* `fovea synth`: options -> fv_synth_options -> one line about what was written. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "common/options.h"
#include "model/config.h"
#include "model/synth/synth.h"

static const fv_option table[] = {
    {"out", NULL, FV_OPTION_STRING, "DIR", NULL, "output directory", 0, 0},
    {"shape", NULL, FV_OPTION_STRING, "NAME", NULL,
     "llava-1.5-7b, llava-1.5-13b, small, nano, tiny or tiny-gqa", 0, 0},
    {"config", NULL, FV_OPTION_STRING, "FILE", NULL, "read the shapes from this config.json", 0, 0},
    {"family", NULL, FV_OPTION_STRING, "NAME", NULL,
     "model_type: llava (default), llava_next, llava_onevision, idefics3, smolvlm, internvl, "
     "mistral3, qwen2_vl, qwen2_5_vl, qwen3_vl, gemma3, video_llava, mobilevlm, or a text model "
     "(with "
     "--shape)",
     0, 0},
    {"text-family", NULL, FV_OPTION_STRING, "NAME", NULL,
     "llama, mistral, qwen2, qwen3, qwen2_vl_text, qwen2_5_vl_text, qwen3_vl_text or gemma3_text "
     "(with --shape; "
     "as the family has it unless given)",
     0, 0},
    {"layers", NULL, FV_OPTION_INT, "N", "0", "number of text layers; 0: as in the shape", 0,
     FV_MAX_LAYERS},
    {"vision-layers", NULL, FV_OPTION_INT, "N", "0", "number of vision layers; 0: as in the shape",
     0, FV_MAX_LAYERS},
    {"dtype", NULL, FV_OPTION_STRING, "TYPE", "bf16", "f32, bf16 or f16", 0, 0},
    {"shards", NULL, FV_OPTION_INT, "K", "1", "weight files", 1, 1000},
    {"dialect", NULL, FV_OPTION_STRING, "NAME", "hub",
     "tensor names: hub, v4.52, v5.6, original, base or bare", 0, 0},
    {"key-form", NULL, FV_OPTION_STRING, "FORM", "v4", "config format of transformers: v4 or v5", 0,
     0},
    {"seed", NULL, FV_OPTION_INT, "S", "0", "random seed of the weights", 0, 9007199254740991.0},
    {"force", NULL, FV_OPTION_FLAG, NULL, NULL, "write into a directory that is not empty", 0, 0},
};
enum { N_OPTION = sizeof table / sizeof *table };

static const char usage[] = "fovea synth (--shape NAME | --config FILE) --out DIR [options]";
static const char about[] = "Writes a checkpoint with random weights, which fovea and "
                            "transformers load like a real\none. The same seed gives the same "
                            "weights for any tensor naming, dtype (rounded) and shard count.";

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

const fv_command fv_cli_synth = {.name = "synth",
                                 .summary = "write a checkpoint with random weights",
                                 .usage = usage,
                                 .about = about,
                                 .table = table,
                                 .n_option = N_OPTION,
                                 .run = run};
