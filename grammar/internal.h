#ifndef FOVEA_GRAMMAR_INTERNAL_H
#define FOVEA_GRAMMAR_INTERNAL_H

/* Shared by the files of grammar/ only.
 *
 *   compile.c     a spec -> rules, by the reader of its kind; the rules -> a checked network
 *   expr.c        expressions: trees of which rules are made
 *   regex.c       text -> an expression; regex_set.c: its classes; regex_anchor.c: ^ and $
 *   ebnf.c        Lark's and GBNF's grammars -> rules
 *   tag.c         structural tags -> rules; tag_format.c, tag_xml.c: their formats
 *   reasoning.c   what may stand before the text
 *   schema.c      JSON Schema -> rules; schema_gather.c, _object.c, _array.c, _string.c, _number.c, _one.c:
 *                 its parts; format.c: its formats; json_value.c: any JSON
 *   dfa.c         expressions over characters -> automata; their intersections and differences
 *   emit.c        expressions -> states of the network; utf8.c: characters as bytes
 *   net.c         checks of the network: what can never end, left recursion, marks of recursion
 *   automaton.c   the network with stacks, as an automaton that is made while it is used
 *   cache.c       the grammars of this process
 *   trie.c        vocabularies; matcher.c: answers and masks */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/arena.h"
#include "common/grow.h"
#include "grammar/grammar.h"

enum {
    FV_CP_MAX = 0x10FFFF,
    FV_EXPR_DEPTH_MAX = 400, /* of expressions and of what is read recursively */
    FV_SPACE_RUN_MAX = 8,    /* white space between JSON's tokens */
    FV_STACK_DEPTH_MAX = 256 /* calls of recursive rules within one another */
};

/* ---- the network ---------------------------------------------------------------------------- */

typedef enum fv_net_kind {
    FV_NET_RANGE,  /* a byte lo..hi, then a */
    FV_NET_SPLIT,  /* a or b; b -1: a alone */
    FV_NET_CALL,   /* the rule that begins at a, then b */
    FV_NET_REPEAT, /* the rule that begins at a, min to max times (max -1: without end), then b */
    FV_NET_POP,    /* the end of a rule */
} fv_net_kind;

typedef struct fv_net_state {
    uint8_t kind, lo, hi;
    bool recursive; /* CALL, REPEAT: the rule may call itself */
    bool dead;      /* nothing can end from here */
    int32_t a, b, min, max;
} fv_net_state;

typedef struct fv_net {
    fv_net_state *state; /* [n] */
    size_t n, cap;
    int32_t start;
} fv_net;

/* ---- expressions ---------------------------------------------------------------------------- */

typedef struct fv_span {
    int32_t lo, hi; /* code points, both included */
} fv_span;

typedef struct fv_dfa fv_dfa;
typedef struct fv_expr fv_expr;

typedef enum fv_expr_kind {
    FV_EXPR_TEXT,   /* these bytes; {0}: nothing */
    FV_EXPR_SET,    /* a character of these spans, sorted and disjoint; none: no text at all */
    FV_EXPR_SEQ,    /* items one after another */
    FV_EXPR_ALT,    /* one of the items */
    FV_EXPR_REPEAT, /* item[0], min to max times */
    FV_EXPR_RULE,   /* rule number `rule` */
    FV_EXPR_JSON,   /* item[0], each character as in a JSON string */
    FV_EXPR_CHAR,   /* any character of a JSON string, in any of its forms */
    FV_EXPR_DFA,    /* what the automaton accepts */
    /* The members of an object: item[0 .. n - 2] in order, of which those with need[] must be there; then item[n - 1]
     * up to max times, unless it is NULL. Together at least min, 0 or 1; `between` stands between two. */
    FV_EXPR_MEMBERS,
    FV_EXPR_BEGIN, /* ^ and $, until regex_anchor.c has removed them */
    FV_EXPR_END,
} fv_expr_kind;

struct fv_expr {
    fv_expr_kind kind;
    int32_t depth, n, rule, min, max; /* max -1: without end */
    const char *text;                 /* [n] */
    const fv_span *span;              /* [n] */
    fv_expr **item;                   /* [n] */
    const bool *need;                 /* MEMBERS: [n - 1] */
    fv_expr *between;
    const fv_dfa *dfa;
};

/* A rule: its expression may be set after others refer to it. */
typedef struct fv_rule {
    const char *name;
    fv_expr *expr; /* NULL: not yet */
    int32_t start; /* its first state */
} fv_rule;

/* The state of a compilation. */
typedef struct fv_compile {
    fv_arena arena;
    int64_t steps; /* that are left */
    size_t bytes, bytes_max;
    fv_rule *rule; /* [n_rule] */
    size_t n_rule, cap_rule;
    fv_net net;
    int32_t space; /* the rule of white space in JSON, -1: not yet */
    int32_t value; /* any JSON value */
} fv_compile;

/* compile.c: count steps of work and bytes of memory; FV_EINVAL if there are none left. */
fv_status fv_compile_step(fv_compile *c, int64_t n);
fv_status fv_compile_alloc(fv_compile *c, size_t n, size_t size, void **out);
#define FV_COMPILE_NEW(c, n, p) fv_compile_alloc((c), (size_t)(n), sizeof *(p), (void **)&(p))

/* expr.c. Expressions live in the arena and are borrowed by those that contain them. */
fv_status fv_expr_text(fv_compile *c, const char *text, size_t n, fv_expr **out); /* copied */
fv_status fv_expr_set(fv_compile *c, const fv_span *span, size_t n,
                      fv_expr **out);                                    /* in any order */
fv_status fv_expr_not(fv_compile *c, const fv_expr *set, fv_expr **out); /* all other characters */
fv_status fv_expr_list(fv_compile *c, fv_expr_kind kind, fv_expr *const *item, size_t n,
                       fv_expr **out);
/* fv_expr_seq(c, out, a, b, ..., NULL) */
fv_status fv_expr_seq(fv_compile *c, fv_expr **out, ...);
fv_status fv_expr_repeat(fv_compile *c, fv_expr *item, int64_t min, int64_t max, fv_expr **out);
fv_status fv_expr_json(fv_compile *c, fv_expr *item, fv_expr **out); /* with the quotes */
fv_status fv_expr_rule(fv_compile *c, int32_t rule, fv_expr **out);
/* A mark of the model's: as text, or as the special token that is written so. */
fv_status fv_expr_mark(fv_compile *c, const char *text, fv_expr **out);
/* Text in which none of these occurs. */
fv_status fv_expr_without(fv_compile *c, const char *const *text, size_t n, fv_expr **out);
fv_status fv_rule_new(fv_compile *c, const char *name, size_t n, int32_t *out);
fv_status fv_expr_of_dfa(fv_compile *c, const fv_dfa *dfa, fv_expr **out);

/* Growing lists of expressions, of memory from malloc. */
typedef struct fv_exprs {
    fv_expr **item;
    size_t n, cap;
} fv_exprs;
fv_status fv_exprs_add(fv_exprs *l, fv_expr *e);

/* Reads alternatives: `sequence` adds the expressions of one to a list, `bar` tells whether another one follows, and
 * skips what stands between them. */
fv_status fv_expr_alternatives(fv_compile *c, void *reader,
                               fv_status (*sequence)(void *reader, fv_exprs *list),
                               bool (*bar)(void *reader), fv_expr **out);

/* dfa.c: deterministic automata over characters. Class i is lo[i] .. lo[i + 1] - 1. State 0 accepts nothing for
 * ever; state 1 is the first. */
struct fv_dfa {
    int32_t n, n_class;
    int32_t *lo;   /* [n_class] lo[0] = 0 */
    int32_t *next; /* [n][n_class] */
    bool *accepts; /* [n] */
};
enum { FV_DFA_STATES_MAX = 8192 };

fv_status fv_dfa_make(fv_compile *c, const fv_expr *e, const fv_dfa **out);
/* The texts that a accepts and b does too, or does not. */
fv_status fv_dfa_join(fv_compile *c, const fv_dfa *a, const fv_dfa *b, bool both,
                      const fv_dfa **out);
bool fv_dfa_empty(const fv_dfa *a);                               /* accepts nothing */
bool fv_dfa_accepts(const fv_dfa *a, const char *text, size_t n); /* valid UTF-8 */
/* Texts of min to max characters, max -1: any. */
fv_status fv_dfa_lengths(fv_compile *c, int64_t min, int64_t max, const fv_dfa **out);
/* Decimal digits of which the number is a multiple. */
fv_status fv_dfa_multiples(fv_compile *c, int32_t of, const fv_dfa **out);
/* Characters of the shortest and the longest text, -1: none; INT64_MAX: without end. */
fv_status fv_dfa_word_lengths(fv_compile *c, const fv_dfa *a, int64_t *shortest, int64_t *longest);

/* utf8.c. _next reads a character of valid text [n] and returns its bytes, 0: not valid. */
size_t fv_cp_next(const char *s, size_t n, int32_t *cp);
size_t fv_cp_put(int32_t cp, char out[4]);
bool fv_text_valid(const char *s, size_t n);
/* Adds states for a character of the spans, as in a JSON string if `json`, before state next. */
fv_status fv_emit_spans(fv_compile *c, const fv_span *span, size_t n, bool json, int32_t next,
                        int32_t *out);
fv_status fv_emit_char(fv_compile *c, int32_t next, int32_t *out); /* FV_EXPR_CHAR */

/* emit.c. */
fv_status fv_emit_state(fv_compile *c, fv_net_state s, int32_t *out);
fv_status fv_emit_text(fv_compile *c, const char *text, size_t n, bool json, int32_t next,
                       int32_t *out);
fv_status fv_emit_rules(fv_compile *c,
                        int32_t start); /* all rules; net.start is that of rule `start` */

/* net.c: marks dead states and recursion; FV_EINVAL if nothing can be said, or a rule begins with itself. */
fv_status fv_net_check(fv_compile *c);

/* ---- readers of specs: each adds rules and gives the first one ---- */

/* The whole text matches. `search`: a part of it may, as in a schema's pattern. */
fv_status fv_regex_parse(fv_compile *c, const char *text, size_t n, fv_expr **out);
fv_status fv_regex_anchor(fv_compile *c, fv_expr *e, bool search, fv_expr **out);
fv_status fv_regex_read(fv_compile *c, const char *text, size_t n, bool search, fv_expr **out);
/* A class "[...]" or an escape "\d", at *at; moves it on. */
fv_status fv_regex_class(fv_compile *c, const char *s, size_t n, size_t *at, fv_expr **out);
fv_status fv_regex_escape(fv_compile *c, const char *s, size_t n, size_t *at, fv_expr **out);

fv_status fv_ebnf_read(fv_compile *c, const char *text, size_t n, int32_t *rule);
/* Replaces *rule by one with an optional reasoning in front, if the spec has its marks. */
fv_status fv_reasoning_add(fv_compile *c, const fv_grammar_spec *s, int32_t *rule);
fv_status fv_tag_read(fv_compile *c, const char *text, size_t n, int32_t *rule);
fv_status fv_schema_read(fv_compile *c, const char *text, size_t n, int32_t *rule);
fv_status fv_schema_rule(fv_compile *c, const json_t *schema, int32_t *rule); /* parsed already */
fv_status fv_json_space(fv_compile *c, fv_expr **out);
fv_status fv_json_value(fv_compile *c, fv_expr **out);
fv_status fv_json_any_object(fv_compile *c, fv_expr **out);
const char *fv_format_regex(const char *name); /* NULL: no such format */

/* ---- the automaton --------------------------------------------------------------------------- */

enum { FV_AUTO_DEAD = 0, FV_AUTO_UNKNOWN = -1 };

typedef struct fv_automaton fv_automaton;

fv_status fv_automaton_make(fv_net *net, const fv_grammar_limits *limits, fv_automaton **out);
void fv_automaton_free(fv_automaton *a);
size_t fv_automaton_bytes(const fv_automaton *a);
int32_t fv_automaton_start(const fv_automaton *a);
bool fv_automaton_accepts(const fv_automaton *a, int32_t state);
/* The state after a byte: FV_AUTO_DEAD if none. FV_EINVAL: no steps left. */
fv_status fv_automaton_next(fv_automaton *a, int32_t state, uint8_t byte, int32_t *next);
void fv_automaton_refuel(fv_automaton *a);         /* before each mask or token */
int64_t fv_automaton_spent(const fv_automaton *a); /* steps since then */
/* Forgets all states but *state, which gets a new number, if they take more than the limit. The generation changes then,
 * and other numbers of the old one mean nothing any more. */
fv_status fv_automaton_trim(fv_automaton *a, int32_t *state);
uint64_t fv_automaton_generation(const fv_automaton *a);
/* The table for walks: next[state * n_class + class[byte]]; valid until a state is made. */
typedef struct fv_auto_table {
    const int32_t *next;
    const uint8_t *class_of;
    int32_t n_class;
} fv_auto_table;
fv_auto_table fv_automaton_table(const fv_automaton *a);

struct fv_grammar {
    atomic_int refs;
    int64_t answer_steps;
    int32_t n_result;     /* that wait; under result.c's lock, */
    size_t n_byte;        /* as is what they count */
    pthread_mutex_t lock; /* of what follows */
    fv_automaton *automaton;
    struct fv_mask_cache *masks;
};

/* matcher.c */
void fv_mask_cache_free(struct fv_mask_cache *m);

/* A vocabulary's tokens in the order of their bytes, as nodes: a node's subtree follows it and ends before
 * node `skip`. */
typedef struct fv_trie_node {
    uint32_t skip;
    int32_t token; /* -1: none; more with the same bytes by fv_token_trie.same */
    uint8_t byte;
    uint8_t depth; /* of the first byte 0; longer tokens are cut into chains below 255 */
} fv_trie_node;

struct fv_token_trie {
    uint64_t serial; /* no other trie of the process has it */
    int32_t n_vocab;
    fv_trie_node *node; /* [n_node] */
    size_t n_node;
    int32_t *same; /* [n_vocab] the next token with the same bytes, -1: none */
    char *bytes;   /* of all tokens */
    size_t *at;    /* [n_vocab + 1] */
};
enum { FV_TRIE_DEPTH_MAX = 255 }; /* longer tokens are never legal */

#endif
