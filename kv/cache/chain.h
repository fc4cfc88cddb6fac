#ifndef FOVEA_KV_CACHE_CHAIN_H
#define FOVEA_KV_CACHE_CHAIN_H

/* CHAIN: a prompt cut into segments, each with a key that names the whole prompt up to its end.
 *
 *   base --> text run --> image --> text run --> text run
 *            key 0        key 1     key 2        key 3
 *
 *   key i = SHA-256(key i-1, everything that the KV of segment i depends on besides)
 *
 * Two prompts have a key in common exactly if their KV up to that segment's end has the same bits. The base
 * covers what holds for all of a prompt: the checkpoint and how it computes, the type of the KV, the stages of the
 * policy, and the salt. A segment adds its token ids, or the digest of its image or video; and the positions by
 * which its rows are rotated (M-RoPE's, too).
 *
 * A segment is a run of visual rows of one image (one run a tile, where text stands between tiles; a video's
 * frame likewise), or up to FV_KV_BLOCK rows of text. Text is cut before and after visual rows, and where a
 * prompt's number of text rows is a multiple of FV_KV_BLOCK, which is where the store's pages end
 * (kv/kv.h). Keys are full digests: nobody can make two prompts with the same one. Pure functions; any thread. */
#include "common/rope_map.h"
#include "common/status.h"
#include "kv/cache/digest.h"

typedef struct fv_chain_key {
    uint8_t bytes[FV_DIGEST_BYTES];
} fv_chain_key;

typedef struct fv_chain_link {
    fv_chain_key key;
    int32_t end;              /* prompt rows (positions) covered, from the first on */
    int32_t n_text, n_visual; /* text rows and visual rows among them; their sum is `end` */
    uint64_t name;            /* the routers' name of it (kv/cache/kept_log.h); 0: none */
} fv_chain_link;

/* The inputs that the KV of every row depends on. Texts are borrowed; NULL is like "". */
typedef struct fv_chain_base {
    const char *compat;   /* names the checkpoint, its weights and the shape of its KV */
    const char *compute;  /* type of products */
    const char *kv_dtype; /* type of keys and values */
    const char
        *stages; /* the policy's stages that shape the rows, as text; "": raw rows of `exact` */
    const char *tenant; /* prefixes of other tenants have other keys */
    const char *salt;   /* the request's cache_salt */
} fv_chain_base;

/* A run of visual rows. */
typedef struct fv_chain_visual {
    int32_t first, n; /* rows [first, first + n); n > 0 */
    /* Digest of its image's or video's whole content, of the settings of its preprocessing, its layout, and which
     * of the image's runs this is. */
    uint8_t digest[FV_DIGEST_BYTES];
} fv_chain_visual;

typedef struct fv_chain_prompt {
    int32_t n;          /* rows */
    const int32_t *ids; /* [n] read at text rows only */
    int32_t n_visual;
    const fv_chain_visual
        *visual;          /* [n_visual] ascending, without overlap; all other rows are text */
    fv_rope_map rope_map; /* {0}: rows are rotated by their positions */
    bool
        image_whole; /* rows of an image attend to the whole image: neighbouring runs are one segment */
} fv_chain_prompt;

/* Largest number of links of a prompt of n rows with n_visual runs. */
static inline int32_t fv_chain_links_max(int32_t n, int32_t n_visual) {
    return n / 64 + 2 * n_visual + 2;
}

/* Writes the links of a prompt, at most fv_chain_links_max, to `link`; *n_link: their number, 0 without rows. The
 * last one ends with the prompt. FV_EINVAL: the visual runs do not ascend or reach past the prompt. FV_ENOMEM:
 * libcrypto failed. */
fv_status fv_chain_make(const fv_chain_base *base, const fv_chain_prompt *prompt,
                        fv_chain_link *link, int32_t *n_link);

/* Continues a chain after its link `from`, which must end where a segment of every longer prompt ends, too: with a run
 * of visual rows, or at a multiple of FV_KV_BLOCK text rows. The rows after it are text; prompt->visual is not read. Writes the
 * links after `from` as fv_chain_make would. Errors likewise. */
fv_status fv_chain_continue(const fv_chain_prompt *prompt, const fv_chain_link *from,
                            fv_chain_link *link, int32_t *n_link);

/* Number of leading links that two chains have in common. */
int32_t fv_chain_common(const fv_chain_link *a, int32_t n_a, const fv_chain_link *b, int32_t n_b);

static inline bool fv_chain_key_equal(const fv_chain_key *a, const fv_chain_key *b) {
    return __builtin_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

#endif
