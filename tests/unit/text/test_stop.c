/* text/stop.c */
#include <criterion/criterion.h>
#include <string.h>

#include "text/stop.h"

/* Pushes `text` in pieces of `step` bytes; returns whether a stop string was hit, and in `shown`
 * the emitted text. */
static bool stream(const char *const *stops, int32_t n, const char *text, size_t step,
                   char *shown) {
    fv_stop *s;
    const char *out;
    size_t n_out, len = strlen(text);
    bool hit = false;
    shown[0] = '\0';
    cr_assert_eq(fv_stop_open(stops, n, false, &s), FV_OK);
    for (size_t at = 0; at < len && !hit; at += step) {
        size_t piece = len - at < step ? len - at : step;
        cr_assert_eq(fv_stop_push(s, text + at, piece, true, &out, &n_out, &hit), FV_OK);
        strncat(shown, out, n_out);
    }
    if (!hit) {
        fv_stop_flush(s, &out, &n_out);
        strncat(shown, out, n_out);
    }
    fv_stop_close(s);
    return hit;
}

Test(stop, text_before_the_stop_is_shown_however_it_is_cut) {
    static const char *const stops[] = {"###", "\nUSER:"};
    char shown[128];
    for (size_t step = 1; step < 20; step++) {
        cr_assert(stream(stops, 2, "hello\n#\nUSER: more", step, shown));
        cr_assert_str_eq(shown, "hello\n#");
        cr_assert(stream(stops, 2, "a##b###c", step, shown));
        cr_assert_str_eq(shown, "a##b");
        cr_assert_not(stream(stops, 2, "no stop ##", step, shown));
        cr_assert_str_eq(shown, "no stop ##", "an unfinished stop is given back at the end");
    }
}

Test(stop, the_earliest_of_several_counts) {
    static const char *const stops[] = {"bcd", "b"};
    char shown[64];
    cr_assert(stream(stops, 2, "abcd", 4, shown));
    cr_assert_str_eq(shown, "a");
}

Test(stop, overlapping_beginnings_are_found) {
    static const char *const stops[] = {"aab"};
    char shown[64];
    for (size_t step = 1; step < 6; step++) {
        cr_assert(stream(stops, 1, "xaaab!", step, shown));
        cr_assert_str_eq(shown, "xa");
    }
}

Test(stop, without_stops_everything_passes_at_once) {
    fv_stop *s;
    const char *out;
    size_t n;
    bool hit;
    cr_assert_eq(fv_stop_open(NULL, 0, false, &s), FV_OK);
    cr_assert_eq(fv_stop_push(s, "abc", 3, true, &out, &n, &hit), FV_OK);
    cr_assert(n == 3 && !hit);
    cr_assert_eq(fv_stop_push(s, "", 0, true, &out, &n, &hit), FV_OK);
    cr_assert(n == 0 && !hit);
    fv_stop_close(s);
}

Test(stop, useless_stop_strings_are_refused) {
    fv_stop *s;
    const char *empty = "", *many[FV_MAX_STOP + 1];
    for (int i = 0; i <= FV_MAX_STOP; i++) many[i] = "x";
    cr_assert_eq(fv_stop_open(&empty, 1, false, &s), FV_EINVAL);
    cr_assert_eq(fv_stop_open(many, FV_MAX_STOP + 1, false, &s), FV_EINVAL);
}

/* Pushes text byte by byte; the first `no_end` bytes end nothing. */
static bool stream_from(const char *const *stops, int32_t n, bool include, const char *text,
                        size_t no_end, char *shown) {
    fv_stop *s;
    const char *out;
    size_t n_out, len = strlen(text);
    bool hit = false;
    shown[0] = '\0';
    cr_assert_eq(fv_stop_open(stops, n, include, &s), FV_OK);
    for (size_t at = 0; at < len && !hit; at++) {
        cr_assert_eq(fv_stop_push(s, text + at, 1, at >= no_end, &out, &n_out, &hit), FV_OK);
        strncat(shown, out, n_out);
    }
    if (!hit) {
        fv_stop_flush(s, &out, &n_out);
        strncat(shown, out, n_out);
    }
    fv_stop_close(s);
    return hit;
}

Test(stop, an_included_stop_string_ends_the_output) {
    const char *stops[] = {"END", "ND"};
    char shown[64];
    fv_stop *s;
    const char *out;
    size_t n;
    bool hit;
    cr_assert(stream_from(stops, 2, true, "an END of it", 0, shown));
    cr_assert_str_eq(shown, "an END");
    cr_assert_eq(fv_stop_open(stops, 1, true, &s), FV_OK);
    cr_assert_eq(fv_stop_push(s, "an ENDING", 9, true, &out, &n, &hit), FV_OK);
    cr_assert(hit && n == 6 && memcmp(out, "an END", 6) == 0, "the rest of the token is cut");
    fv_stop_close(s);
}

Test(stop, one_that_is_complete_too_early_is_text) {
    const char *stops[] = {"ab", "xaby"};
    char shown[64];
    cr_assert(!stream_from(stops, 1, false, "abab", 4, shown));
    cr_assert_str_eq(shown, "abab");
    cr_assert(stream_from(stops, 1, false, "ab ab", 2, shown));
    cr_assert_str_eq(shown, "ab ");
    cr_assert(stream_from(stops, 1, false, "aab", 2, shown), "it may begin early");
    cr_assert_str_eq(shown, "a");
    /* "xab" is held back for the second string; the "ab" in it was complete too early. */
    cr_assert(!stream_from(stops, 2, false, "xabz", 3, shown));
    cr_assert_str_eq(shown, "xabz");
    cr_assert(stream_from(stops, 2, false, "xaby", 3, shown));
    cr_assert_str_eq(shown, "");
}
