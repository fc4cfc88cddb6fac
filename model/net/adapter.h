#ifndef FOVEA_MODEL_NET_ADAPTER_H
#define FOVEA_MODEL_NET_ADAPTER_H

/* LoRA (arXiv 2106.09685): low-rank products beside the linear layers of the text model.
 *
 *     y = x W^T + bias                                 of all rows of a pass, as without adapters
 *     y = y + (x A^T) B^T                              of the rows whose sequence has an adapter
 *
 * A [r, K] and B [N, r] are F32, whatever W is and whatever the backend computes in; B includes the adapter's scale.
 * Both products are canonical ones in f32 (kernels/ops.h), so a row has the same bits alone, in a batch of any
 * adapters, in a chunk, and on every instruction set; a row without an adapter is not touched.
 *
 * A sequence names its adapter in its store (fv_kv_sequence). Rows of a pass that have the same one are gathered and
 * multiplied together, so that a batch reads the matrices of each adapter once. This needs a backend whose memory
 * is the host's. */
#include "common/arena.h"
#include "kv/kv.h"
#include "model/net/weights.h"

enum { FV_ADAPTER_NAME_MAX = 200, FV_ADAPTER_DIGEST_MAX = 65 };

typedef struct fv_adapter_pair {
    fv_tensor a, b; /* [r, K], [N, r]; absent: this linear layer is not adapted */
} fv_adapter_pair;

/* A pair for each tensor of a layer, in the order of its members. */
enum { FV_ADAPTER_PAIRS = sizeof(fv_text_layer) / sizeof(fv_tensor) };

typedef struct fv_adapter_layer {
    fv_adapter_pair pair[FV_ADAPTER_PAIRS];
} fv_adapter_layer;

typedef struct fv_adapter {
    char name[FV_ADAPTER_NAME_MAX + 1]; /* in requests */
    char digest[FV_ADAPTER_DIGEST_MAX]; /* SHA-256 of its files, in hex */
    int32_t rank;                       /* the largest */
    size_t bytes;                       /* of all matrices */
    fv_adapter_layer *layer;            /* [N] */
    fv_adapter_layer *recurrent;        /* [N, recurrent layers ahead of each] */
} fv_adapter;

/* The adapters that a program has. */
typedef struct fv_adapters {
    int32_t n;
    fv_adapter *adapter; /* [n] */
} fv_adapters;

/* The adapter of this name, or with this digest; NULL: there is none. */
const fv_adapter *fv_adapters_named(const fv_adapters *all, const char *name);
const fv_adapter *fv_adapters_with(const fv_adapters *all, const char *digest);

/* ---- the rows of a pass, used inside model/net only ------------------------------------------ */

/* Rows that have the same adapter. */
typedef struct fv_adapter_group {
    const fv_adapter *adapter;
    int32_t n, *row; /* [n] ascending */
} fv_adapter_group;

typedef struct fv_adapter_rows {
    int32_t n;
    fv_adapter_group *group; /* [n] */
} fv_adapter_rows;

struct fv_forward_batch;
struct fv_decoder;

/* Groups n rows of a pass, row[n] ascending (NULL: its first n), by adapter; the groups' rows are indices into `row`. */
fv_status fv_adapter_rows_make(const struct fv_forward_batch *pass, const int32_t *row, int32_t n,
                               fv_arena *arena, fv_adapter_rows *out);

/* Adds to y [n, N], the product of x [n, K] with the tensor `of` of the decoder's layer w, what the rows' adapters add. */
fv_status fv_adapter_add(struct fv_decoder *dec, const fv_adapter_rows *rows,
                         const fv_text_layer *w, const fv_tensor *of, fv_tensor x, fv_tensor y);

#endif
