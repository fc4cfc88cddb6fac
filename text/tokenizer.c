/* Opening and querying a tokenizer.
 *
 * A tokenizer's memory is one arena and is written only while it is opened; after
 * that it is read by any number of threads. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/grow.h"
#include "gguf/texts.h"
#include "text/json.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_made.h"

fv_status fv_tok_put(fv_tok_bytes *b, const char *s, size_t n) {
    FV_TRY(fv_grow(&b->data, &b->cap, b->n + n, 1));
    if (n) memcpy(b->data + b->n, s, n);
    b->n += n;
    return FV_OK;
}

fv_status fv_tok_put_id(fv_tok_ids *ids, int32_t id) {
    FV_TRY(fv_grow(&ids->data, &ids->cap, ids->n + 1, sizeof *ids->data));
    ids->data[ids->n++] = id;
    return FV_OK;
}

/* GPT-2 writes a byte as the Latin-1 character of that number if it is visible, and the other
 * 68 bytes, in order, as U+0100.. */
static bool is_visible(int32_t byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* How many bytes below this one are not visible: 0..32, 127..160, 173. */
static int32_t hidden_below(int32_t byte) {
    return byte <= 33 ? byte : byte <= 127 ? 33 : byte <= 161 ? byte - 94 : byte <= 173 ? 67 : 68;
}

int32_t fv_tok_byte_cp(unsigned char byte) {
    return is_visible(byte) ? byte : 0x100 + hidden_below(byte);
}

int32_t fv_tok_cp_byte(int32_t cp) {
    if (cp < 0 || cp >= FV_TOK_BYTE_CPS) return -1;
    if (cp < 0x100) return is_visible(cp) ? cp : -1;
    int32_t k = cp - 0x100;
    return k < 33 ? k : k < 67 ? k + 94 : 173;
}

fv_status fv_tok_of_tree(const json_t *root, const char *where, fv_tokenizer **out) {
    fv_status st = FV_OK;
    fv_tokenizer *tok = calloc(1, sizeof *tok);
    if (tok) tok->lazy = calloc(1, sizeof *tok->lazy);
    if (!tok || !tok->lazy) {
        st = FV_FAIL(FV_ENOMEM, "out of memory for a tokenizer");
    } else {
        pthread_mutex_init(&tok->lazy->lock, NULL);
        st = fv_tok_load(tok, root, where);
    }
    if (st != FV_OK) {
        fv_tokenizer_free(tok);
        return st;
    }
    *out = tok;
    return FV_OK;
}

fv_status fv_tokenizer_parse(const char *json, size_t n, const char *where, fv_tokenizer **out) {
    json_t *root;
    FV_TRY(fv_json_object(json, n, where, &root));
    fv_status st = fv_tok_of_tree(root, where, out);
    json_decref(root);
    return st;
}

/* Opens a checkpoint that has no tokenizer.json. */
static fv_status open_made(const char *from, fv_tokenizer **out) {
    char path[FV_CHECKPOINT_PATH];
    json_t *root;
    FV_TRY(fv_tokenizer_make(from, path, &root));
    if (!root)
        return FV_FAIL(FV_ENOTFOUND,
                       "%s has no tokenizer.json, and neither tokenizer.model, tekken.json nor "
                       "vocab.json with merges.txt, of which one can be made",
                       from);
    fv_status st = fv_tok_of_tree(root, path, out);
    json_decref(root);
    return st;
}

fv_status fv_tokenizer_open(const char *from, fv_tokenizer **out) {
    enum { BYTES_MAX = 1 << 28 }; /* the largest files are near 2^25 */
    char path[FV_CHECKPOINT_PATH], *json;
    size_t n;
    FV_TRY(fv_checkpoint_file(from, "tokenizer.json", BYTES_MAX, path, &json, &n));
    if (!json) return open_made(from, out);
    fv_status st = fv_tokenizer_parse(json, n, path, out);
    free(json);
    return st;
}

void fv_tokenizer_free(fv_tokenizer *tok) {
    if (!tok) return;
    for (int32_t i = 0; i < tok->n_norm; i++) fv_tok_regex_free(tok->norm[i].regex);
    for (int32_t i = 0; i < tok->n_pre; i++) fv_tok_regex_free(tok->pre[i].regex);
    fv_arena_fini(&tok->arena);
    if (tok->lazy) {
        fv_token_trie_free(tok->lazy->trie);
        pthread_mutex_destroy(&tok->lazy->lock);
    }
    free(tok->lazy);
    free(tok);
}

int32_t fv_tokenizer_vocab(const fv_tokenizer *tok) { return tok->vocab.n; }

int32_t fv_tokenizer_id(const fv_tokenizer *tok, const char *token) {
    return fv_tok_vocab_find(&tok->vocab, token, strlen(token));
}

bool fv_tokenizer_is_special(const fv_tokenizer *tok, int32_t id) {
    return id >= 0 && id < tok->vocab.n && tok->vocab.tokens[id].flags & FV_TOK_SPECIAL;
}

const char *fv_tokenizer_special(const fv_tokenizer *tok, int32_t id) {
    return fv_tokenizer_is_special(tok, id) ? tok->vocab.tokens[id].text : "";
}
