#ifndef FOVEA_GRAMMAR_RESULT_INTERNAL_H
#define FOVEA_GRAMMAR_RESULT_INTERNAL_H

/* Memory of the grammars of results that wait, for tests. */
#include <stddef.h>

extern size_t fv_grammar_waiting_max; /* bytes, at most */
size_t fv_grammar_waiting(void);      /* bytes now */

#endif
