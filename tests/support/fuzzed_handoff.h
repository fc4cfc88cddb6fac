#ifndef FOVEA_TESTS_SUPPORT_FUZZED_HANDOFF_H
#define FOVEA_TESTS_SUPPORT_FUZZED_HANDOFF_H

/* The receiving side for which the streams of fuzz/corpus/kv_packet were made. */
#include <stdlib.h>

#include "decode-worker/receive/receive.h"
#include "tests/support/latent.h"

enum { FUZZED_N = 2, FUZZED_HKV = 2, FUZZED_D = 4, FUZZED_TEXT = 3, FUZZED_VISUAL = 4 };

/* Directions of pack=latent; made once. */
static inline const fv_latent *fuzzed_latent(void) {
    static fv_latent *latent;
    fv_latent_info info = latent_info(FUZZED_N, FUZZED_HKV, FUZZED_D, "", "", "");
    if (!latent) latent = latent_open(&info);
    return latent;
}

/* Bits of a seed's first byte: with both of these the model has recurrent layers. */
enum { FUZZED_STATE = 0x60, FUZZED_STATE_BYTES = 24 };

static inline fv_kv_shape fuzzed_shape(void) {
    return (fv_kv_shape){.n_layer = FUZZED_N,
                         .n_kv = FUZZED_HKV,
                         .d_head = FUZZED_D,
                         .dtype = FV_F16,
                         .latent = fuzzed_latent()->layer,
                         .latent_sum = fuzzed_latent()->checksum};
}

/* Bits of a seed's first byte: with the first one the stream has text in codes; with only the
 * second its latent keys become codes. */
enum { FUZZED_TEXT_CODES = 128, FUZZED_KEY_CODES = 4 };

/* The offer of a stream's grant. */
static inline fv_hello fuzzed_hello_of(uint8_t seed) {
    fv_hello hello = {.n_text = FUZZED_TEXT,
                      .n_visual = FUZZED_VISUAL,
                      .max_tokens = 2,
                      .bytes_visual = 8192,
                      .policy = seed & FUZZED_TEXT_CODES
                                    ? "pack=quant,compress_text=all,bits_text=4,recompress=16"
                                : seed & FUZZED_KEY_CODES ? "pack=latent,keys=codes"
                                                          : ""};
    fv_compat_fields fields = {.model = "fuzz",
                               .n_layer = FUZZED_N,
                               .n_kv = FUZZED_HKV,
                               .d_head = FUZZED_D,
                               .dtype = "f16",
                               .compute = "f32",
                               .latent = fuzzed_latent()->checksum};
    if (fv_compat_make(&fields, &hello.compat) != FV_OK) abort();
    return hello;
}

static inline fv_hello fuzzed_hello(void) { return fuzzed_hello_of(0); }

/* The caller closes both, the receiver first. */
static inline void fuzzed_open(uint8_t seed, fv_kv_pool **pool, fv_receiver **r) {
    fv_kv_shape shape = fuzzed_shape();
    if ((seed & FUZZED_STATE) == FUZZED_STATE) shape.state_bytes = FUZZED_STATE_BYTES;
    if (fv_kv_pool_open(fv_device_host(), &shape, 1 << 20, pool) != FV_OK) abort();
    fv_receiver_options opt = {.pool = *pool,
                               .model = "fuzz",
                               .n_vocab = 50,
                               .n_group = 2,
                               .max_position = 64,
                               .grants = fv_grants_options_default()};
    opt.grants.capacity = 2;
    if (fv_receiver_open(&opt, r) != FV_OK) abort();
}

#endif
