/* text/calls/thinking: the parts of an answer, in pieces of any size. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/calls/thinking.h"

TestSuite(thinking, .timeout = 240);

typedef struct parts {
    FILE *f[2];
} parts;

static fv_status on_part(void *user, bool thought, const char *text, size_t n) {
    cr_assert_gt(n, 0);
    fwrite(text, 1, n, ((parts *)user)->f[thought]);
    return FV_OK;
}

static void expect(const char *form, bool open, const char *text, const char *thought,
                   const char *rest) {
    const size_t n = strlen(text);
    for (size_t size = 1; size < 20; size++) {
        char *got[2];
        size_t n_got[2];
        parts p;
        for (int i = 0; i < 2; i++) p.f[i] = open_memstream(&got[i], &n_got[i]);
        fv_thinking t = fv_thinking_begin(fv_thinking_form_named(form), open);
        for (size_t at = 0; at < n; at += size)
            cr_assert_eq(
                fv_thinking_feed(&t, text + at, n - at < size ? n - at : size, on_part, &p), FV_OK);
        cr_assert_eq(fv_thinking_end(&t, on_part, &p), FV_OK);
        for (int i = 0; i < 2; i++) fclose(p.f[i]);
        cr_assert_str_eq(got[1], thought, "%s in pieces of %zu", text, size);
        cr_assert_str_eq(got[0], rest, "%s in pieces of %zu", text, size);
        free(got[0]);
        free(got[1]);
    }
}

Test(thinking, parts) {
    expect("think", false, "<think>\nIt is red.\n</think>\n\nRed.\n", "It is red.", "Red.\n");
    expect("think", true, "It is  red.\n\n</think>\n\nRed.", "It is  red.", "Red.");
    expect("think", false, "\n<think>\n\n</think>\n\nRed.", "", "Red.");
    expect("mistral", false, "[THINK]a [b] c[/THINK]d", "a [b] c", "d");
    expect("think", true, "a < b <</think>c", "a < b <", "c");
}

Test(thinking, without_it) {
    expect("think", false, "Red.", "", "Red.");
    expect("think", false, "  Red <think>no</think>", "", "  Red <think>no</think>");
    expect("think", false, "<thin", "", "<thin");
    expect("think", false, "", "", "");
}

Test(thinking, cut_off) {
    expect("think", true, "It is \n", "It is", "");
    expect("think", true, "It is </thi", "It is </thi", "");
    expect("think", false, "<think>", "", "");
}

Test(thinking, long_space_is_kept) {
    char text[600], thought[600];
    memset(text, ' ', 500);
    text[0] = 'a';
    strcpy(text + 500, "b</think>c");
    memset(thought, ' ', 500);
    thought[0] = 'a';
    strcpy(thought + 500, "b");
    expect("think", true, text, thought, "c");
}

Test(thinking, prompts_that_end_inside) {
    static const char prompt[] = "user: <think>\nassistant: <think>\n";
    unsigned char user[sizeof prompt] = {0};
    const fv_thinking_form *f = fv_thinking_form_named("think");
    cr_assert_eq(fv_thinking_after(f, prompt, user, strlen(prompt)), FV_REASONING_OPEN);
    cr_assert_eq(fv_thinking_after(f, prompt, user, strlen(prompt) - 3), FV_REASONING_MAY);
    memset(user, 1, sizeof user);
    cr_assert_eq(fv_thinking_after(f, prompt, user, strlen(prompt)), FV_REASONING_MAY);
    cr_assert_eq(fv_thinking_after(f, "", user, 0), FV_REASONING_MAY);
    cr_assert_eq(fv_thinking_after(f, "a</think>\n\n", (unsigned char[11]){0}, 11),
                 FV_REASONING_OVER);
    cr_assert_eq(fv_thinking_form_of_template("{{ '<think>' }}"), f);
    cr_assert_null(fv_thinking_form_of_template("{{ messages }}"));
}
