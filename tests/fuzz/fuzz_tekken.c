/* tekken.json: any text is a tokenizer or an error. */
#include <stdint.h>
#include <stdlib.h>

#include "text/tokenizer_internal.h"
#include "text/tokenizer_made.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_t *root;
    fv_tokenizer *tok;
    int32_t *ids, n_id;
    if (fv_tokenizer_of_tekken((const char *)data, n, "tekken.json", &root) != FV_OK) return 0;
    if (fv_tok_of_tree(root, "tekken.json", &tok) == FV_OK) {
        if (fv_tokenizer_encode(tok, "a b  ab\n", 8, true, &ids, &n_id) == FV_OK) free(ids);
        fv_tokenizer_free(tok);
    }
    json_decref(root);
    return 0;
}
