#ifndef FOVEA_TEXT_TOKENIZER_MADE_INTERNAL_H
#define FOVEA_TEXT_TOKENIZER_MADE_INTERNAL_H

/* Parts that the makers of tokenizer.json's tree share. */
#include <stdbool.h>

#include "text/tokenizer_made.h"

/* A step of a pipeline, from its JSON text; NULL: no memory. */
json_t *fv_made_step(const char *json);

/* {"type": "Sequence", key: steps}; takes `steps`. */
json_t *fv_made_sequence(const char *key, json_t *steps);

/* A model of type BPE with empty lists, added to root; `vocab` is taken. Borrowed from root; NULL: no memory. */
json_t *fv_made_model(json_t *root, json_t *vocab);

/* Adds a token that is searched for in texts to the list {id: token}. */
bool fv_made_add_token(json_t *tokens, json_int_t id, const char *text, size_t n, bool special);

/* The token of that list, borrowed; NULL: there is none. */
json_t *fv_made_find_token(json_t *tokens, json_int_t id);

/* Adds the tokens of tokenizer_config.json and added_tokens.json, and writes all, by id, to root.added_tokens. */
fv_status fv_made_finish_tokens(json_t *root, json_t *tokens, const json_t *config,
                                const json_t *added, const char *where);

/* Adds the template that puts BOS before a text and EOS after it, as the config says, which names them; `bos`:
 * what it does if it says nothing. */
fv_status fv_made_add_template(json_t *root, const json_t *config, bool bos, const char *where);

/* The text of a special token in tokenizer_config.json, a string or {content}; `usual` if it names none. */
const char *fv_made_named(const json_t *config, const char *key, const char *usual);

/* Adds the pre-tokenizer and decoder of byte-level BPE, whose words the expression cuts. */
bool fv_made_byte_level(json_t *root, const char *regex, bool prefix);

#endif
