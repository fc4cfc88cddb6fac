/* tokenizer.model: any bytes are a tokenizer or an error. The last bytes are the text, too, with all its odd characters. */
#include <stdint.h>
#include <stdlib.h>

#include "text/tokenizer_internal.h"
#include "text/tokenizer_made.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_t *root;
    fv_tokenizer *tok;
    int32_t *ids, n_id;
    if (fv_tokenizer_of_sentencepiece(data, n, "tokenizer.model", NULL, NULL, &root) != FV_OK)
        return 0;
    if (fv_tok_of_tree(root, "tokenizer.model", &tok) == FV_OK) {
        if (fv_tokenizer_encode(tok, "a b  ab\n", 8, true, &ids, &n_id) == FV_OK) free(ids);
        const size_t n_text = n < 64 ? n : 64;
        const char *text = (const char *)data + n - n_text;
        if (fv_tokenizer_encode(tok, text, n_text, true, &ids, &n_id) == FV_OK) {
            for (int32_t i = 0; i < n_id; i++)
                if (ids[i] < 0 || ids[i] >= fv_tokenizer_vocab(tok)) abort();
            free(ids);
        }
        fv_tokenizer_free(tok);
    }
    json_decref(root);
    return 0;
}
