#ifndef FOVEA_DECODE_WORKER_CONVERSATIONS_CONVERSATIONS_H
#define FOVEA_DECODE_WORKER_CONVERSATIONS_CONVERSATIONS_H

/* CONVERSATIONS: their KV on a worker, during an answer and, if requested, after it.
 *
 *            begin            keep                  expire, forget, evict, refuse
 *     (none) -----> IN USE ---------> KEPT under an id ------------------------> (gone)
 *                    |  ^  '-- end --> (gone)   |
 *                    |  '------- resume --------'
 *                    '---------- pause ---------> KEPT as before: nothing was added to it
 *
 * An id names a conversation as it was at the end of one answer. When the next answer resumes it,
 * the id becomes invalid, and what is kept then has a new one: a question that is
 * sent twice is not answered twice.
 *
 * A conversation is kept for its lease at most. All together may have bytes_max; when a new one
 * does not fit, those that were kept the longest ago are dropped, and their clients send the whole
 * conversation again. The same holds for one owner's conversations and the owner's limit. A conversation
 * that is larger than a limit by itself is not kept. Kept conversations are not dropped for new hand-offs, but
 * for answers that grow.
 *
 * One thread, that of the KV pool, owns a table. */
#include "decode-worker/evict/evict.h"
#include "kv/kv.h"
#include "model/net/text_codes.h"

typedef struct fv_conversation {
    fv_kv *kv;    /* owned; rows of all ids but the last, which was chosen and has not run. Only its
                   * owner may continue it */
    int32_t n;    /* ids */
    int32_t *ids; /* [n] owned; prompts and answers in their order */
    char *policy; /* text form, owned; for reports */
    fv_evict evict;
    fv_text_keys text_keys; /* recompress.h */
    fv_text_codes text;
    uint8_t id[16]; /* of a kept conversation */
    /* private */
    struct fv_conversation *next;
    bool in_use, named, forgotten;
    double until_s;
    size_t bytes;
} fv_conversation;

typedef struct fv_conversations_options {
    size_t bytes_max;            /* of all kept conversations together; 0: no limit */
    double keep_s_max;           /* longest lease; 0: nothing is kept */
    double (*clock)(void *user); /* seconds, monotonic; NULL: fv_clock_s */
    void *clock_user;
} fv_conversations_options;

typedef struct fv_conversations fv_conversations; /* opaque */

fv_status fv_conversations_open(const fv_conversations_options *opt, fv_conversations **out);
void fv_conversations_close(fv_conversations *t); /* none is in use; NULL is fine */

/* Begins an empty conversation, in use; the caller fills its fields. */
fv_status fv_conversations_begin(fv_conversations *t, fv_conversation **out);

/* Takes a kept conversation into use. FV_ENOTFOUND if this owner has none with this id, FV_EINVAL if it
 * is in use. */
fv_status fv_conversations_resume(fv_conversations *t, const uint8_t id[16], const char *owner,
                                  fv_conversation **out);

/* Returns a resumed conversation unchanged; its lease is not extended. */
void fv_conversations_pause(fv_conversations *t, fv_conversation *x);

/* Keeps a conversation that was in use under a new id, with its ids [n] (copied). Returns for how many
 * seconds, at most `asked_s`; 0: it is dropped instead. owner_bytes: limit of its owner's kept
 * conversations; 0: no limit. */
double fv_conversations_keep(fv_conversations *t, fv_conversation *x, const int32_t *ids, int32_t n,
                             double asked_s, size_t owner_bytes);

void fv_conversations_end(fv_conversations *t, fv_conversation *x); /* drops one in use */

/* Drops a kept conversation now, and one in use when it is paused. An unknown id is fine. */
void fv_conversations_forget(fv_conversations *t, const uint8_t id[16]);

/* Drops the conversation of this owner (NULL: of any) that was kept the longest ago; false: there is none. */
bool fv_conversations_give_up(fv_conversations *t, const char *owner);

/* Drops all kept conversations and keeps none from now on: the worker is about to leave. */
void fv_conversations_stop(fv_conversations *t);

/* Drops kept conversations whose lease is over; returns how many. */
int32_t fv_conversations_expire(fv_conversations *t);
double fv_conversations_next_s(const fv_conversations *t); /* seconds until then; HUGE_VAL: never */

int32_t fv_conversations_kept(const fv_conversations *t);
size_t fv_conversations_bytes(const fv_conversations *t); /* of the pool, held by those kept */

#endif
