/* Opens a checkpoint: configs, weight files, and a view of every tensor.
 *
 *   dir --> config.json ------------> fv_model_config --> manifest (names, shapes)
 *       --> *.safetensors --> shards --> find by canonical name --> check --> view
 *
 * Opened once, then read by any thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "model/checkpoint_internal.h"

static fv_status open_all(fv_checkpoint *ck, const char *dir) {
    FV_TRY(fv_arena_strndup(&ck->arena, dir, strlen(dir), &ck->dir));
    FV_TRY(fv_checkpoint_read_config(ck, dir));
    FV_TRY(fv_checkpoint_read_generation(ck, dir));
    if (ck->cfg.has_vision)
        FV_TRY(fv_checkpoint_read_processors(ck, ck->tower_dir.path ? ck->tower_dir.path : dir));
    FV_TRY(fv_checkpoint_open_weights(ck));
    FV_TRY(fv_checkpoint_open_tensors(ck));
    FV_LOG(INFO, MODEL, "checkpoint=%s dialect=%s files=%d tensors=%d extra=%d bytes=%zu", dir,
           fv_shards_gguf(ck->shards) ? "gguf"
           : fv_shards_mistral(ck->shards)
               ? "mistral"
               : fv_name_mapping_name(fv_shards_name_mapping(ck->shards, ck->cfg.family->names)),
           fv_shards_files(ck->shards), ck->n_used, fv_shards_tensors(ck->shards) - ck->n_used,
           ck->bytes);
    fv_shards_populate(ck->shards);
    if (ck->tower) fv_shards_populate(ck->tower);
    return FV_OK;
}

/* An unusable calibration is ignored with a warning: a policy that needs it is
 * refused, and everything else runs. */
static void read_calibration(fv_checkpoint *ck) {
    char fingerprint[17];
    fv_checkpoint_fingerprint(ck, fingerprint);
    fv_status st =
        fv_calibration_read(ck->dir, fingerprint, ck->cfg.text.n_layer, &ck->calibration);
    if (st == FV_OK || st == FV_ENOTFOUND) return;
    snprintf(ck->uncalibrated, sizeof ck->uncalibrated, "%s", fv_last_error());
    FV_LOG(WARN, MODEL, "event=not-calibrated reason=\"%s\"", ck->uncalibrated);
}

/* Ignores unusable latent directions likewise. */
static void read_latent(fv_checkpoint *ck) {
    char fingerprint[17];
    const fv_text_config *t = &ck->cfg.text;
    fv_checkpoint_fingerprint(ck, fingerprint);
    fv_status st = fv_latent_open(ck->dir, fingerprint, &ck->latent);
    if (st == FV_OK && (ck->latent->info.n_layer != t->n_layer ||
                        ck->latent->info.n_kv != t->n_kv || ck->latent->info.d_head != t->d_head)) {
        st = FV_FAIL(FV_EDATA,
                     "%s/latent.bin does not match the checkpoint's layers, KV heads or head size: "
                     "run `fovea calibrate --latent` again",
                     ck->dir);
        fv_latent_close(ck->latent);
        ck->latent = NULL;
    }
    if (st == FV_OK || st == FV_ENOTFOUND) return;
    snprintf(ck->no_latent, sizeof ck->no_latent, "%s", fv_last_error());
    FV_LOG(WARN, MODEL, "event=no-latent-directions reason=\"%s\"", ck->no_latent);
}

fv_status fv_checkpoint_open(const char *from, fv_checkpoint **out) {
    fv_checkpoint *ck = calloc(1, sizeof(*ck));
    if (!ck) return FV_FAIL(FV_ENOMEM, "%s: no memory", from);
    ck->arena.block_bytes = 32 << 20; /* weights that are repacked */
    fv_status st = open_all(ck, from);
    if (st == FV_OK) read_calibration(ck);
    if (st == FV_OK) read_latent(ck);
    if (st == FV_OK)
        *out = ck;
    else
        fv_checkpoint_close(ck);
    return st;
}

void fv_checkpoint_close(fv_checkpoint *ck) {
    if (!ck) return;
    fv_latent_close(ck->latent);
    fv_shards_close(ck->shards);
    fv_shards_close(ck->tower);
    free(ck->manifest);
    fv_arena_fini(&ck->arena);
    fv_arena_fini(&ck->scratch);
    free(ck);
}

const fv_model_config *fv_checkpoint_config(const fv_checkpoint *ck) { return &ck->cfg; }
fv_status fv_checkpoint_set_tokens(fv_checkpoint *ck, int32_t id, int32_t eos) {
    fv_model_config *cfg = &ck->cfg;
    bool known = eos < 0 || cfg->n_eos == FV_MAX_EOS;
    if (id >= cfg->text.vocab)
        return FV_FAIL(FV_EDATA,
                       "%s: tokenizer.json has the token of an image as id %d, but the text "
                       "model's 'vocab_size' is %d",
                       ck->dir, id, cfg->text.vocab);
    cfg->image_token = id;
    for (int32_t i = 0; i < cfg->n_eos; i++) known = known || cfg->eos[i] == eos;
    if (!known) cfg->eos[cfg->n_eos++] = eos;
    return FV_OK;
}
const fv_generation_config *fv_checkpoint_generation(const fv_checkpoint *ck) { return &ck->gen; }
const fv_image_config *fv_checkpoint_image(const fv_checkpoint *ck) { return &ck->image; }
const fv_text_weights *fv_checkpoint_text(const fv_checkpoint *ck) { return &ck->text; }
const fv_vision_weights *fv_checkpoint_vision(const fv_checkpoint *ck) {
    return ck->cfg.has_vision ? &ck->vision : NULL;
}
const fv_vision_weights *fv_checkpoint_video(const fv_checkpoint *ck) {
    return ck->cfg.video_tower ? &ck->video : NULL;
}
const fv_projector_weights *fv_checkpoint_projector(const fv_checkpoint *ck) {
    return ck->cfg.has_vision ? &ck->projector : NULL;
}
const char *fv_checkpoint_dir(const fv_checkpoint *ck) { return ck->dir; }
const int32_t *fv_checkpoint_blocks(const fv_checkpoint *ck) {
    return ck->calibration.blocks.n_layer ? ck->calibration.blocks.source_layer : NULL;
}
const double *fv_checkpoint_thresholds(const fv_checkpoint *ck) {
    return ck->calibration.has_thresholds ? ck->calibration.thresholds : NULL;
}
int32_t fv_checkpoint_withdraw(const fv_checkpoint *ck) { return ck->calibration.withdraw; }
const fv_schedule *fv_checkpoint_schedules(const fv_checkpoint *ck, int32_t *n) {
    *n = ck->calibration.n_fitted;
    return ck->calibration.fitted;
}
const char *fv_checkpoint_uncalibrated(const fv_checkpoint *ck) {
    return ck->uncalibrated[0] ? ck->uncalibrated : NULL;
}
const fv_latent *fv_checkpoint_latent(const fv_checkpoint *ck, const char *dtype,
                                      const char *compute, const char **why) {
    const fv_latent *l = ck->latent;
    *why = ck->no_latent[0] ? ck->no_latent
                            : "the checkpoint has no latent directions: run `fovea calibrate "
                              "--latent`";
    if (!l) return NULL;
    if (strcmp(l->info.dtype, dtype) == 0 && strcmp(l->info.compute, compute) == 0) return l;
    *why =
        "the checkpoint's latent directions were measured with another KV dtype or compute mode: "
        "run `fovea calibrate --latent` with these";
    return NULL;
}
size_t fv_checkpoint_bytes(const fv_checkpoint *ck) { return ck->bytes; }

size_t fv_checkpoint_table_bytes(const fv_checkpoint *ck) { return ck->bytes_table; }
