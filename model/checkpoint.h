#ifndef FOVEA_MODEL_CHECKPOINT_H
#define FOVEA_MODEL_CHECKPOINT_H

/* A checkpoint, a Hugging Face directory or a GGUF file of a text model, opened: configs read, every
 * tensor found by its canonical name, its shape checked, its bytes mapped and borrowed.
 *
 * Directories may have one safetensors file or an index with shards, F32, F16 or BF16 (mixed is
 * fine), linear layers also in compressed-tensors' W8A8, W4A16 and W4A8, and key names in any of
 * five name mappings (MODEL.md). */
#include "common/schedule.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/latent/latent.h"
#include "model/net/weights.h"
#include "model/quantize.h"

typedef struct fv_checkpoint fv_checkpoint; /* opaque; owns the mappings and every view */

/* Opens `from`. Errors name the file, key or tensor, what was found and what was expected:
 * FV_ENOTFOUND a missing file or tensor, FV_EDATA a corrupt or truncated file or a wrong
 * shape, FV_EUNSUPPORTED a family, activation or dtype that the engine lacks. */
fv_status fv_checkpoint_open(const char *from, fv_checkpoint **out);
void fv_checkpoint_close(fv_checkpoint *ck); /* NULL is fine; all borrowed views become invalid */

/* Reports progress; called now and then on the thread that waits. */
typedef void fv_checkpoint_progress(void *user, int32_t done, int32_t n);

/* Repacks weights that cannot be used as stored (GGUF, model/gguf_weights.h; experts that are
 * transposed, model/transpose.h), on the threads of `be`. Until then their views have only types and
 * sizes. `next`: the format in which fv_checkpoint_quantize is called next, or NULL; transposed experts
 * are left to it. FV_EDATA if a weight holds a number that is not finite. progress may be NULL. */
fv_status fv_checkpoint_load(fv_checkpoint *ck, fv_backend *be, const fv_weights *next,
                             fv_checkpoint_progress *progress, void *user);

/* Quantizes the linear layers of the text model's layers, and the output head to fv_weights_head,
 * on the threads of `be`; embedding, norms, biases, tower and connector stay. A head that is the
 * embedding too becomes a copy; a quantized head stays. FV_EUNSUPPORTED if layers are integers
 * already or too long for int8, FV_EDATA if one holds a number that is not finite. progress may be
 * NULL. */
fv_status fv_checkpoint_quantize(fv_checkpoint *ck, fv_backend *be, const fv_weights *to,
                                 fv_checkpoint_progress *progress, void *user);

/* Lets products multiply the integers of weights of 4 bits, and of 8 bits in groups, that the files have for
 * activations of 16 bits (AWQ, GPTQ, W4A16, W8A16, GGUF's Q4_K): activations are quantized per 32 numbers then, as
 * with --weights int4. After fv_checkpoint_load. *changed: there are such weights. FV_ENOMEM. */
fv_status fv_checkpoint_use_integers(fv_checkpoint *ck, fv_backend *be, bool *changed);

/* Makes numbers of all weights that the files have in integers, in the type of the embedding, for products as of
 * a checkpoint that is not quantized; on all threads of `be`, after fv_checkpoint_load. The integers stay in
 * memory until the checkpoint is closed. FV_EUNSUPPORTED if no weight is in integers; FV_ENOMEM. */
fv_status fv_checkpoint_dequantize(fv_checkpoint *ck, fv_backend *be,
                                   fv_checkpoint_progress *progress, void *user);

/* Writes a quantized checkpoint as a directory that can be mapped (model/compressed.h). *bytes: of
 * its tensors. FV_EUNSUPPORTED if some weights were integers in the files. */
fv_status fv_checkpoint_write(const fv_checkpoint *ck, const fv_weights *as, const char *dir,
                              fv_checkpoint_progress *progress, void *user, uint64_t *bytes);

/* Borrowed from ck. Vision and projector are NULL for a text-only checkpoint. */
const fv_model_config *fv_checkpoint_config(const fv_checkpoint *ck);
/* Sets what config.json leaves to the tokenizer (FV_IMAGE_TOKEN_NAMED): the id of the image token,
 * and one more id that ends an answer, or -1. FV_EDATA: the image token is beyond the vocabulary. */
fv_status fv_checkpoint_set_tokens(fv_checkpoint *ck, int32_t image_token, int32_t eos);
const fv_generation_config *fv_checkpoint_generation(const fv_checkpoint *ck);
const fv_image_config *fv_checkpoint_image(const fv_checkpoint *ck);
const fv_text_weights *fv_checkpoint_text(const fv_checkpoint *ck);
const fv_vision_weights *fv_checkpoint_vision(const fv_checkpoint *ck);
/* Video-LLaVA's second tower; NULL in other families. */
const fv_vision_weights *fv_checkpoint_video(const fv_checkpoint *ck);
const fv_projector_weights *fv_checkpoint_projector(const fv_checkpoint *ck);
const char *fv_checkpoint_dir(const fv_checkpoint *ck);

/* The checkpoint's calibration (model/calibration.h); NULL: not measured. */
const int32_t *fv_checkpoint_blocks(const fv_checkpoint *ck);    /* source layers, [n_layer] */
const double *fv_checkpoint_thresholds(const fv_checkpoint *ck); /* [3] cos, l2, exit_cos */
int32_t fv_checkpoint_withdraw(const fv_checkpoint *ck);         /* for prune=vtw; 0: not
                                                                  * measured */
const fv_schedule *fv_checkpoint_schedules(const fv_checkpoint *ck, int32_t *n); /* [*n] */

/* Why an existing calibration is unusable, for instance because it belongs to other weights; or
 * NULL. */
const char *fv_checkpoint_uncalibrated(const fv_checkpoint *ck);

/* The latent directions for this KV dtype and compute mode (model/latent/latent.h), borrowed; NULL
 * if there are none, with the reason in *why, also borrowed. */
const fv_latent *fv_checkpoint_latent(const fv_checkpoint *ck, const char *dtype,
                                      const char *compute, const char **why);

/* Returns whether the text model's linear layers are integers. */
bool fv_checkpoint_is_quantized(const fv_checkpoint *ck);

/* Bytes of all tensors that the network uses, without the table of per-layer embeddings
 * (model/net/layer_inputs_internal.h), and of that: a mapping of which a token reads one row. */
size_t fv_checkpoint_bytes(const fv_checkpoint *ck);
size_t fv_checkpoint_table_bytes(const fv_checkpoint *ck);

/* 16 hex digits and a NUL that identify a checkpoint: XXH64 over config.json, then name,
 * dtype, shape and the first and last 4 KiB of every used tensor in canonical order. */
void fv_checkpoint_fingerprint(const fv_checkpoint *ck, char out[17]);

/* Looks for the first tensor that holds a NaN or an infinity: its name as in the file, or
 * NULL. Reads every weight; for error messages and `fovea` diagnostics. */
const char *fv_checkpoint_find_nonfinite(const fv_checkpoint *ck);

#endif
