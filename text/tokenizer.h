#ifndef FOVEA_TEXT_TOKENIZER_H
#define FOVEA_TEXT_TOKENIZER_H

/* tokenizer.json, as Hugging Face `tokenizers` reads it: text to ids and back, the same ids.
 *
 * Two kinds of BPE, Llama-2 style (scalars, byte fallback; prefix by normaliser or by Metaspace)
 * and byte-level (words cut by any regular expression), and Unigram. Anything else in a file is refused by name
 * when it is opened. Its `truncation` and `padding` are not applied: the caller limits the length
 * of a prompt. A tokenizer is immutable: any number of threads may use it at once. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"
#include "grammar/grammar.h"

typedef struct fv_tokenizer fv_tokenizer; /* opaque */

/* Parses the text of tokenizer.json; `where` names the file in errors. FV_EDATA: broken
 * JSON, merges that name unknown tokens, duplicate ids; FV_EUNSUPPORTED: an unsupported component or
 * pattern, by name. */
fv_status fv_tokenizer_parse(const char *json, size_t n, const char *where, fv_tokenizer **out);

/* Opens the tokenizer.json of the checkpoint `from` (gguf/texts.h), or what it has in its place
 * (text/tokenizer_made.h). */
fv_status fv_tokenizer_open(const char *from, fv_tokenizer **out);
void fv_tokenizer_free(fv_tokenizer *tok); /* NULL is fine */

/* Ids of n bytes of text, at most 256 MiB; NUL bytes are characters like others. Text that is
 * not valid UTF-8 has each bad byte replaced by U+FFFD. add_special runs the post-processor
 * (BOS and the like). Time is O(n log n). Gives *ids (free it) and *n_ids. */
fv_status fv_tokenizer_encode(const fv_tokenizer *tok, const char *text, size_t n, bool add_special,
                              int32_t **ids, int32_t *n_ids);

/* Marks the bytes of a text that a user wrote. An added token that is special, or is `literal`, is that
 * token only if none of its bytes is the user's; otherwise its characters are ordinary text. */
typedef struct fv_text_marks {
    const uint8_t *user; /* [n] by byte of the text, 1: the user's */
    int32_t literal;     /* id of an added token, special or not (an image's); -1: none */
} fv_text_marks;

/* The same for text that is partly the user's. marks NULL: none of it is. */
fv_status fv_tokenizer_encode_marked(const fv_tokenizer *tok, const char *text, size_t n,
                                     bool add_special, const fv_text_marks *marks, int32_t **ids,
                                     int32_t *n_ids);

/* The same for text that follows other ids: no prefix is added. The ids joined with those before
 * are the ids of the joined text if a token ends at the border: always after a special token, and
 * between words; a word that is cut there is not re-tokenized. */
fv_status fv_tokenizer_encode_after(const fv_tokenizer *tok, int32_t before, const char *text,
                                    size_t n, const fv_text_marks *marks, int32_t **ids,
                                    int32_t *n_ids);

/* Text of n ids, as `tokenizers` decodes it. Unknown ids are FV_EINVAL. Gives *text (free
 * it), with a NUL added, and *bytes. */
fv_status fv_tokenizer_decode(const fv_tokenizer *tok, const int32_t *ids, int32_t n,
                              bool skip_special, char **text, size_t *bytes);

/* Gives the bytes that one token stands for, in the arena, with a NUL added. Joined, the bytes of an
 * answer's tokens are its text, apart from a prefix that the decoder strips. They need not be whole
 * characters. A special token is as it is written; an id without a token has no bytes. */
fv_status fv_tokenizer_token_text(const fv_tokenizer *tok, int32_t id, fv_arena *arena, char **text,
                                  size_t *bytes);

/* The vocabulary as a trie of the bytes that tokens add to an answer, without special tokens; borrowed from the
 * tokenizer, which makes it on the first call: some tenths of a second for 150 000 tokens. */
fv_status fv_tokenizer_trie(const fv_tokenizer *tok, const fv_token_trie **out);

/* Whether the decoder cuts a space off the front of a text. */
bool fv_tokenizer_strips_space(const fv_tokenizer *tok);

int32_t fv_tokenizer_vocab(const fv_tokenizer *tok);                 /* largest id + 1 */
int32_t fv_tokenizer_id(const fv_tokenizer *tok, const char *token); /* -1: no such token */
bool fv_tokenizer_is_special(const fv_tokenizer *tok, int32_t id);
/* A special token as it is written, borrowed; "" for ids that are none. */
const char *fv_tokenizer_special(const fv_tokenizer *tok, int32_t id);

/* Maximum bytes of text per token: a text of more than n times as many bytes is
 * more than n tokens. If steps of the tokenizer can shorten text without a bound (Unicode forms,
 * white space that an added token absorbs, characters without a token), the maximum is four
 * times the longest token; readable text stays far below. */
size_t fv_tokenizer_token_bytes(const fv_tokenizer *tok);

/* FV_EINVAL if n_bytes of text are certainly more than n_tokens, the context. Call it before spending
 * time on the text. */
fv_status fv_tokenizer_check_length(const fv_tokenizer *tok, size_t n_bytes, int32_t n_tokens);

/* Streaming detokenisation: the texts of push and flush, joined, equal decode of all ids; a
 * character is held back until all its bytes are there, so that every piece is whole UTF-8.
 * A Llama-2 tokenizer's run of byte tokens (<0xE4><0xBD><0xA0>...) is held back to its end: one
 * bad byte there turns the whole run into U+FFFD, one per byte. */
typedef struct fv_detokenizer fv_detokenizer; /* opaque; borrows the tokenizer */

fv_status fv_detokenizer_open(const fv_tokenizer *tok, bool skip_special, fv_detokenizer **out);
void fv_detokenizer_close(fv_detokenizer *d);
/* Adds one id. *text, *bytes: what can be shown now, possibly nothing; borrowed until the next
 * call on d. An unknown id is FV_EINVAL and changes nothing. */
fv_status fv_detokenizer_push(fv_detokenizer *d, int32_t id, const char **text, size_t *bytes);
/* Characters that the held-back text has before the text of `id`, which comes next. A character that `id`
 * may continue does not count. */
uint32_t fv_detokenizer_held(const fv_detokenizer *d, int32_t id);
/* Ends the stream: returns the text that was held back, as decode would. d can then be used again. */
fv_status fv_detokenizer_flush(fv_detokenizer *d, const char **text, size_t *bytes);

#endif
