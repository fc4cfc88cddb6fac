#ifndef FOVEA_PREFILL_WORKER_JOB_PREFIX_H
#define FOVEA_PREFILL_WORKER_JOB_PREFIX_H

/* A JOB AND THE CACHE OF PREFIXES (kv/cache/prefix.h), in the order of the calls, between fv_prefill_job_begin and the
 * run:
 *
 *   caches   whether the job may use the cache at all
 *   digest   hashes the contents of its images, on any thread
 *   chain    names the prompt's segments
 *   take     finds the longest prefix that is kept: its rows are not computed, and images within it are not read
 *   (unread, read, encode, run: job.h)
 *   keep     keeps what was computed, before anything changes the store
 *
 * The cache keeps raw rows, as they are computed before `select` and `pack` change them. So all policies share them
 * that only act after a layer has run: rows are selected and packed anew, each time from the same bits. Policies that
 * condense images, or share keys between layers, have prefixes of their own. Of a policy that drops tokens between the
 * layers the cache keeps the rows of the layers before, and the residual stream there: only the other layers run
 * again (policy/plan/prefix.h). */
#include "prefill-worker/job/job.h"

/* Whether the job may use the cache: it has one, its plan has rows that do not depend on what follows them, no observer
 * needs all of them, and no image is encoded yet that need not be. */
bool fv_prefill_job_caches(const fv_prefill_job *j);

/* Whether all layers of the store hold these rows at the end, too: the plan is that of `exact`. */
bool fv_prefill_job_shares(const fv_prefill_job *j);

/* Whether a decode worker may keep the rows that it gets, and do without those that it has: these, or those of a policy that
 * evicts rows only once the answer has begun. */
bool fv_prefill_job_sends_raw(const fv_prefill_job *j);

/* Whether images must be hashed before the chain is made. */
bool fv_prefill_job_undigested(const fv_prefill_job *j);

/* Takes memory for the digests; returns the bytes to be hashed. */
fv_status fv_prefill_job_digest_begin(fv_prefill_job *j, uint64_t *bytes);

/* Hashes images and videos. On any thread, while no other uses the job. */
fv_status fv_prefill_job_digest(fv_prefill_job *j);

/* Makes the chain; again is fine. */
fv_status fv_prefill_job_chain(fv_prefill_job *j);

/* A place in the prompt that the router has named: behind this many images and videos and this much of the text, in a
 * unit of the router's. */
enum { FV_PROMPT_ENDS_MAX = 32 };
typedef struct fv_prompt_end {
    uint64_t name;
    uint32_t items, text;
} fv_prompt_end;

/* Names the links of the chain that are at these places, which ascend, or shortly before them; the last place is the
 * prompt's end. Places between two images are exact; within a text, tokens are taken as evenly spread. */
void fv_prefill_job_name_links(fv_prefill_job *j, const fv_prompt_end *end, int32_t n);

/* Number of leading links of the chain whose rows the job need not compute if they are kept. */
int32_t fv_prefill_job_links_wanted(const fv_prefill_job *j);

/* Rows of the prompt that the cache has now. */
int32_t fv_prefill_job_prefix_rows(const fv_prefill_job *j);

/* Whether `j`, of which the cache has `have` rows (fv_prefill_job_prefix_rows), would lack much less if what `other`
 * computes were kept: an image less, or half of its rows. For less a common batch is faster than one after the
 * other. Both have chains. */
bool fv_prefill_job_gains(const fv_prefill_job *j, int32_t have, const fv_prefill_job *other);

/* Takes the longest prefix that is kept, possibly none. */
fv_status fv_prefill_job_take_prefix(fv_prefill_job *j);

/* Opens a draft of the first n links of the chain, of what the cache keeps of them. */
void fv_prefill_job_open_draft(const fv_prefill_job *j, int32_t n, fv_prefix_draft *out);

/* The layer before which rows that were kept run again (fv_prefill_request.join_layer); 0: none. */
int32_t fv_prefill_job_join_layer(const fv_prefill_job *j);

/* Gives it back, and drops what was not kept; again is fine. prefix.rows and the like stay, for reports. */
void fv_prefill_job_give_prefix(fv_prefill_job *j);

/* Keeps the prompt's rows after the run. seconds_row: that a row took in it. */
void fv_prefill_job_keep_prefix(fv_prefill_job *j, double seconds_row);

/* fv_prefill_request.fill, .computed, .join and .joined; user: the job. */
fv_status fv_prefill_job_fill(void *user, fv_kv *kv, int32_t l0, int32_t l1);
void fv_prefill_job_draft(void *user, const fv_kv *kv, int32_t l0, int32_t l1);
fv_status fv_prefill_job_join(void *user, void *x);
void fv_prefill_job_joined(void *user, const void *x);

#endif
