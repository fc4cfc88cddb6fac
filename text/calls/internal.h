#ifndef FOVEA_TEXT_CALLS_INTERNAL_H
#define FOVEA_TEXT_CALLS_INTERNAL_H

/* Shared by the files of forms. A form has two functions: `scan` finds where a call ends, byte by
 * byte as they come, and `read` makes calls of a complete one. */
#include <stdint.h>

#include "text/calls/calls.h"

typedef enum fv_scan_end {
    FV_SCAN_MORE, /* the call goes on */
    FV_SCAN_DONE, /* the call ends before byte `at` */
    FV_SCAN_NONE, /* this is no call */
} fv_scan_end;

/* How far a call's bytes behind its mark have been read. {0} is the beginning. */
typedef struct fv_scan {
    size_t at;     /* bytes that were read */
    size_t from;   /* of forms with a name in front: where the JSON begins */
    int32_t depth; /* open brackets */
    uint8_t phase; /* the form's own; 0 at first */
    bool in_string, escaped;
} fv_scan;

/* Reads on in s[n], from scan->at. */
typedef fv_scan_end (*fv_calls_scan)(fv_scan *scan, const char *s, size_t n);

/* Reads the call s[n], whose end the scan found, and reports its calls with fv_calls_report.
 * *is: it was one; false with FV_OK: it stays text. */
typedef fv_status (*fv_calls_read)(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                                   bool *is);

enum { FV_CALLS_MARKS = 3 };

struct fv_calls_form {
    const char *name;
    const char *marks[FV_CALLS_MARKS]; /* begin a call; NULL: no more */
    const char *kept;                  /* the mark that is part of the call; NULL: none is */
    const char *after[FV_CALLS_MARKS]; /* follow a call and are dropped; NULL: no more */
    const char *known[FV_CALLS_MARKS]; /* templates with one of these have this form */
    bool at_start; /* '{' at the answer's beginning or behind a call begins a call too */
    bool special, short_ids;
    json_t *(*tag)(
        const json_t *tools); /* the format of an answer, NULL: out of memory; NULL: none */
    fv_calls_scan scan;
    fv_calls_read read;
};

extern const fv_calls_form fv_calls_forms[];
extern const int32_t fv_n_calls_form;

/* Whether one more call of this name would be taken. */
bool fv_calls_takes(const fv_calls_parser *p, const char *name);

/* Whether n more calls would be taken. */
bool fv_calls_has_room(const fv_calls_parser *p, size_t n);

/* Reports a call. arguments: an object. */
fv_status fv_calls_report(fv_calls_parser *p, const char *name, const json_t *arguments);

/* Returns the schema of a tool's parameters; NULL: not known. Borrowed. */
const json_t *fv_calls_parameters(const fv_calls_parser *p, const char *tool);

bool fv_calls_is_space(char c);

/* tag.c: formats of answers with calls. */
json_t *fv_tag_hermes(const json_t *tools);
json_t *fv_tag_qwen3_xml(const json_t *tools);
json_t *fv_tag_mistral(const json_t *tools);
json_t *fv_tag_llama3_json(const json_t *tools);

/* span.c: reads one JSON object or list from scan->at on by its quotes and brackets alone. */
fv_scan_end fv_scan_json(fv_scan *scan, const char *s, size_t n);

/* json_call.c: parses n bytes of JSON; NULL: they are none. Gives it. */
json_t *fv_calls_parse(const char *s, size_t n);
/* Gives the name, borrowed from `call`, and the arguments, a new reference, of {"name", "arguments"
 * or "parameters"}; false: it is no call that would be taken. */
bool fv_calls_read_call(const fv_calls_parser *p, const json_t *call, const char **name,
                        json_t **arguments);

/* The name of the one tool; NULL: there are none or several. */
const char *fv_calls_only_tool(const fv_calls_parser *p);
fv_status fv_read_arguments(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                            bool *is);
fv_scan_end fv_scan_json_call(fv_scan *scan, const char *s, size_t n);
fv_status fv_read_json_call(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                            bool *is);
fv_scan_end fv_scan_mistral(fv_scan *scan, const char *s, size_t n);
fv_status fv_read_mistral(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                          bool *is);
fv_scan_end fv_scan_xml(fv_scan *scan, const char *s, size_t n);
fv_status fv_read_xml(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n, bool *is);
fv_scan_end fv_scan_gemma(fv_scan *scan, const char *s, size_t n);
fv_status fv_read_gemma(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n, bool *is);

#endif
