#ifndef FOVEA_GRAMMAR_TAG_INTERNAL_H
#define FOVEA_GRAMMAR_TAG_INTERNAL_H

/* Shared by the files of structural tags. */
#include <stdlib.h>

#include "grammar/internal.h"

enum { FV_TAG_LIST_MAX = 256, FV_TAG_TRIGGERS_MAX = 32, FV_TAG_DEPTH_MAX = 64 };

/* tag_format.c: the whole answer as a tree of formats. */
fv_status fv_tag_format(fv_compile *c, const json_t *format, fv_expr **out);

/* tag_xml.c: the members of an object, in the form of Qwen's calls. */
fv_status fv_tag_xml(fv_compile *c, const json_t *schema, fv_expr **out);

/* tag.c: text without triggers, a list of texts that are not empty, and without `end` unless that is "". */
fv_status fv_tag_free_text(fv_compile *c, const json_t *triggers, const char *end, fv_expr **out);

#endif
