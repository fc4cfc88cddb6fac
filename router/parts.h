#ifndef FOVEA_ROUTER_PARTS_H
#define FOVEA_ROUTER_PARTS_H

/* PARTS: names for the beginnings of a request's prompt. The router has no tokenizer, so it cuts the message: behind images
 * and videos, behind turns of a chat, and behind each FV_PARTS_TEXT bytes of text.
 *
 *   base --> turn --> image --> text --> turn             each arrow is a SHA-256 of the name before it and the part
 *            end 0    end 1     end 2    end 3            name: 64 bits of it
 *
 * The base covers a secret of the fleet, the tenant, the salt, the adapter and whatever else shapes the whole prompt: so names
 * of different tenants or salts have nothing in common, and nobody outside can make two prompts with one name. Two requests
 * have a name in common if all up to there is equal; that workers keep the same for both is likely, and for the worker to
 * decide. Pure functions; any thread. */
#include "auth/mac.h"
#include "inference.pb-c.h"

enum {
    FV_PARTS_MAX = 32,
    FV_PARTS_TEXT = 1024, /* bytes; tokens are four each */
};

typedef struct fv_part_end {
    uint64_t name;        /* never 0 */
    uint32_t items, text; /* images and videos, and bytes of text, up to there */
} fv_part_end;

/* The ends in ascending order; the last one is the prompt's. Of more than FV_PARTS_MAX, those at multiples of 2, 4, 8, ...
 * stay, of turns and images and of text apart. */
typedef struct fv_parts {
    int32_t n;
    fv_part_end end[FV_PARTS_MAX];
} fv_parts;

/* All borrowed. */
typedef struct fv_parts_of {
    const Fovea__Inference__V1__GenerateRequest *msg; /* checked by fv_admit */
    const fv_key *secret;
    const char *tenant, *adapter; /* "": none */
    const char *word[2]; /* that marks an image and a video in plain text; NULL: there is none */
    uint32_t image_token, video_token; /* likewise among ids; 0: there is none */
} fv_parts_of;

/* Bytes that fv_parts_name hashes, about. */
size_t fv_parts_bytes(const Fovea__Inference__V1__GenerateRequest *msg);

/* Names the beginnings of the prompt. FV_ENOMEM: libcrypto failed; there are none then. */
fv_status fv_parts_name(const fv_parts_of *of, fv_parts *out);

#endif
