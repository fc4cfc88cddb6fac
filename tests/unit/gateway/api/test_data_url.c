/* gateway/api/data_url.h */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/data_url.h"

static ProtobufCBinaryData got;

static void end(void) { free(got.data); }

TestSuite(data_url, .fini = end);

static fv_status read_pieces(const char *url, bool video, size_t piece) {
    fv_data_url u;
    fv_status st = FV_OK;
    free(got.data);
    got.data = NULL;
    fv_data_url_begin(&u, video);
    for (size_t at = 0, n = strlen(url); st == FV_OK && at < n; at += piece)
        st = fv_data_url_feed(&u, url + at, piece < n - at ? piece : n - at);
    if (st == FV_OK) st = fv_data_url_end(&u, &got);
    fv_data_url_drop(&u);
    return st;
}

static fv_status read_url(const char *url) { return read_pieces(url, false, 1000); }

Test(data_url, bytes_come_back_whatever_their_number) {
    static const char *const urls[] = {
        "data:image/png;base64,AA==", "data:image/png;base64,AAE=", "data:image/png;base64,AAEC",
        "data:image/png;base64,AAECAw==", "DATA:Image/webp;x=y;BASE64,AAECAwT/",
        /* as clients send it: no padding, blanks and line breaks, the alphabet of URLs, any type */
        "data:image/png;base64,AA", "data:image/jpg;base64,AAE", "data:;base64,AAEC",
        "data:text/html;base64,AAE\r\nCAw =\n= ", "data:image/png;base64,\n\tAAECAwT_ \n"};
    static const uint8_t bytes[] = {0, 1, 2, 3, 4, 255};
    static const size_t n[] = {1, 2, 3, 4, 6, 1, 2, 3, 4, 6};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        cr_assert_eq(read_url(urls[i]), FV_OK, "%s: %s", urls[i], fv_last_error());
        cr_assert_eq(got.len, n[i]);
        cr_assert_eq(memcmp(got.data, bytes, n[i]), 0);
        for (size_t piece = 1; piece < 9; piece++) {
            cr_assert_eq(read_pieces(urls[i], false, piece), FV_OK);
            cr_assert(got.len == n[i] && memcmp(got.data, bytes, n[i]) == 0, "%zu", piece);
        }
    }
}

Test(data_url, anything_else_is_refused_with_a_reason) {
    static const struct {
        const char *url, *word;
    } cases[] = {
        {"", "data:"},
        {"http://host/a.png", "data:"},
        {"file:///etc/passwd", "data:"},
        {"data:", "base64"},
        {"data:,", "base64"},
        {"data:image/png,AAAA", "base64"},
        {"data:base64,AAAA", "base64"},
        {"data:image/png;base64,", "empty"},
        {"data:image/png;base64, \n", "empty"},
        {"data:image/png;base64,A", "truncated"},
        {"data:image/png;base64,AAECA", "truncated"},
        {"data:image/png;base64,AA=", "3 characters"},
        {"data:image/png;base64,AA= \n", "3 characters"},
        {"data:image/png;base64,AA==AAAA", "not valid"},
        {"data:image/png;base64,AA==AA==", "not valid"},
        {"data:image/png;base64,AAA=====", "not valid"},
        {"data:image/png;base64,AA=A", "not valid"},
        {"data:image/png;base64,A===", "not valid"},
        {"data:image/png;base64,AA*A", "not valid"},
        {"data:image/png;base64,AA\vA", "not valid"},
        {"data:image/png;base64,AB==", "corrupt"},
        {"data:image/png;base64,AAF=", "corrupt"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(read_url(cases[i].url), FV_EINVAL, "%s", cases[i].url);
        cr_assert(strstr(fv_last_error(), cases[i].word), "%s: %s", cases[i].url, fv_last_error());
        for (size_t piece = 1; piece < 9; piece++) {
            cr_assert_eq(read_pieces(cases[i].url, false, piece), FV_EINVAL);
            cr_assert(strstr(fv_last_error(), cases[i].word), "%s", cases[i].url);
        }
    }
}

Test(data_url, a_media_type_that_lies_is_no_reason_to_refuse) {
    static const char *const urls[] = {"data:video/mp4;base64,AAEC", "data:image/gif;base64,AAEC",
                                       "data:image/png;base64,AAEC", "data:audio/mp4;base64,AAEC"};
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(read_pieces(urls[i / 2], i % 2, 4), FV_OK);
        cr_assert_eq(got.len, 3);
    }
}

Test(data_url, a_head_without_an_end_is_not_kept) {
    static char url[3 * FV_DATA_URL_HEAD_MAX];
    memset(url, 'x', sizeof url - 1);
    memcpy(url, "data:image/png;", 15);
    for (size_t piece = 1; piece < sizeof url; piece *= 3) {
        cr_assert_eq(read_pieces(url, false, piece), FV_EINVAL);
        cr_assert(strstr(fv_last_error(), "base64"), "%s", fv_last_error());
    }
}
