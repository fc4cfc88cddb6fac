#ifndef FOVEA_HANDOFF_LINKS_H
#define FOVEA_HANDOFF_LINKS_H

/* LINKS name the beginnings of a prompt, so that what the receiver has kept of one need not be sent again. A key names
 * the whole prompt up to the link's end: two prompts with a key in common have the same KV there, bit for bit
 * (kv/cache/chain.h makes the keys).
 *
 *   Open   the sender's links, those of a prompt's first rows first
 *   Grant  how many of them the receiver has; it keeps these rows until the grant ends
 *   KEPT   the section by which the stream says what it leaves out: all that the grant has named, or else nothing
 *
 * After an answer, the receiver has it, too. Its end is no link of the next prompt, as a page of text does not end there;
 * so Open also brings the last ids of the prompt, and Grant says how many tokens after the last link are there.
 *
 * A side that does not know links sends none, or names none, and everything is sent. Any thread. */
#include "handoff/refusal.h"

enum {
    FV_LINK_KEY_BYTES = 32,
    FV_LINK_BYTES = 40,
    FV_LINKS_MAX = 256,
    FV_WIRE_KEPT_BYTES = 12,
    FV_TAIL_MAX = 1024, /* ids after the links */
};

typedef struct fv_wire_link {
    uint8_t key[FV_LINK_KEY_BYTES];
    uint32_t n_text, n_visual; /* tokens from the prompt's first one to the link's end */
    uint64_t name; /* the routers' (PromptEnd in handoff.proto); 0: none. Not part of the bytes */
} fv_wire_link;

/* Writes n links, FV_LINK_BYTES each, without their names. */
void fv_links_put(const fv_wire_link *link, uint32_t n, uint8_t *out);

/* Reads links into link[FV_LINKS_MAX]. INVALID: a part of a link, or too many. */
fv_status fv_links_get(const uint8_t *p, size_t bytes, fv_wire_link *link, uint32_t *n);

/* INVALID: too many links, one that ends before its predecessor does, or after the prompt. */
fv_status fv_links_check(const fv_wire_link *link, uint32_t n, uint32_t n_text, uint32_t n_visual);

/* The rows that a stream leaves out. */
typedef struct fv_wire_kept {
    uint32_t n_link, n_text, n_visual;
} fv_wire_kept;

void fv_wire_kept_put(const fv_wire_kept *k, uint8_t *out); /* FV_WIRE_KEPT_BYTES */
void fv_wire_kept_get(const uint8_t *p, fv_wire_kept *out);

#endif
