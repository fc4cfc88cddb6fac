#ifndef FOVEA_TEXT_JINJA_INTERNAL_H
#define FOVEA_TEXT_JINJA_INTERNAL_H

/* Shared by the files of this folder only.
 *
 *   lex.c       program -> tokens, white space between tags trimmed
 *   names.c     the names of a program, each once
 *   parse.c     tokens -> nodes
 *   memory.c    memory and steps of a run, text as it grows
 *   string.c    characters and parts of strings
 *   dict.c      lists and dicts
 *   scope.c     variables
 *   value.c     values as Python has them: truth, equality, order, items
 *   show.c      str, repr
 *   number.c    arithmetic; numbers as text
 *   eval.c      expressions; statements
 *   call.c      binding of arguments; macros, functions
 *   words.c     string operations of filters and methods
 *   format.c    '%s' %, '{}'.format
 *   filter.c    filters;  filter_list.c  those of lists;  json.c  tojson
 *   test.c      tests;  method.c  methods */
#include "common/arena.h"
#include "text/jinja/jinja.h"

typedef struct fv_jj_node fv_jj_node;
typedef struct fv_jj_run fv_jj_run;
typedef struct fv_jj_scope fv_jj_scope;
typedef struct fv_jj_list fv_jj_list;
typedef struct fv_jj_dict fv_jj_dict;
typedef struct fv_jj_loop fv_jj_loop;
typedef struct fv_jj_callable fv_jj_callable;

/* ---- values ---- */

typedef struct fv_jj_str {
    const char *s;       /* [n] UTF-8, perhaps broken; borrowed, as a rule from the run's memory */
    const uint8_t *user; /* [n] 1: the byte is the user's; NULL: none is */
    size_t n;
    bool markup; /* of the filters safe and escape: text added to it is escaped (markupsafe) */
} fv_jj_str;

typedef enum fv_jj_kind {
    FV_JJ_UNDEFINED = 0,
    FV_JJ_NONE,
    FV_JJ_BOOL,
    FV_JJ_INT,
    FV_JJ_FLOAT,
    FV_JJ_STR,
    FV_JJ_LIST,
    FV_JJ_TUPLE,
    FV_JJ_ITER, /* a generator: its items can be taken once */
    FV_JJ_DICT,
    FV_JJ_NAMESPACE,
    FV_JJ_LOOP,
    FV_JJ_CALLABLE,
} fv_jj_kind;

typedef struct fv_jj_value {
    fv_jj_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        fv_jj_str str; /* UNDEFINED: the missing name */
        fv_jj_list *list;
        fv_jj_dict *dict;
        fv_jj_loop *loop;
        fv_jj_callable *callable;
    };
} fv_jj_value;

struct fv_jj_list {
    fv_jj_value *v; /* [n] */
    int32_t n, cap;
};

struct fv_jj_dict {
    fv_jj_list keys, values; /* in the order of insertion */
    int32_t *slot;           /* [cap] hash table: 1 + a key's index, 0: free; NULL: few keys */
    int32_t cap;             /* a power of two */
};

struct fv_jj_loop {
    fv_jj_list items;
    int32_t at;
    fv_jj_value changed; /* the last value given to loop.changed */
    bool has_changed;
};

/* ---- a program ---- */

typedef enum fv_jj_node_kind {
    /* statements */
    FV_JJ_DATA = 0, /* value */
    FV_JJ_PRINT,    /* a */
    FV_JJ_FOR,      /* a target, b items, c condition; body, orelse */
    FV_JJ_IF,       /* a; body, orelse */
    FV_JJ_SET,      /* a target, b */
    FV_JJ_CAPTURE,  /* a target or NULL: print; b filters over FV_JJ_CAPTURED; body */
    FV_JJ_MACRO,    /* name; list of parameters (name, a default); body */
    FV_JJ_WITH,     /* list of SET; body */
    FV_JJ_CALLER,   /* a CALL; name "caller"; list of parameters, body: what it can call */
    FV_JJ_BREAK,
    FV_JJ_CONTINUE,
    /* expressions */
    FV_JJ_CONST,    /* value */
    FV_JJ_CAPTURED, /* the text of the CAPTURE around it */
    FV_JJ_NAME,     /* name */
    FV_JJ_LISTING,  /* list */
    FV_JJ_TUPLING,  /* list */
    FV_JJ_DICTING,  /* list of a: b */
    FV_JJ_ATTR,     /* a.name */
    FV_JJ_ITEM,     /* a[b] */
    FV_JJ_SLICE,    /* a[b : c : orelse], NULL where left out */
    FV_JJ_CALL, /* a(list), arguments with a name or without; op '*': a's items, '**': its pairs */
    FV_JJ_FILTER, /* a | name(list); row */
    FV_JJ_TEST,   /* a is name(list); row */
    FV_JJ_NEG,
    FV_JJ_POS,
    FV_JJ_NOT,
    FV_JJ_AND,
    FV_JJ_OR,
    FV_JJ_CHOICE,  /* b if a else c */
    FV_JJ_BINARY,  /* a op b */
    FV_JJ_JOIN,    /* list, joined as text */
    FV_JJ_COMPARE, /* a, then list of op, a */
    FV_JJ_ARG,     /* an element of a list: name or NULL, a, b, op */
} fv_jj_node_kind;

struct fv_jj_node {
    fv_jj_node_kind kind;
    int32_t line;
    int32_t op;       /* FV_JJ_OP of its characters; FV_JJ_IN, FV_JJ_NOT_IN */
    const char *name; /* equal names are one pointer (fv_jj_names) */
    const struct fv_jj_row *row;
    fv_jj_value value;
    fv_jj_node *a, *b, *c, *list, *body, *orelse;
    fv_jj_node *next; /* in its list or body */
};

#define FV_JJ_OP(first, second) ((first) | (second) << 8)
enum { FV_JJ_IN = 1 << 16, FV_JJ_NOT_IN };

typedef struct fv_jj_names {
    const char **name; /* [n] in strcmp's order, each once */
    size_t n;
} fv_jj_names;

struct fv_jinja {
    fv_arena arena; /* owns all below */
    const char *where;
    fv_jj_names names;
    fv_jj_node *body;
    /* loops over or indexes content; tests `is string`; compares it with none */
    bool walks_content, asks_content, nulls_content;
};

typedef enum fv_jj_token_kind {
    FV_JJ_T_END = 0,
    FV_JJ_T_DATA,
    FV_JJ_T_PRINT_BEGIN,
    FV_JJ_T_PRINT_END,
    FV_JJ_T_BLOCK_BEGIN,
    FV_JJ_T_BLOCK_END,
    FV_JJ_T_NAME,
    FV_JJ_T_CONST, /* a string or a number */
    FV_JJ_T_OP
} fv_jj_token_kind;

typedef struct fv_jj_token {
    fv_jj_token_kind kind;
    int32_t line, op;
    const char *name;
    fv_jj_value value; /* of DATA and CONST */
} fv_jj_token;

/* Gives all tokens of the program, then an END: free *out; what the tokens point to is in p's
 * arena. Fills p->names. */
fv_status fv_jj_lex(fv_jinja *p, const char *s, size_t n, fv_jj_token **out);

/* Interns the names of these tokens, so that equal names are one pointer; gives the list of all, in
 * `arena`. */
fv_status fv_jj_names_make(fv_jj_token *tokens, size_t n, fv_arena *arena, fv_jj_names *out);
/* Returns the pointer for this name; NULL: the program does not use it. */
const char *fv_jj_names_find(const fv_jj_names *names, const char *name);

/* ---- a run ---- */

typedef struct fv_jj_out { /* a growing text; {0} is empty */
    char *s;
    uint8_t *user; /* NULL: no byte is the user's */
    size_t n, cap;
} fv_jj_out;

typedef enum fv_jj_flow { FV_JJ_GO = 0, FV_JJ_BROKEN, FV_JJ_CONTINUED } fv_jj_flow;

struct fv_jj_run {
    const fv_jinja *program;
    fv_arena arena;
    char *chunk; /* small allocations are cut from it */
    size_t chunk_left, bytes;
    int64_t steps, now;
    const char *loop; /* the name "loop", if the program has it */
    double until_s;   /* deadline, by fv_clock_s; 0: none */
    int64_t look_at;  /* the steps at which the clock is read next */
    bool late;        /* until_s has passed */
    int32_t depth, line;
    fv_jj_out *out;
    fv_jj_value captured;
    fv_jj_flow flow;
    fv_jj_scope *scope;
};

#define FV_JJ_FAIL(r, status, format, ...)                                                         \
    FV_FAIL(status, "%s:%d: " format, (r)->program->where, (r)->line, __VA_ARGS__)

fv_status fv_jj_alloc(fv_jj_run *r, size_t bytes, void **out); /* zeroed */
/* Takes n steps. FV_EINVAL: no steps are left; FV_EDEADLINE: until_s has passed. */
fv_status fv_jj_steps(fv_jj_run *r, size_t n);
/* Steps for a string of n bytes: to copy it as a whole, to read its characters one by one, to write
 * them one by one. */
static inline size_t fv_jj_copying(size_t n) { return n / 64; }
static inline size_t fv_jj_reading(size_t n) { return n / 16; }
static inline size_t fv_jj_writing(size_t n) { return n / 4; }
enum { FV_JJ_DIGITS = 64 }; /* steps to print a floating-point number, or to take its remainder */
/* Like fv_jj_steps where no status can be returned: on false, the next fv_jj_steps fails. */
bool fv_jj_spend(fv_jj_run *r, size_t n);
/* Appends n bytes; user: their marks, NULL: the program's own. */
fv_status fv_jj_put(fv_jj_run *r, fv_jj_out *out, const char *s, size_t n, const uint8_t *user);
fv_status fv_jj_put_text(fv_jj_run *r, fv_jj_out *out, const char *s); /* NUL-terminated */
fv_status fv_jj_put_char(fv_jj_run *r, fv_jj_out *out, int32_t cp, bool user);
fv_jj_value fv_jj_taken(const fv_jj_out *out); /* the text as a value */
fv_status fv_jj_push(fv_jj_run *r, fv_jj_list *list, fv_jj_value v);
fv_status fv_jj_new_list(fv_jj_run *r, fv_jj_kind kind, fv_jj_value *out);
fv_status fv_jj_new_dict(fv_jj_run *r, fv_jj_kind kind, fv_jj_value *out);
fv_status fv_jj_dict_put(fv_jj_run *r, fv_jj_dict *d, const fv_jj_value *key, fv_jj_value v);
/* NULL: none. Takes a step, and the steps of its comparisons. */
const fv_jj_value *fv_jj_dict_find(fv_jj_run *r, const fv_jj_dict *d, const fv_jj_value *key);
const fv_jj_value *fv_jj_dict_get(fv_jj_run *r, const fv_jj_dict *d, const char *key);

/* Reads the first character of s, n >= 1; an invalid byte is U+FFFD. Returns its bytes. */
size_t fv_jj_char(const char *s, size_t n, int32_t *cp);
/* The next two take the steps for reading each character. */
int64_t fv_jj_chars(fv_jj_run *r, fv_jj_str s);
size_t fv_jj_byte_of(fv_jj_run *r, fv_jj_str s,
                     int64_t index); /* where this character begins, or the end */
bool fv_jj_is_space(int32_t cp);     /* str.isspace */
fv_jj_str fv_jj_sub(fv_jj_str s, size_t from, size_t to);
/* Removes characters of `set` (NULL: white space) at the ends. */
fv_jj_str fv_jj_strip(fv_jj_str s, const fv_jj_str *set, bool left, bool right);
/* Returns the offset of the first `what` at or after `from`; SIZE_MAX: none. Takes steps for the
 * bytes it reads. */
size_t fv_jj_find(fv_jj_run *r, fv_jj_str s, fv_jj_str what, size_t from);
bool fv_jj_str_is(fv_jj_str s, const char *word);
/* Replaces up to `most` (-1: all) occurrences. */
fv_status fv_jj_replace(fv_jj_run *r, fv_jj_str s, fv_jj_str was, fv_jj_str is, int64_t most,
                        fv_jj_value *out);
/* Escapes s for HTML, unless it is markup; the result is. */
fv_status fv_jj_escape(fv_jj_run *r, fv_jj_str s, fv_jj_value *out);
typedef enum fv_jj_case {
    FV_JJ_UPPER,
    FV_JJ_LOWER,
    FV_JJ_CAPITAL,
    FV_JJ_TITLE,
    FV_JJ_WORDS
} fv_jj_case;
/* Changes the case: TITLE like str.title, WORDS like the filter title. */
fv_status fv_jj_recase(fv_jj_run *r, fv_jj_str s, fv_jj_case to, fv_jj_value *out);
fv_status fv_jj_split_lines(fv_jj_run *r, fv_jj_str s, bool keep_ends, fv_jj_list *out);
/* s % of, as Python formats. */
fv_status fv_jj_percent(fv_jj_run *r, fv_jj_str s, const fv_jj_value *of, fv_jj_value *out);
/* Joins the str() of items by `between`. */
fv_status fv_jj_join(fv_jj_run *r, const fv_jj_list *items, fv_jj_str between, bool only_str,
                     fv_jj_value *out);

static inline fv_jj_value fv_jj_bool(bool b) { return (fv_jj_value){FV_JJ_BOOL, {.b = b}}; }
static inline fv_jj_value fv_jj_int(int64_t i) { return (fv_jj_value){FV_JJ_INT, {.i = i}}; }
static inline fv_jj_value fv_jj_float(double f) { return (fv_jj_value){FV_JJ_FLOAT, {.f = f}}; }
static inline fv_jj_value fv_jj_of(fv_jj_str s) { return (fv_jj_value){FV_JJ_STR, {.str = s}}; }
fv_jj_value fv_jj_text(const char *s);         /* s: a constant */
fv_jj_value fv_jj_undefined(const char *name); /* borrowed */

const char *fv_jj_type(const fv_jj_value *v); /* Python's name */
bool fv_jj_truth(const fv_jj_value *v);
/* Takes a step for each pair of values and each 64 bytes compared (fv_jj_spend). */
bool fv_jj_equal(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b);
/* *sign < 0: a before b. FV_EINVAL where Python defines no order. */
fv_status fv_jj_order(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b, int *sign);
fv_status fv_jj_contains(fv_jj_run *r, const fv_jj_value *in, const fv_jj_value *v, bool *out);
/* Gives the items that a loop over v visits. */
fv_status fv_jj_items(fv_jj_run *r, const fv_jj_value *v, fv_jj_list *out);
fv_status fv_jj_put_str(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v);
fv_status fv_jj_put_repr(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v);
fv_status fv_jj_str_of(fv_jj_run *r, const fv_jj_value *v, fv_jj_str *out); /* str(v) */
/* Reads v as a string, or an integer; FV_EINVAL names `what`. */
fv_status fv_jj_need_str(fv_jj_run *r, const fv_jj_value *v, const char *what, fv_jj_str *out);
fv_status fv_jj_need_int(fv_jj_run *r, const fv_jj_value *v, const char *what, int64_t *out);
fv_status fv_jj_fail_undefined(fv_jj_run *r, const fv_jj_value *v);

bool fv_jj_is_number(const fv_jj_value *v); /* int, float or bool */
double fv_jj_double(const fv_jj_value *v);  /* of a number */
int64_t fv_jj_whole(const fv_jj_value *v);  /* of an int or bool */
void fv_jj_float_repr(double f, char text[40]);
fv_status fv_jj_arithmetic(fv_jj_run *r, int32_t op, const fv_jj_value *a, const fv_jj_value *b,
                           fv_jj_value *out);

/* Converts JSON to a value; `user`: its strings are the user's. */
fv_status fv_jj_of_json(fv_jj_run *r, const json_t *j, bool user, fv_jj_value *out);

/* ---- calls ---- */

enum { FV_JJ_ARGS_MAX = 8 };

typedef struct fv_jj_args {
    const fv_jj_value *v;    /* [n] as given */
    const char *const *name; /* [n] NULL: by position */
    int32_t n;
    const fv_jj_value *bound[FV_JJ_ARGS_MAX]; /* by the row's parameters; NULL: not given */
} fv_jj_args;

typedef fv_status fv_jj_function(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                                 fv_jj_value *out);

typedef struct fv_jj_row { /* a table ends with a row without a name */
    const char *name;
    const char *parameters; /* names separated by blanks; NULL: any */
    fv_jj_function *function;
} fv_jj_row;

struct fv_jj_callable { /* a row with its object, or a macro with its scope */
    const fv_jj_row *row;
    fv_jj_value self;
    const fv_jj_node *macro;
    fv_jj_scope *scope;
};

extern const fv_jj_row fv_jj_filters[], fv_jj_list_filters[], fv_jj_tests[], fv_jj_functions[];
extern const fv_jj_row fv_jj_str_methods[], fv_jj_list_methods[], fv_jj_dict_methods[],
    fv_jj_loop_methods[];
fv_jj_function fv_jj_to_json;
const fv_jj_row *fv_jj_find_row(const fv_jj_row *table, const char *name,
                                size_t n); /* NULL: none */
const fv_jj_row *fv_jj_find_filter(const char *name, size_t n);
/* Binds the arguments and calls. */
fv_status fv_jj_call_row(fv_jj_run *r, const fv_jj_row *row, const fv_jj_value *self,
                         fv_jj_args *args, fv_jj_value *out);
fv_status fv_jj_call(fv_jj_run *r, const fv_jj_value *callee, fv_jj_args *args, fv_jj_value *out);

fv_status fv_jj_format(fv_jj_run *r, fv_jj_str s, const fv_jj_args *args, fv_jj_value *out);

fv_status fv_jj_eval(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out);
fv_status fv_jj_exec(fv_jj_run *r, const fv_jj_node *body);
/* Gives the text that a body writes, run in a new scope inside the current one. */
fv_status fv_jj_exec_text(fv_jj_run *r, const fv_jj_node *body, fv_jj_value *out);
/* Give v.name and v[key]; undefined where there is none. */
fv_status fv_jj_attribute(fv_jj_run *r, const fv_jj_value *v, const char *name, fv_jj_value *out);
fv_status fv_jj_item(fv_jj_run *r, const fv_jj_value *v, const fv_jj_value *key, fv_jj_value *out);
/* Follows a path of attributes like "a.b.0", as filters do; `otherwise` (NULL: none) replaces
 * undefined ones. */
fv_status fv_jj_path(fv_jj_run *r, const fv_jj_value *v, const fv_jj_value *path,
                     const fv_jj_value *otherwise, fv_jj_value *out);
fv_status fv_jj_enter(fv_jj_run *r, fv_jj_scope *up); /* makes r->scope a new scope in `up` */
/* Sets a variable of r->scope; the name must be one of the program's (fv_jj_names). Takes a
 * step. */
fv_status fv_jj_define(fv_jj_run *r, const char *name, fv_jj_value v);
/* Finds the variable in this scope or the scopes around it; NULL: none. Takes a step for each
 * scope. */
const fv_jj_value *fv_jj_look_up(fv_jj_run *r, const fv_jj_scope *in, const char *name);

#endif
