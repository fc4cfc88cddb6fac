/* The page is complete, includes its data, and accesses no network. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "eval/suite/page.h"

static char path[512];

static char *page_of(const char *policy) {
    char *text;
    size_t n;
    json_t *json = json_pack("{s:[{s:s}]}", "results", "policy", policy);
    snprintf(path, sizeof path, "%s/page-%d.html", FOVEA_TEST_TMP, (int)getpid());
    cr_assert_eq(fv_page_write(path, json), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_file_read(path, 1 << 22, &text, &n), FV_OK, "%s", fv_last_error());
    json_decref(json);
    unlink(path);
    return text;
}

Test(page, holds_the_results_and_ends_where_it_should) {
    char *text = page_of("exact");
    cr_assert_eq(strncmp(text, "<!doctype html>", 15), 0);
    cr_assert(strstr(text, "const data = {\"results\":[{\"policy\":\"exact\"}]};"));
    cr_assert_null(strstr(text, "/*RESULTS*/"));
    cr_assert(strstr(text, "</html>"));
    free(text);
}

Test(page, no_text_ends_its_script) {
    char *text = page_of("</script><script>alert(1)</script>");
    cr_assert(strstr(text, "\"<\\/script><script>alert(1)<\\/script>\""));
    char *first = strstr(text, "</script>");
    cr_assert_null(strstr(first + 1, "</script>"), "one script, one end");
    free(text);
}

Test(page, needs_nothing_from_the_network) {
    static const char *const ways[] = {"src=", "href=", "@import", "url(", "fetch(", "https:"};
    char *text = page_of("exact");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        cr_assert_null(strstr(text, ways[i]), "%s", ways[i]);
    free(text);
}

Test(page, says_when_it_cannot_be_written) {
    json_t *json = json_object();
    cr_assert_eq(fv_page_write("/nowhere/at/all.html", json), FV_EIO);
    cr_assert(strstr(fv_last_error(), "/nowhere/at/all.html"));
    json_decref(json);
}
