/* Serves the page at /: plain files, compiled into the program. */
#include <string.h>

#include "gateway/internal.h"
#include "page_answer_js.h"
#include "page_api_js.h"
#include "page_chat_js.h"
#include "page_diff_js.h"
#include "page_dom_js.h"
#include "page_elsewhere_js.h"
#include "page_example_png.h"
#include "page_fleet_js.h"
#include "page_images_js.h"
#include "page_index_html.h"
#include "page_overlay_js.h"
#include "page_page_css.h"
#include "page_page_js.h"
#include "page_policy_js.h"

#define SCRIPT(name)                                                                               \
    { "/" #name ".js", "text/javascript", page_##name##_js, &page_##name##_js_size }

static const struct file {
    const char *path, *type;
    const uint8_t *bytes;
    const uint64_t *n;
} files[] = {
    {"/", "text/html; charset=utf-8", page_index_html, &page_index_html_size},
    {"/page.css", "text/css", page_page_css, &page_page_css_size},
    {"/example.png", "image/png", page_example_png, &page_example_png_size},
    SCRIPT(page),
    SCRIPT(answer),
    SCRIPT(api),
    SCRIPT(chat),
    SCRIPT(diff),
    SCRIPT(dom),
    SCRIPT(elsewhere),
    SCRIPT(fleet),
    SCRIPT(images),
    SCRIPT(overlay),
    SCRIPT(policy),
};

static const struct file *find(const char *path) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].path, path) == 0) return &files[i];
    return NULL;
}

bool fv_is_page(const char *path) { return find(path) != NULL; }

void fv_show_page(fv_gateway *g, fv_http_request *r) {
    const struct file *f = find(fv_http_path(r));
    (void)g;
    fv_http_add(r, "Content-Security-Policy",
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    fv_http_add(r, "Referrer-Policy", "no-referrer");
    fv_http_add(r, "Cache-Control", "no-cache"); /* a newer program has a newer page */
    fv_http_reply(r, 200, f->type, (const char *)f->bytes, *f->n);
}
