/* prefill-worker/job/prefix.h: names of a prompt's beginnings come to the links that are there. */
#include <criterion/criterion.h>
#include <string.h>

#include "prefill-worker/job/prefix.h"

/* 20 rows of text, an image of 100 rows in two runs, 150 rows of text, and an image of 50 rows at the end. */
static fv_chain_link link_of[] = {
    {.end = 20, .n_text = 20},
    {.end = 70, .n_text = 20, .n_visual = 50},
    {.end = 120, .n_text = 20, .n_visual = 100},
    {.end = 164, .n_text = 64, .n_visual = 100},
    {.end = 228, .n_text = 128, .n_visual = 100},
    {.end = 270, .n_text = 170, .n_visual = 100},
    {.end = 320, .n_text = 170, .n_visual = 150},
};
enum { LINKS = sizeof link_of / sizeof *link_of };

static fv_token_span span[] = {{.image = 0, .first = 20, .n = 50},
                               {.image = 0, .first = 70, .n = 50},
                               {.image = 1, .first = 270, .n = 50}};

static void name(const fv_prompt_end *end, int32_t n) {
    fv_prefill_job j = {.link = link_of, .n_link = LINKS};
    j.prompt.span = span;
    j.prompt.n_span = 3;
    for (int i = 0; i < LINKS; i++) link_of[i].name = 0;
    fv_prefill_job_name_links(&j, end, n);
}

/* Checks the names of the links, a digit each; 0: none. */
static void expect(const char *names) {
    for (int i = 0; i < LINKS; i++)
        cr_assert_eq(link_of[i].name, (uint64_t)(names[i] - '0'), "link %d has %d, not %c", i,
                     (int)link_of[i].name, names[i]);
}

Test(link_names, ends_of_images_are_exact_and_text_is_even) {
    const fv_prompt_end end[] = {
        {1, 1,
         80}, /* behind the first image, before which the text is longer than its tokens say */
        {2, 1, 700},
        {3, 2, 1000},
    };
    name(end, 3);
    expect("0012003");
}

Test(link_names, places_within_the_first_text_are_its_last_page_before) {
    const fv_prompt_end end[] = {{1, 0, 10}, {2, 0, 130}, {3, 2, 1000}};
    name(end, 3);
    expect("2000003");
}

Test(link_names, what_is_impossible_names_nothing_or_something_and_breaks_nothing) {
    const fv_prompt_end many[] = {{1, 7, 10}, {2, UINT32_MAX, UINT32_MAX}}, none = {1, 0, 0};
    name(many, 2);
    expect("0000002");
    name(&none, 1);
    expect("0000000");
    name(NULL, 0);
    expect("0000000");
    fv_prefill_job empty = {.n_link = 0};
    fv_prefill_job_name_links(&empty, many, 2);
}
