#ifndef FOVEA_TESTS_OPS_NANO_ITEMS_H
#define FOVEA_TESTS_OPS_NANO_ITEMS_H

/* A FILE OF ITEMS: the parts of a checkpoint and an evaluation for a machine without the libraries
 * that read them. tests/parity/nano_items.c writes it, tests/ops/ops_device_nano.c reads it, from
 * the same sources on a machine of the same kind.
 *
 *   items_head
 *   char [n_file][ITEMS_NAME]         the checkpoint's weight files; they stay where they are
 *   items_tensor [n_tensor]           where each tensor lies, in the order of items_tensors
 *   n_item times: items_item, then n ids (int32), then n_image images of [3, S, S] bytes */
#include <string.h>

#include "model/config.h"
#include "model/net/weights.h"

enum { ITEMS_NAME = 64, ITEMS_TASK = 16, ITEMS_PARTS = 3 };
#define ITEMS_MAGIC "fovea items 1"

typedef struct items_head {
    char magic[16];
    fv_model_config cfg;
    float value[3][256]; /* the tower's input for each byte of a channel */
    int32_t n_file, n_tensor, n_item;
} items_head;

typedef struct items_tensor {
    int32_t file; /* -1: the tensor is absent */
    fv_dtype dtype;
    int32_t rows, cols;
    int64_t offset; /* of its bytes in the file */
} items_tensor;

typedef struct items_item {
    char task[ITEMS_TASK];
    int32_t n, n_image, max_tokens;
} items_item;

/* The network's weights, all of them. */
typedef struct items_weights {
    fv_text_weights text;
    fv_vision_weights tower;
    fv_projector_weights projector;
} items_weights;

/* The tower layers whose tensors are in a file: those that run. */
static inline int32_t items_tower_layers(const fv_model_config *cfg) {
    int32_t n = 0;
    for (int32_t i = 0; i < cfg->vision.n_feature_layer; i++)
        if (cfg->vision.feature_layer[i] > n) n = cfg->vision.feature_layer[i];
    return n;
}

/* Calls fn for every tensor of the weights, in one order; layers have room. A layer and the
 * projector are nothing but tensors. */
static inline void items_tensors(const fv_model_config *cfg, items_weights *w,
                                 void (*fn)(void *arg, fv_tensor *t), void *arg) {
    fv_tensor *single[] = {&w->text.embed,     &w->text.norm,          &w->text.head,
                           &w->tower.cls,      &w->tower.patch,        &w->tower.position,
                           &w->tower.pre_norm, &w->tower.pre_norm_bias};
    struct {
        void *first;
        size_t bytes;
    } part[ITEMS_PARTS] = {
        {w->text.layer, (size_t)cfg->text.n_layer * sizeof *w->text.layer},
        {w->tower.layer, (size_t)items_tower_layers(cfg) * sizeof *w->tower.layer},
        {&w->projector, sizeof w->projector}};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) fn(arg, single[i]);
    for (int p = 0; p < ITEMS_PARTS; p++)
        for (size_t i = 0; i < part[p].bytes / sizeof(fv_tensor); i++)
            fn(arg, (fv_tensor *)part[p].first + i);
}

#endif
