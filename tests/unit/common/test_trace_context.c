/* common/trace_context.c */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/trace_context.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static bool parse(const char *text, fv_trace_context *t) {
    return fv_trace_parse(text, strlen(text), t);
}

Test(trace_context, a_valid_header_is_read_and_written_again) {
    fv_trace_context t;
    char text[FV_TRACE_TEXT + 1], id[2 * FV_TRACE_ID_BYTES + 1];
    cr_assert(parse("00-" TRACE "-" SPAN "-01", &t));
    cr_assert(t.sampled);
    cr_assert_eq(t.trace_id[0], 0x0a);
    cr_assert_eq(t.span_id[7], 0x31);
    fv_trace_print(&t, text);
    cr_assert_str_eq(text, "00-" TRACE "-" SPAN "-01");
    fv_trace_id_print(&t, id);
    cr_assert_str_eq(id, TRACE);
}

Test(trace_context, other_flags_than_sampled_are_left_out) {
    fv_trace_context t;
    char text[FV_TRACE_TEXT + 1];
    cr_assert(parse("00-" TRACE "-" SPAN "-fe", &t));
    cr_assert_not(t.sampled);
    fv_trace_print(&t, text);
    cr_assert_str_eq(text, "00-" TRACE "-" SPAN "-00");
}

Test(trace_context, a_later_version_is_read_as_far_as_it_is_known) {
    fv_trace_context t;
    cr_assert(parse("cc-" TRACE "-" SPAN "-01", &t));
    cr_assert(parse("cc-" TRACE "-" SPAN "-01-what-follows", &t));
    cr_assert_not(parse("cc-" TRACE "-" SPAN "-01.what-follows", &t));
}

Test(trace_context, anything_else_is_no_header) {
    static const char *const wrong[] = {
        "",
        "00",
        "ff-" TRACE "-" SPAN "-01",
        "00-" TRACE "-" SPAN "-01-more",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-0g",
        "00_" TRACE "-" SPAN "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_trace_context t = {.sampled = true};
        cr_assert_not(parse(wrong[i], &t), "%s", wrong[i]);
        cr_assert_not(fv_trace_known(&t));
        cr_assert_not(t.sampled);
    }
}

Test(trace_context, every_prefix_is_refused) {
    static const char text[] = "00-" TRACE "-" SPAN "-01";
    fv_trace_context t;
    for (size_t n = 0; n < FV_TRACE_TEXT; n++) {
        char *copy = strndup(text, n); /* so that reading past it is detected */
        cr_assert_not(fv_trace_parse(copy, n, &t));
        free(copy);
    }
}

Test(trace_context, without_a_trace_there_is_no_id) {
    fv_trace_context t = {0};
    char id[2 * FV_TRACE_ID_BYTES + 1] = "x";
    fv_trace_id_print(&t, id);
    cr_assert_str_empty(id);
}
