#ifndef FOVEA_TEXT_TOKENIZER_INTERNAL_H
#define FOVEA_TEXT_TOKENIZER_INTERNAL_H

/* Shared by the files text/tokenizer*.c only. "The reference" in them is
 * Hugging Face `tokenizers` 0.23, whose oddities are reproduced because ids must be the same.
 *
 *   tokenizer_json.c     tokenizer.json -> struct fv_tokenizer: model, added tokens
 *   tokenizer_steps.c    the same: normalizer, pre_tokenizer, post_processor, decoder
 *   tokenizer_vocab.c    tokens by id and by text; merges by pair
 *   tokenizer_added.c    added tokens inside text
 *   tokenizer_split.c    the regular expressions of pre-tokenisers, by hand
 *   tokenizer_regex.c    other expressions, by Oniguruma
 *   tokenizer_normalize.c  the normalizer
 *   tokenizer_bpe.c      one word -> ids
 *   tokenizer_unigram.c  the same for a model of type Unigram
 *   tokenizer_encode.c   text -> ids: all of the above in order
 *   tokenizer_decode.c   ids -> text, as a stream
 *   tokenizer_length.c   maximum length of text per token
 *   token_trie.c         the vocabulary as a trie, for grammars
 *   tokenizer_made.c     other files -> the tree of a tokenizer.json, with made_*.c (tokenizer_made.h)
 *   tokenizer.c          open, free, small queries; arrays */
#include <jansson.h>
#include <pthread.h>

#include "common/arena.h"
#include "text/charsmap.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

enum {
    FV_TOK_STEPS_MAX = 16,          /* steps of a pipeline once Sequences are unrolled */
    FV_TOK_NESTING_MAX = 8,         /* Sequence in Sequence in ... */
    FV_TOK_ID_MAX = (1 << 22) - 1,  /* vocabularies end near 2^18; tables are this long */
    FV_TOK_ADDED_BYTES_MAX = 1024,  /* one added token; bounds the search for them */
    FV_TOK_LITERAL_BYTES_MAX = 256, /* one string of a Replace or Prepend */
    FV_TOK_PIECE_BYTES_MAX =
        1024, /* one piece of a Unigram model; bounds the search at each character */
    FV_TOK_TEXT_BYTES_MAX = 1 << 28 /* one text; keeps positions in 32 bits */
};

/* Growable arrays; {0} is empty. */
typedef struct fv_tok_bytes {
    char *data;
    size_t n, cap;
} fv_tok_bytes;

typedef struct fv_tok_ids {
    int32_t *data;
    size_t n, cap;
} fv_tok_ids;

fv_status fv_tok_put(fv_tok_bytes *b, const char *s, size_t n);
fv_status fv_tok_put_id(fv_tok_ids *ids, int32_t id);

/* ---- vocabulary ---- */

enum {
    FV_TOK_USED = 1,    /* this id has a token */
    FV_TOK_MODEL = 2,   /* the BPE model knows it; otherwise only the added tokens do */
    FV_TOK_SPECIAL = 4, /* as marked in added_tokens */
    FV_TOK_SKIP = 8,    /* skip_special leaves it out: it is shown like a special token */
    FV_TOK_INSIDE = 16, /* added, but part of the text for SentencePiece's normalizer */
};

typedef struct fv_tok_entry {
    const char *text;  /* as written in the file, NUL-terminated */
    const char *shown; /* as the decoder gets it: an added token may be shown normalised */
    uint32_t n, n_shown;
    uint8_t flags;
} fv_tok_entry;

typedef struct fv_tok_merge {
    uint64_t pair; /* left << 32 | right */
    int32_t rank;  /* -1: an empty slot */
} fv_tok_merge;

typedef struct fv_tok_vocab {
    fv_tok_entry *tokens; /* [n] by id */
    int32_t n;            /* largest id + 1 */
    int32_t *slots;       /* [mask + 1] ids by hash of the text, -1 empty */
    size_t mask;
    fv_tok_merge *merges; /* [merge_mask + 1] by hash of the pair */
    size_t merge_mask;
    int32_t *merged; /* by rank: the id that a merge makes */
} fv_tok_vocab;      /* memory belongs to an arena */

/* Makes an empty vocabulary for ids 0..n-1 and n_merge merges. */
fv_status fv_tok_vocab_init(fv_tok_vocab *v, fv_arena *arena, int32_t n, size_t n_merge);
/* Adds a token; borrows text. FV_EDATA when its id or its text is taken. */
fv_status fv_tok_vocab_add(fv_tok_vocab *v, const char *text, size_t n, int32_t id, uint8_t flags);
int32_t fv_tok_vocab_find(const fv_tok_vocab *v, const char *text, size_t n); /* -1: none */
/* The same among the tokens that the BPE model knows. */
int32_t fv_tok_vocab_model(const fv_tok_vocab *v, const char *text, size_t n);
/* Adds a merge. The later of two merges of one pair counts, as in the reference. */
void fv_tok_merge_put(fv_tok_vocab *v, int32_t left, int32_t right, int32_t rank, int32_t made);
int32_t fv_tok_merge_rank(const fv_tok_vocab *v, int32_t left, int32_t right); /* -1: none */

/* ---- added tokens ---- */

typedef struct fv_tok_added {
    const char *text; /* searched for in the text */
    size_t n;
    int32_t id;
    bool lstrip, rstrip; /* absorb the white space on that side */
    bool single_word;    /* only where no word character is next to it */
} fv_tok_added;

typedef struct fv_tok_added_set {
    fv_tok_added *tokens; /* [n], sorted by bytes */
    size_t n;
    size_t first[257]; /* tokens[first[b]..first[b + 1]) begin with byte b */
} fv_tok_added_set;

/* The longest token at the front of s, n >= 1; NULL: none. */
const fv_tok_added *fv_tok_added_longest(const fv_tok_added_set *set, const char *s, size_t n);

/* Sorts and indexes set->tokens. FV_EDATA: empty, too long or twice the same. */
fv_status fv_tok_added_init(fv_tok_added_set *set, const char *where);

typedef struct fv_tok_piece {
    size_t start, end;
    const fv_tok_added *added; /* NULL: ordinary text */
} fv_tok_piece;

typedef struct fv_tok_added_iter {
    size_t from;      /* where to look for the next match */
    size_t done;      /* pieces up to here were given out */
    size_t space_end; /* white space after the last rstrip token ends here */
    fv_tok_piece up;  /* a match that waits until the text before it is done */
    bool has_up;
    const fv_text_marks *marks; /* NULL: every match counts */
    const fv_tok_vocab *vocab;  /* with marks: knows which tokens are special */
    const char *raw;            /* [n_raw] the text of the marks; NULL: the text that is cut */
    size_t n_raw, raw_from;
    bool respelled;  /* a normal form lies between raw and the text that is cut */
} fv_tok_added_iter; /* {0} at the start, except marks, vocab, raw, n_raw and respelled */

/* Cuts s into text and added tokens, in order. False: the end. */
bool fv_tok_added_next(const fv_tok_added_set *set, const char *s, size_t n, fv_tok_added_iter *it,
                       fv_tok_piece *piece);

/* ---- pipelines ---- */

typedef enum fv_tok_norm_kind {
    FV_TOK_NORM_PREPEND = 0, /* puts a before text that is not empty */
    FV_TOK_NORM_REPLACE,     /* replaces every a by b */
    FV_TOK_NORM_FORM,        /* Unicode normal form */
    FV_TOK_NORM_REGEX,       /* replaces the matches of an expression by b */
    FV_TOK_NORM_STRIP,       /* removes white space at the ends */
    FV_TOK_NORM_CHARSMAP,    /* a table of characters, as the reference applies it */
    FV_TOK_NORM_SPIECE,      /* SentencePiece's own normalizer */
} fv_tok_norm_kind;

/* The settings of SentencePiece's normalizer; fv_sentencepiece has the same members. */
typedef struct fv_tok_spiece {
    fv_charsmap *map;       /* NULL: none. CHARSMAP has this alone */
    fv_tok_added_set *keep; /* NULL: none; what stays as it is */
    bool prefix;            /* a space is put before the text, or behind it if `suffix` */
    bool first_only;        /* before the first text alone */
    bool suffix;
    bool trims;   /* white space at the ends is removed, and of several spaces all but one */
    bool escapes; /* spaces become U+2581 */
} fv_tok_spiece;

typedef struct fv_tok_norm {
    fv_tok_norm_kind kind;
    const char *a, *b;
    size_t n_a, n_b;
    fv_uni_form form;
    struct re_pattern_buffer *regex; /* REGEX: owned, by Oniguruma */
    bool left, right;                /* STRIP */
    fv_tok_spiece spiece;            /* SPIECE, CHARSMAP */
} fv_tok_norm;

typedef enum fv_tok_pattern {
    FV_TOK_GPT2 = 0,
    FV_TOK_LLAMA3,
    FV_TOK_QWEN2,
    FV_TOK_N_PATTERN
} fv_tok_pattern;

typedef enum fv_tok_scheme {
    FV_TOK_PREPEND_ALWAYS = 0,
    FV_TOK_PREPEND_FIRST, /* only at the very beginning of the text */
    FV_TOK_PREPEND_NEVER,
} fv_tok_scheme;

typedef enum fv_tok_pre_kind {
    FV_TOK_PRE_SPLIT = 0,  /* splits into the matches of a pattern */
    FV_TOK_PRE_REGEX,      /* splits at the matches of a regular expression */
    FV_TOK_PRE_DROP,       /* drops everything: matches cover the text and are removed */
    FV_TOK_PRE_DIGITS,     /* separates numbers */
    FV_TOK_PRE_METASPACE,  /* ' ' -> mark, and a mark in front */
    FV_TOK_PRE_CUT,        /* splits before each mark */
    FV_TOK_PRE_SPACE,      /* puts ' ' in front unless there is one */
    FV_TOK_PRE_WORDS,      /* splits at white space, which is removed */
    FV_TOK_PRE_BYTE_LEVEL, /* bytes -> printable characters */
} fv_tok_pre_kind;

typedef struct fv_tok_pre {
    fv_tok_pre_kind kind;
    fv_tok_pattern pattern;
    struct re_pattern_buffer *regex; /* REGEX: owned, by Oniguruma */
    bool keep_matches, keep_gaps;    /* REGEX: which pieces are kept */
    bool individual;                 /* DIGITS: each number character is a piece */
    fv_tok_scheme scheme;
    const char *mark; /* METASPACE, CUT: one character */
    size_t n_mark;
} fv_tok_pre;

typedef enum fv_tok_dec_kind {
    FV_TOK_DEC_JOIN = 0, /* no decoder: a space between tokens */
    FV_TOK_DEC_REPLACE,
    FV_TOK_DEC_BYTE_FALLBACK,
    FV_TOK_DEC_FUSE,
    FV_TOK_DEC_STRIP,
    FV_TOK_DEC_BYTE_LEVEL,
    FV_TOK_DEC_METASPACE,
} fv_tok_dec_kind;

typedef struct fv_tok_dec {
    fv_tok_dec_kind kind;
    const char *a, *b; /* REPLACE a by b; STRIP, METASPACE: the character a */
    size_t n_a, n_b;
    int32_t start, stop; /* STRIP: how many characters it cuts at either end at most */
    bool keep_first;     /* METASPACE: the first token's marks are spaces, too */
} fv_tok_dec;

/* Tables that are made when they are first needed. */
typedef struct fv_tok_lazy {
    pthread_mutex_t lock;
    fv_token_trie *trie; /* NULL: not yet */
} fv_tok_lazy;

/* A model of type Unigram: of all ways to cut a text in pieces it takes the one with the greatest sum of scores. */
typedef struct fv_tok_unigram {
    int32_t *id; /* [n] of the pieces that a text is cut in, sorted by bytes */
    size_t n, first[257];
    double *score;    /* [vocab.n] by id */
    double unk_score; /* of a character without a piece */
    bool
        narrow; /* sums are rounded to float, and an unknown character stays one, as in SentencePiece */
} fv_tok_unigram;

struct fv_tokenizer {
    fv_arena arena; /* owns all below */
    fv_tok_vocab vocab;
    fv_tok_added_set raw;        /* added tokens searched for in the text as given */
    fv_tok_added_set normalized; /* added tokens searched for in the normalised text */
    fv_tok_norm norm[FV_TOK_STEPS_MAX];
    fv_tok_pre pre[FV_TOK_STEPS_MAX];
    fv_tok_dec dec[FV_TOK_STEPS_MAX];
    int32_t n_norm, n_pre, n_dec;
    int32_t byte_ids[256]; /* <0x00>.. of the model, -1: none */
    int32_t unk;           /* -1: none is named; -2: the named one does not exist */
    bool byte_fallback, fuse_unk, ignore_merges;
    fv_tok_unigram *unigram; /* NULL: the model is BPE */
    int32_t *post;           /* [n_post] ids around the text; -1 is the text */
    int32_t n_post;
    size_t token_bytes; /* fv_tokenizer_token_bytes */
    fv_tok_lazy *lazy;  /* owned; not in the arena */
};

/* The place of a piece within its text, for SentencePiece's normalizer. */
typedef struct fv_tok_edges {
    bool start,
        end;    /* its text begins, or ends, here; tokens with FV_TOK_INSIDE are part of a text */
    bool first; /* that text is the first one */
} fv_tok_edges;

/* Runs the normaliser: *out is replaced, *tmp is scratch. */
fv_status fv_tok_normalize(const fv_tokenizer *tok, const char *s, size_t n, fv_tok_edges edges,
                           fv_tok_bytes *out, fv_tok_bytes *tmp);
/* Appends s with every `a` (not empty) replaced by `b`; FV_EINVAL as soon as *out has more than
 * `max` bytes. */
fv_status fv_tok_replace(const char *s, size_t n, const char *a, size_t n_a, const char *b,
                         size_t n_b, size_t max, fv_tok_bytes *out);

/* The pattern whose regular expression is `regex`; FV_TOK_N_PATTERN: none. */
fv_tok_pattern fv_tok_pattern_of(const char *regex);
/* Returns the bytes of the match at the front of s, 1..n, as every pattern matches everywhere; n >= 1. */
size_t fv_tok_pattern_match(fv_tok_pattern p, const char *s, size_t n);

/* Compiles an expression as the reference does, with Oniguruma in its default (Ruby) syntax.
 * FV_EUNSUPPORTED says what is wrong with it. Gives *out; free it with fv_tok_regex_free. */
fv_status fv_tok_regex_open(const char *regex, size_t n, const char *where,
                            struct re_pattern_buffer **out);
void fv_tok_regex_free(struct re_pattern_buffer *regex); /* NULL is fine */
/* Finds the next match in s[0..n) from `at` on: *start, *end; none: both are n. FV_EINVAL if the
 * expression needs too many steps on this text. */
fv_status fv_tok_regex_find(struct re_pattern_buffer *regex, const char *s, size_t n, size_t at,
                            size_t *start, size_t *end);

/* Scratch of fv_tok_bpe, kept between words; {0} at the start. */
typedef struct fv_tok_bpe_scratch {
    struct fv_tok_symbol *symbols;
    uint64_t *heap;
    size_t cap, heap_n, heap_cap;
} fv_tok_bpe_scratch;

void fv_tok_bpe_scratch_fini(fv_tok_bpe_scratch *scratch);
/* Appends the ids of one word of n <= FV_TOK_TEXT_BYTES_MAX bytes, in O(n log n). */
fv_status fv_tok_bpe(const fv_tokenizer *tok, const char *s, size_t n, fv_tok_bpe_scratch *scratch,
                     fv_tok_ids *out);

/* Scratch of fv_tok_unigram_encode, kept between words; {0} at the start. */
typedef struct fv_tok_unigram_scratch {
    struct fv_tok_node *nodes;
    size_t cap;
    int32_t *path;
    size_t path_cap;
} fv_tok_unigram_scratch;

void fv_tok_unigram_scratch_fini(fv_tok_unigram_scratch *scratch);
/* Appends the ids of one word of n <= FV_TOK_TEXT_BYTES_MAX bytes, in O(n). */
fv_status fv_tok_unigram_encode(const fv_tokenizer *tok, const char *s, size_t n,
                                fv_tok_unigram_scratch *scratch, fv_tok_ids *out);

/* Map a byte to its code point in byte-level vocabularies (GPT-2's table), below
 * FV_TOK_BYTE_CPS; and back, -1 for other code points. */
enum { FV_TOK_BYTE_CPS = 324 };
int32_t fv_tok_byte_cp(unsigned char byte);
int32_t fv_tok_cp_byte(int32_t cp);

/* ---- loading ---- */

typedef struct fv_tok_loader {
    fv_tokenizer *tok;
    const char *where; /* names the file in errors */
    int32_t n_model;   /* tokens of the model */
    bool has_template;
} fv_tok_loader;

typedef struct fv_tok_str {
    const char *s; /* NUL-terminated */
    size_t n;
} fv_tok_str;

/* tokenizer.c: makes a tokenizer of the tree of a tokenizer.json, which is the caller's. Gives *out. */
fv_status fv_tok_of_tree(const json_t *root, const char *where, fv_tokenizer **out);

/* tokenizer_json.c: fills *tok, which is zero. On failure its arena is the caller's to free. */
fv_status fv_tok_load(fv_tokenizer *tok, const json_t *root, const char *where);

/* tokenizer_unigram_json.c: reads a model of type Unigram, and, when the added tokens are known, makes its
 * tables. */
fv_status fv_tok_load_unigram(fv_tok_loader *l, const json_t *model, const json_t *added);
fv_status fv_tok_unigram_index(fv_tok_loader *l);

/* tokenizer_length.c: sets token_bytes, after all else is loaded. */
void fv_tok_set_token_bytes(fv_tokenizer *tok);

/* tokenizer_json.c: raises *n_id to the largest id + 1 of the added tokens; FV_EDATA if ids lie far above the
 * number n_model + added of tokens. */
fv_status fv_tok_measure_added(const fv_tok_loader *l, const json_t *added, size_t n_model,
                               int32_t *n_id);
void fv_tok_find_bytes(fv_tokenizer *tok); /* sets byte_ids */

/* tokenizer_steps.c */
fv_status fv_tok_load_normalizer(fv_tok_loader *l, const json_t *root);
fv_status fv_tok_load_steps(fv_tok_loader *l, const json_t *root); /* the other three */
/* Copies the string `key` of obj into the arena; FV_EDATA if there is none. */
fv_status fv_tok_string_member(fv_tok_loader *l, const json_t *obj, const char *key,
                               fv_tok_str *out);
fv_status fv_tok_unsupported(const fv_tok_loader *l, const char *section, const char *type,
                             const char *known);

#endif
