/* Base64 with its padding, in one piece. */
#include "text/base64.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c) {
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

bool fv_text_base64_read(const char *text, size_t n, unsigned char *out, size_t *bytes) {
    uint32_t bits = 0;
    int held = 0;
    size_t at = 0;
    if (n % 4) return false;
    for (int pad = 0; pad < 2 && n && text[n - 1] == '='; pad++) n--;
    for (size_t i = 0; i < n; i++) {
        const int v = value_of(text[i]);
        if (v < 0) return false;
        bits = bits << 6 | (uint32_t)v;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out[at++] = (unsigned char)(bits >> held);
    }
    *bytes = at;
    return true;
}

void fv_text_base64_write(const unsigned char *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i += 3, out += 4) {
        const size_t k = n - i < 3 ? n - i : 3;
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++) bits = bits << 8 | (j < k ? bytes[i + j] : 0);
        for (size_t j = 0; j < 4; j++) out[j] = j <= k ? letters[bits >> (18 - 6 * j) & 63] : '=';
    }
}
