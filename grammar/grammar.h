#ifndef FOVEA_GRAMMAR_GRAMMAR_H
#define FOVEA_GRAMMAR_GRAMMAR_H

/* GRAMMAR: which texts an answer may be, and so which tokens it may have next.
 *
 *   spec --compile--> fv_grammar --with a fv_token_trie, after some tokens--> a bit for each token
 *
 * A grammar comes from strangers. Its compilation and each mask have a limit of steps and of memory; what
 * exceeds it is FV_EINVAL with a sentence, and ends that request alone. No function here recurses without a
 * bound. What a grammar asks for and this engine cannot enforce is refused by name, never ignored.
 *
 * Grammars are over bytes and deterministic: the same spec and the same answer give the same mask, on each
 * worker. docs/STRUCTURED.md says what is supported. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum {
    FV_GRAMMAR_BYTES_MAX = 1 << 20, /* of a spec, choices together */
    FV_GRAMMAR_CHOICES_MAX = 4096,
    /* Changes when the same spec may give other masks. Workers of different versions exchange no requests. */
    FV_GRAMMAR_VERSION = 2,
};

typedef enum fv_grammar_kind {
    FV_GRAMMAR_JSON_OBJECT = 1, /* any JSON object; no text */
    FV_GRAMMAR_JSON_SCHEMA,     /* text: a JSON Schema (draft 2020-12 and the older names) */
    FV_GRAMMAR_REGEX,           /* text: an expression that the whole answer matches */
    FV_GRAMMAR_CHOICE,          /* one of choice[n_choice] */
    FV_GRAMMAR_EBNF,            /* text: a grammar in Lark's form or GBNF's, found from its text */
    FV_GRAMMAR_STRUCTURAL_TAG,  /* text: JSON: free text with tags whose contents have schemas */
} fv_grammar_kind;

typedef struct fv_grammar_spec {
    fv_grammar_kind kind;
    const char *text; /* [n_text] UTF-8 */
    size_t n_text;
    const char *const *choice; /* [n_choice] UTF-8, NUL-terminated */
    size_t n_choice;
    /* The marks of the reasoning that may stand before the text, which then begins behind `closes`; NULL: none may. */
    const char *opens, *closes;
} fv_grammar_spec;

/* Limits on the cost of a grammar. 0 in a field: the default. */
typedef struct fv_grammar_limits {
    int64_t compile_steps; /* default 20 million, well below a second */
    bool tries;            /* more than these steps are FV_EBUSY: the grammar may have more */
    int64_t mask_steps;    /* of one mask or one token; default 400 000, some ten milliseconds */
    int64_t answer_steps;  /* of all masks and tokens of an answer; default 20 million */
    size_t bytes; /* of the compiled grammar, and again of what it learns; default 32 MiB each */
} fv_grammar_limits;

typedef struct fv_grammar fv_grammar; /* opaque; counted references; any thread */

/* Compiles a grammar. limits NULL: defaults. FV_EINVAL: the spec is wrong, asks for what cannot be enforced,
 * allows no text, or costs too much; the sentence names the place. Gives *out (fv_grammar_unref it). */
fv_status fv_grammar_compile(const fv_grammar_spec *spec, const fv_grammar_limits *limits,
                             fv_grammar **out);
/* The same with the default limits, shared with all others in this process that have asked for this spec. */
fv_status fv_grammar_get(const fv_grammar_spec *spec, fv_grammar **out);
/* The same, but gives up after so many steps of compilation with FV_EBUSY; 0: no other limit. */
fv_status fv_grammar_get_within(const fv_grammar_spec *spec, int64_t steps, fv_grammar **out);
/* The result of compiling, for a request that waits: a grammar, or why it was refused. A result stays, however many
 * others are compiled meanwhile. All zero: there is none. */
typedef struct fv_grammar_result {
    fv_grammar *grammar; /* a reference */
    fv_error fault;
} fv_grammar_result;

/* Compiles as fv_grammar_get_within does. FV_EBUSY: the steps were too few, and *r is untouched. What else fails is
 * the result, so FV_OK; it is FV_ENOMEM where the grammars of results take too much memory already. */
fv_status fv_grammar_prepare(const fv_grammar_spec *spec, int64_t steps, fv_grammar_result *r);
/* Gives the grammar of a result of this spec, or raises its failure. r NULL or zero: as fv_grammar_get. */
fv_status fv_grammar_take(const fv_grammar_result *r, const fv_grammar_spec *spec,
                          fv_grammar **out);
void fv_grammar_result_fini(fv_grammar_result *r); /* zero is fine, and is what it becomes */

fv_grammar *fv_grammar_ref(fv_grammar *g);
void fv_grammar_unref(fv_grammar *g); /* NULL is fine */

/* ---- a vocabulary -------------------------------------------------------------------------- */

#define FV_TOKEN_SPECIAL "\xFF" /* a byte that no text has */
/* For fv_matcher_continue: the reasoning is over, or there is none. */
#define FV_GRAMMAR_THOUGHT "\xFF\xFF"

typedef struct fv_token_trie fv_token_trie; /* opaque, immutable; any thread */

/* Makes the trie of a vocabulary: id i stands for text[i] [bytes[i]]; an id with 0 bytes is never legal
 * (images). Text is UTF-8; a special token's text begins with FV_TOKEN_SPECIAL, and only marks make it legal. Copies
 * everything. Gives *out (free it). */
fv_status fv_token_trie_make(const char *const *text, const size_t *bytes, int32_t n_vocab,
                             fv_token_trie **out);
void fv_token_trie_free(fv_token_trie *t); /* NULL is fine */
int32_t fv_token_trie_vocab(const fv_token_trie *t);

/* ---- an answer ----------------------------------------------------------------------------- */

/* The state of one answer. One thread at a time. */
typedef struct fv_matcher fv_matcher; /* opaque; refers to the grammar, borrows the trie */

/* strips: the decoder cuts a space off the front of an answer, so one in the first token is no part of its text. */
fv_status fv_matcher_open(fv_grammar *g, const fv_token_trie *trie, bool strips, fv_matcher **out);
void fv_matcher_close(fv_matcher *m); /* NULL is fine */

/* The answer continues `text`, with which texts of the grammar begin, as the mark that opens a reasoning. Borrowed until
 * the matcher is closed; before the first _seek. FV_EINVAL: no text of the grammar begins so. */
fv_status fv_matcher_continue(fv_matcher *m, const char *text);

/* Sets the state to that after the answer's tokens answer[n]. Costs the tokens after those of the last call,
 * if these are the beginning of the same answer. FV_EINVAL: a token was not legal, or the limits are exceeded. */
fv_status fv_matcher_seek(fv_matcher *m, const int32_t *answer, int32_t n);

int32_t fv_matcher_vocab(const fv_matcher *m); /* ids of its trie */

/* Whether the answer may end here. */
bool fv_matcher_may_end(const fv_matcher *m);

/* *bits [(n_vocab + 63) / 64]: the tokens that may be next; borrowed until the next call on any matcher of the
 * grammar. Ids that end an answer have no bit: the caller allows them where the answer may end. *n_legal: how
 * many bits are set. FV_EINVAL: the limits are exceeded. */
fv_status fv_matcher_mask(fv_matcher *m, const uint64_t **bits, int32_t *n_legal);

/* Moves on by bytes of text instead of a token; *legal: false if no legal answer goes on with them, and then
 * the state is unchanged. For tests and for callers without a vocabulary. fv_matcher_seek forgets them. */
fv_status fv_matcher_push_text(fv_matcher *m, const char *text, size_t n, bool *legal);

#endif
