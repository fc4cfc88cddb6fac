#ifndef FOVEA_PREFILL_WORKER_STAGES_H
#define FOVEA_PREFILL_WORKER_STAGES_H

/* IMAGE + PROMPT -> COMPACT KV. The prefill worker's stages, in the order in which a request
 * meets them; each header says what goes in and what comes out. */
/* clang-format off */
#include "prefill-worker/image.h"   /* bytes of a picture -> pixels -> pixel values */
#include "prefill-worker/encode.h"  /* pixel values -> vision tower -> rows of the text model */
#include "prefill-worker/condense.h" /*   behind the tower: fewer rows of each picture */
#include "prefill-worker/prompt.h"  /* text and images -> token ids, images expanded */
#include "prefill-worker/prefill.h" /* rows -> decoder layers -> KV store and first logits */
#include "prefill-worker/prune.h"   /*   between layers: visual rows that go no further */
#include "prefill-worker/select.h"  /*   behind layers: KV rows that stay, per layer and head */
#include "prefill-worker/pack.h"    /*   behind layers: visual rows as low-rank factors */
#include "prefill-worker/rank.h"    /*   behind layers: visual rows in the order of their rank */
#include "prefill-worker/ship.h"    /* KV store -> sections -> transport */
/* clang-format on */

#endif
