#ifndef FOVEA_TEXT_TOKENIZER_CONFIG_H
#define FOVEA_TEXT_TOKENIZER_CONFIG_H

/* TOKENIZER CONFIG: what a server tells its clients of a checkpoint's tokenizer, as vLLM's server does:
 * tokenizer_config.json, from which a client can make the tokenizer's settings and render turns. */
#include "common/status.h"

enum { FV_TOKENIZER_CONFIG_BYTES = 3 << 20 }; /* of the file, and of what is made of it */

/* Makes a JSON object of tokenizer_config.json of the checkpoint `from`, a directory or GGUF file:
 * without the keys that name files of the machine that wrote it; with `tokenizer_class`, which is
 * "PreTrainedTokenizerFast" where the file has none, as transformers decides for a tokenizer.json;
 * and with `program` as `chat_template` (NULL: as in the file; "": without). A checkpoint without the
 * file has the last two only. Gives *json, NUL-terminated (free it). FV_EDATA: the file is broken;
 * FV_EUNSUPPORTED: it is too large to be sent. */
fv_status fv_tokenizer_config(const char *from, const char *program, char **json);

#endif
