/* tokenizer.json and the text to encode with it, both hostile.
 *
 *   byte 0: bits 0-1 which tokenizer: 0 the one in the input, 1..3 one of those below;
 *           bit 4 with 1: the fourth of them
 *           bit 2 add special tokens, bit 3 skip them when decoding
 *   then    tokenizer.json and a NUL, if it is in the input; the rest is the text
 *
 * Any tokenizer that opens must encode (or say why not) into ids of its vocabulary, and a stream
 * must give whole characters that join to what decode gives, for those ids and for arbitrary
 * ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const built_in[] = {
    /* Llama-2: one word, byte fallback for some bytes, flags of added tokens */
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
    "{\"id\":11,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},"
    "{\"id\":12,\"content\":\"<s\",\"single_word\":true},"
    "{\"id\":13,\"content\":\"é\",\"normalized\":true},"
    "{\"id\":14,\"content\":\"  \",\"rstrip\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
    "\"▁\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"▁\"}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[11]}}},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
    "\"String\":\"▁\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":2}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"vocab\":{"
    "\"<unk>\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"<0x9F>\":3,\"<0x00>\":4,\"▁\":5,\"a\":6,\"b\":7,"
    "\"ab\":8,\"▁▁\":9,\"aba\":10},\"merges\":[\"a b\",\"▁ ▁\",\"ab a\"]}}",
    /* Qwen2: NFC, the expression of Llama-3 and Qwen2, byte level */
    "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
    "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*"
    "|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\"},{\"type\":"
    "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"vocab\":{\"Ġ\":0,\"Ċ\":1,\"a\":2,\"Ġa\":3,\"Ã\":4,\"©\":5,\"ð\":6,\"Ł\":7,"
    "\"ĺ\":8,\"1\":9,\"ł\":10,\"'\":11,\"s\":12},\"merges\":[\"Ġ a\"]}}",
    /* the rest: NFKD, Metaspace, GPT-2's expression, no decoder */
    "{\"normalizer\":{\"type\":\"NFKD\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
    "\"pretokenizers\":[{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Digits\","
    "\"individual_digits\":false},{\"type\":\"ByteLevel\"}]},"
    "\"model\":{\"vocab\":{\"Ġ\":0,\"_\":1,\"a\":2,\"_a\":3,\"Ì\":4,\"ģ\":5},"
    "\"merges\":[\"_ a\"],\"ignore_merges\":true}}",
    /* Unigram: a table (fi's ligature and a tab), an expression, words, bytes for unknown characters */
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
    "\"precompiled_charsmap\":"
    "\"AAQAAAAgAAAJDQAAAAAAgKwYAgCBBQAAAgAAgAcAAAAGAAAACQAAAAgAAAALAAAACgAAAA0AAAAMAAAADwAAAA4AAAAR"
    "AAAAEAAAABMAAAASAAAAFQAAABQAAAAXAAAAFgAAABkAAAAYAAAAGwAAABoAAAAdAAAAHAAAAB8AAAAeAAAAIQAAACAAAA"
    "AjAAAAIgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAADEAAAAwAAAAMwAAADIA"
    "AAA1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMAAABCAAAARQAAAE"
    "QAAABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAA"
    "AFYAAABZAAAAWAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAAYwAAAGIAAABlAAAAZAAAAGcAAABmAAAAaQ"
    "AAAGgAAABrAAAAagAAAG0AAABsAAAAbwAAAG4AAABxAAAAcAAAAHMAAAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAA"
    "ewAAAHoAAAB9AAAAfAAAAH8AAAB+"
    "AAAAgQAAAIAAAACDAAAAggAAAIUAAACEAAAAhwAAAIYAAACJAAAAiAAAAIsAAACKAAAAjQAAAIwAAACPAAAAjgAAAJEAAA"
    "CQAAAAkwAAAJIAAACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAAnwAAAJ4AAAChAAAAoAAAAKMA"
    "AACiAAAApQAAAKQAAACnAAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAAsgAAAL"
    "UAAAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/"
    "AAAAvgAAAMEAAADAAAAAwwAAAMIAAADFAAAAxAAAAMcAAADGAAAAyQAAAMgAAADLAAAAygAAAM0AAADMAAAAzwAAAM4AAA"
    "DRAAAA0AAAANMAAADSAAAA1QAAANQAAADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAA"
    "AADjAAAA4gAAAOUAAADkAAAA5wAAAO8gAQDpAAAA6AAAAOsAAADqAAAA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAAAP"
    "IAAAD1AAAA9AAAAPcAAAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/"
    "wAAAP4AAAAgAGZpAA==\"},{\"type\":\"Strip\"},{\"type\":\"Replace\","
    "\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"▁\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
    "{\"type\":\"Metaspace\",\"replacement\":\"▁\"}]},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],"
    "[\"▁\",-2],[\"a\",-3],[\"▁a\",-3.5],[\"fi\",-4],[\"aa\",-5.5],[\"<0xC3>\",0],[\"<0xA9>\",0]]}"
    "}",
};

static void check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, fv_last_error());
    abort();
}

static void check_stream(const fv_tokenizer *tok, const int32_t *ids, int32_t n, bool skip) {
    char *text;
    size_t bytes, at = 0;
    fv_detokenizer *d;
    check(fv_tokenizer_decode(tok, ids, n, skip, &text, &bytes) == FV_OK, "decode");
    check(fv_utf8_valid(text, bytes) == bytes, "decoded text is UTF-8");
    check(fv_detokenizer_open(tok, skip, &d) == FV_OK, "open a stream");
    for (int32_t i = 0; i <= n; i++) {
        const char *piece;
        size_t k;
        fv_status st = i < n ? fv_detokenizer_push(d, ids[i], &piece, &k)
                             : fv_detokenizer_flush(d, &piece, &k);
        check(st == FV_OK, "push");
        check(fv_utf8_valid(piece, k) == k, "a piece is UTF-8");
        check(k <= bytes - at && memcmp(text + at, piece, k) == 0, "stream == decode");
        at += k;
    }
    check(at == bytes, "stream ends where decode does");
    fv_detokenizer_close(d);
    free(text);
}

static void run(const fv_tokenizer *tok, const char *text, size_t n, bool special, bool skip) {
    int32_t *ids, n_ids;
    if (fv_tokenizer_encode(tok, text, n, special, &ids, &n_ids) == FV_OK) {
        for (int32_t i = 0; i < n_ids; i++)
            check(ids[i] >= 0 && ids[i] < fv_tokenizer_vocab(tok), "an id of the vocabulary");
        check_stream(tok, ids, n_ids, skip);
        free(ids);
    }
    /* Ids as bytes, of which holes in the vocabulary are left out. */
    int32_t *wild = malloc((n + 1) * sizeof *wild), n_wild = 0;
    check(wild != NULL, "memory");
    for (size_t i = 0; i < n && i < 4096; i++) {
        int32_t id = (unsigned char)text[i];
        char *one;
        size_t bytes;
        if (fv_tokenizer_decode(tok, &id, 1, skip, &one, &bytes) != FV_OK) continue;
        free(one);
        wild[n_wild++] = id;
    }
    check_stream(tok, wild, n_wild, skip);
    free(wild);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    const char *json = (const char *)data + 1, *text = json;
    size_t n_json = 0, n_text = n - 1;
    if (data[0] & 3) {
        json = built_in[data[0] & 16 ? 3 : (data[0] & 3) - 1];
        n_json = strlen(json);
    } else {
        const char *nul = memchr(json, 0, n_text);
        n_json = nul ? (size_t)(nul - json) : n_text;
        text = nul ? nul + 1 : json + n_json;
        n_text -= n_json + (nul ? 1 : 0);
    }
    fv_tokenizer *tok = NULL;
    fv_status st = fv_tokenizer_parse(json, n_json, "tokenizer.json", &tok);
    check(st == FV_OK || (!(data[0] & 3) && !tok && *fv_last_error()), "parse");
    if (st == FV_OK) run(tok, text, n_text, data[0] & 4, data[0] & 8);
    fv_tokenizer_free(tok);
    return 0;
}
