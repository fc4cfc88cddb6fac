#ifndef FOVEA_GRAMMAR_SCHEMA_INTERNAL_H
#define FOVEA_GRAMMAR_SCHEMA_INTERNAL_H

/* Shared by the files grammar/schema*.c.
 *
 * A value must satisfy a conjunction: a list of schemas of the document. It becomes flat by following $ref and
 * allOf; anyOf and oneOf become alternatives of conjunctions, in which they are marked as done. Members of objects
 * and elements of arrays have conjunctions too, collected from all schemas of theirs. Each different conjunction is a
 * rule, made once, so recursion ends; rules that are still to be made wait in a list, so nothing here recurses over
 * the depth of a document. */
#include "grammar/internal.h"

enum {
    FV_SKIP_ANY_OF = 1, /* that keyword of the schema has been dealt with */
    FV_SKIP_ONE_OF = 2,
    FV_SKIP_REFS = 4, /* $ref and allOf */
};

typedef struct fv_part {
    const json_t *schema; /* of the document, or owned by fv_schema.made */
    unsigned skip;
} fv_part;

typedef struct fv_parts {
    fv_part *part; /* [n] */
    size_t n, cap;
} fv_parts;

typedef struct fv_schema {
    fv_compile *c;
    const json_t *root;
    json_t *made;                /* an array of schemas that the document does not have */
    struct fv_schema_rule *rule; /* [n] by conjunction */
    size_t n, cap, done;
    bool impossible; /* fv_schema_flatten found a schema that nothing satisfies */
} fv_schema;

enum {
    FV_TYPE_NULL = 1,
    FV_TYPE_BOOLEAN = 2,
    FV_TYPE_INTEGER = 4,
    FV_TYPE_REAL = 8, /* numbers that are no integers */
    FV_TYPE_STRING = 16,
    FV_TYPE_ARRAY = 32,
    FV_TYPE_OBJECT = 64,
    FV_TYPE_NUMBER = FV_TYPE_INTEGER | FV_TYPE_REAL,
    FV_TYPE_ANY = 127,
};

fv_status fv_parts_add(fv_schema *x, fv_parts *p, const json_t *schema, unsigned skip);

/* schema.c: the rule of a conjunction. */
fv_status fv_schema_rule_of(fv_schema *x, const fv_parts *p, fv_expr **out);
/* A schema that is not in the document; x owns it from now on. `made` NULL: out of memory. */
fv_status fv_schema_keep(fv_schema *x, json_t *made);

/* schema_gather.c. */
fv_status fv_schema_flatten(fv_schema *x, const fv_parts *in, fv_parts *out, bool *impossible);
fv_status fv_schema_types(const fv_parts *flat, unsigned *types);
const char *fv_schema_keyword(const json_t *schema, size_t i); /* the i-th refused keyword */
fv_status fv_schema_refuse(const fv_parts *flat, const char *keyword); /* FV_EINVAL if it is used */
/* The values of the first enum or const that all other schemas accept; *list NULL: there is none. *list is kept. */
fv_status fv_schema_values(fv_schema *x, const fv_parts *flat, json_t **list);

/* Reads a count such as minLength, the strictest of all schemas; -1: not given. */
fv_status fv_schema_count(const fv_parts *flat, const char *key, bool most, int64_t *out);

/* Each makes the expression of the values of a type. */
fv_status fv_schema_object(fv_schema *x, const fv_parts *flat, fv_expr **out);
fv_status fv_schema_array(fv_schema *x, const fv_parts *flat, fv_expr **out);
fv_status fv_schema_string(fv_schema *x, const fv_parts *flat, fv_expr **out); /* with the quotes */
fv_status fv_schema_number(fv_schema *x, const fv_parts *flat, unsigned types, fv_expr **out);

/* schema_string.c: the automaton of strings that the schemas allow; *out NULL: all strings. */
fv_status fv_schema_string_dfa(fv_schema *x, const fv_parts *flat, const fv_dfa **out);
/* schema_number.c: whether a number is within the schemas' limits. */
fv_status fv_schema_number_fits(const fv_parts *flat, const json_t *value, bool *fits);

/* schema_object.c: what the member `name` must satisfy; *forbidden: it must not be there. */
fv_status fv_schema_member(fv_schema *x, const fv_parts *flat, const char *name, fv_parts *out,
                           bool *forbidden);
bool fv_schema_requires(const fv_parts *flat, const char *name);

/* schema_one.c: adds to the alternatives what makes them exclude each other; FV_EINVAL if it finds nothing. */
fv_status fv_schema_exclude(fv_schema *x, fv_parts *alternative, size_t n);

#endif
