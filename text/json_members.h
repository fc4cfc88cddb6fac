#ifndef FOVEA_TEXT_JSON_MEMBERS_H
#define FOVEA_TEXT_JSON_MEMBERS_H

/* The members of a large JSON object, one after the other: memory is for one at a time, and the time
 * is linear in the text. (fv_json_object makes a tree of everything, which for an object of a million
 * members takes gigabytes, and longer to free than to make.) */
#include "text/json.h"

typedef struct fv_json_members {
    const char *text; /* [n]; borrowed */
    size_t n;
    const char *where; /* names the text in errors; borrowed */
    json_t *name;      /* the present member, owned: its name as a string, without U+0000 */
    json_t *value;
    /* private */
    size_t at;
    bool begun;
} fv_json_members;

/* Goes to the next member; *more: there is one. The first time it looks for the object's beginning,
 * after the last member for the end of the text. FV_EDATA: not valid JSON, or no object. A name that
 * comes twice is not noticed. */
fv_status fv_json_members_next(fv_json_members *m, bool *more);
void fv_json_members_end(fv_json_members *m); /* at any time; frees the present member */

#endif
