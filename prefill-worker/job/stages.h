#ifndef FOVEA_PREFILL_WORKER_JOB_STAGES_H
#define FOVEA_PREFILL_WORKER_JOB_STAGES_H

/* IMAGE + PROMPT -> COMPACT KV. The prefill worker's stages, in the order in which a request
 * meets them; each header says what goes in and what comes out. */
/* clang-format off */
#include "prefill-worker/image/image.h"   /* bytes of an image -> pixels -> pixel values */
#include "prefill-worker/encode/encode.h"  /* pixel values -> vision tower -> rows of the text model */
#include "prefill-worker/condense/condense.h" /*   behind the tower: fewer rows of each image */
#include "prefill-worker/prompt/prompt.h"  /* text and images -> token ids, images expanded */
#include "prefill-worker/prefill/prefill.h" /* rows -> decoder layers -> KV store and first logits */
#include "prefill-worker/prune/prune.h"   /*   between layers: visual tokens that go no further */
#include "prefill-worker/select/select.h"  /*   behind layers: KV entries that stay, per layer and head */
#include "prefill-worker/pack/pack.h"    /*   behind layers: visual tokens as low-rank factors */
#include "prefill-worker/prefill/rank.h"    /*   behind layers: visual tokens in the order of their rank */
#include "prefill-worker/export/export.h"    /* KV store -> sections -> transport */
/* clang-format on */

#endif
