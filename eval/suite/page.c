/* Writes the template with JSON in place of its data. "</" in a text would end the script, so each
 * "/" after a "<" is escaped; all characters outside ASCII are escaped too. */
#include "eval/suite/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fovea_page.h"

static const char MARK[] = "/*RESULTS*/null";

static void write_json(FILE *f, const char *json) {
    for (const char *at = json; *at; at++) {
        if (at[0] == '/' && at > json && at[-1] == '<')
            fputs("\\/", f);
        else
            fputc(*at, f);
    }
}

static fv_status write_page(FILE *f, const char *json, const char *path) {
    const char *page = (const char *)fovea_page;
    const char *item_score = memmem(page, fovea_page_size, MARK, strlen(MARK));
    if (!item_score) return FV_FAIL(FV_EINVAL, "the page's template has no place for results");
    const char *rest = item_score + strlen(MARK);
    fwrite(page, 1, (size_t)(item_score - page), f);
    write_json(f, json);
    fwrite(rest, 1, fovea_page_size - (size_t)(rest - page), f);
    return ferror(f) ? FV_FAIL(FV_EIO, "cannot write %s", path) : FV_OK;
}

fv_status fv_page_write(const char *path, const json_t *results) {
    char *json = json_dumps(results, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for the page");
    FILE *f = fopen(path, "w");
    fv_status st = f ? write_page(f, json, path)
                     : FV_FAIL(FV_EIO, "cannot write %s: %s", path, strerror(errno));
    if (f && fclose(f) != 0 && st == FV_OK) st = FV_FAIL(FV_EIO, "cannot write %s", path);
    free(json);
    return st;
}
