#ifndef FOVEA_TEXT_TOKENIZER_MADE_H
#define FOVEA_TEXT_TOKENIZER_MADE_H

/* MADE TOKENIZERS: the tree of a tokenizer.json, from the files that a directory has in its place:
 *
 *   tokenizer.model             SentencePiece, BPE (Llama 2, LLaVA 1.5, Mistral, Gemma, InternLM 2)
 *   tekken.json                 Mistral's byte-level BPE
 *   vocab.json and merges.txt   byte-level BPE as Qwen2's and GPT-2's tokenizers save it
 *
 * tokenizer_config.json and added_tokens.json say which tokens were added, and whether BOS is put before a text.
 * The trees are those that transformers' converters give, so ids are the same. */
#include <jansson.h>

#include "common/status.h"

enum { FV_TOKENIZER_FILE_MAX = 1 << 28 };

/* Makes the tree from the first of these files that `dir` has, and writes its path to `path`. *root NULL: it has
 * none. FV_EUNSUPPORTED: a kind of model that cannot be read, with what to do. */
fv_status fv_tokenizer_make(const char *dir, char path[4096], json_t **root);

/* The same from the bytes of one file; `config` is what tokenizer_config.json says, or NULL; `added`:
 * added_tokens.json, or NULL. */
fv_status fv_tokenizer_of_sentencepiece(const void *bytes, size_t n, const char *where,
                                        const json_t *config, const json_t *added, json_t **root);
fv_status fv_tokenizer_of_tekken(const char *text, size_t n, const char *where, json_t **root);
/* Shares `vocab`, what vocab.json says. */
fv_status fv_tokenizer_of_merges(json_t *vocab, const char *merges, size_t n, const char *where,
                                 const json_t *config, const json_t *added, json_t **root);

#endif
