/* Matches expressions that are not matched by hand with Oniguruma, which the reference uses too, so that
 * syntax and Unicode classes agree. The distribution's library may know an older Unicode than
 * the reference's, which differs in characters that were added since. A compiled expression is
 * immutable: any thread may match with it. */
#include <oniguruma.h>
#include <pthread.h>

#include "text/tokenizer_internal.h"

enum { REGEX_BYTES_MAX = 1 << 14, RETRIES_MAX = 10000000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void initialize(void) {
    OnigEncoding encoding = ONIG_ENCODING_UTF8;
    onig_initialize(&encoding, 1);
    onig_set_retry_limit_in_search(RETRIES_MAX);
}

fv_status fv_tok_regex_open(const char *regex, size_t n, const char *where,
                            struct re_pattern_buffer **out) {
    const OnigUChar *s = (const OnigUChar *)regex;
    OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN] = "it is too long";
    OnigErrorInfo info;
    pthread_once(&once, initialize);
    int error = ONIG_MISMATCH;
    if (n <= REGEX_BYTES_MAX)
        error = onig_new(out, s, s + n, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT,
                         &info);
    if (error == ONIG_NORMAL) return FV_OK;
    if (error != ONIG_MISMATCH) onig_error_code_to_str(why, error, &info);
    return FV_FAIL(FV_EUNSUPPORTED, "%s: the tokenizer's expression '%.400s': %s", where, regex,
                   (const char *)why);
}

void fv_tok_regex_free(struct re_pattern_buffer *regex) {
    if (regex) onig_free(regex);
}

fv_status fv_tok_regex_find(struct re_pattern_buffer *regex, const char *s, size_t n, size_t at,
                            size_t *start, size_t *end) {
    const OnigUChar *text = (const OnigUChar *)s;
    OnigRegion region = {0};
    int found = onig_search(regex, text, text + n, text + at, text + n, &region, ONIG_OPTION_NONE);
    if (found >= 0) {
        *start = (size_t)region.beg[0];
        *end = (size_t)region.end[0];
    } else {
        *start = *end = n;
    }
    onig_region_free(&region, 0);
    if (found >= 0 || found == ONIG_MISMATCH) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "an expression of the tokenizer needs too many steps on a text of %zu bytes: "
                   "shorten the text",
                   n);
}
