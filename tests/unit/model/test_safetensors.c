/* model/safetensors: valid files, and all kinds of invalid ones. Inputs are copied to blocks
 * of exactly their size, so that AddressSanitizer detects reading past the end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

typedef struct bytes {
    unsigned char *data;
    size_t n;
} bytes;

/* Length, header, and `data_bytes` bytes 0, 1, 2, ... */
static bytes file_of(const char *header, size_t data_bytes) {
    size_t h = strlen(header);
    bytes b = {malloc(8 + h + data_bytes), 8 + h + data_bytes};
    for (size_t i = 0; i < 8; i++) b.data[i] = (unsigned char)(h >> 8 * i);
    memcpy(b.data + 8, header, h);
    for (size_t i = 0; i < data_bytes; i++) b.data[8 + h + i] = (unsigned char)i;
    return b;
}

static fv_safetensors *parse(bytes b) {
    fv_safetensors *st = NULL;
    cr_assert_eq(fv_safetensors_parse(b.data, b.n, "x.safetensors", &st), FV_OK, "%s",
                 fv_last_error());
    return st;
}

static void refuse_bytes(bytes b, const char *words) {
    fv_safetensors *st = NULL;
    cr_assert_eq(fv_safetensors_parse(b.data, b.n, "x.safetensors", &st), FV_EDATA, "accepted: %s",
                 words);
    cr_assert_null(st);
    cr_assert_eq(strncmp(fv_last_error(), "x.safetensors: ", 15), 0, "%s", fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static void refuse(const char *header, size_t data_bytes, const char *words) {
    bytes b = file_of(header, data_bytes);
    refuse_bytes(b, words);
    free(b.data);
}

static const char two[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                          "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[4,12]},"
                          "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}";

Test(safetensors, tensors_keep_their_order_shape_and_bytes) {
    bytes b = file_of(two, 12);
    fv_safetensors *st = parse(b);
    cr_assert_eq(fv_safetensors_count(st), 2);
    const fv_safetensors_entry *e = fv_safetensors_at(st, 0);
    cr_assert_str_eq(e->name, "b");
    cr_assert_str_eq(e->dtype, "F32");
    cr_assert_eq(e->n_dim, 2);
    cr_assert_eq(e->shape[0], 2);
    cr_assert_eq(e->shape[1], 1);
    cr_assert_eq(e->bytes, 8);
    cr_assert_eq(*(const unsigned char *)e->data, 4);
    cr_assert_str_eq(fv_safetensors_at(st, 1)->name, "a");
    fv_safetensors_free(st);
    free(b.data);
}

Test(safetensors, tensors_are_found_by_name) {
    bytes b = file_of(two, 12);
    fv_safetensors *st = parse(b);
    cr_assert_eq(fv_safetensors_find(st, "a"), fv_safetensors_at(st, 1));
    cr_assert_eq(fv_safetensors_find(st, "b"), fv_safetensors_at(st, 0));
    cr_assert_null(fv_safetensors_find(st, "c"));
    cr_assert_null(fv_safetensors_find(st, "__metadata__"));
    fv_safetensors_free(st);
    free(b.data);
}

Test(safetensors, a_file_without_tensors_is_legal) {
    bytes b = file_of("{}", 0);
    fv_safetensors *st = parse(b);
    cr_assert_eq(fv_safetensors_count(st), 0);
    cr_assert_null(fv_safetensors_find(st, "a"));
    fv_safetensors_free(st);
    free(b.data);
}

Test(safetensors, scalars_and_empty_tensors_are_legal) {
    bytes b = file_of("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                      "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                      "\"f\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]}}   ",
                      4);
    fv_safetensors *st = parse(b);
    cr_assert_eq(fv_safetensors_find(st, "s")->n_dim, 0);
    cr_assert_eq(fv_safetensors_find(st, "e")->bytes, 0);
    fv_safetensors_free(st);
    free(b.data);
}

Test(safetensors, dtypes_that_we_do_not_compute_with_are_listed) {
    bytes b = file_of("{\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                      "\"q\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[8,11]},"
                      "\"n\":{\"dtype\":\"NEW_7\",\"shape\":[9],\"data_offsets\":[11,12]}}",
                      12);
    fv_safetensors *st = parse(b);
    cr_assert_str_eq(fv_safetensors_find(st, "n")->dtype, "NEW_7");
    fv_safetensors_free(st);
    free(b.data);
}

Test(safetensors, a_header_of_any_length_is_legal) {
    char header[256];
    for (int pad = 0; pad < 9; pad++) {
        snprintf(header, sizeof header, "%s%*s", two, pad, "");
        bytes b = file_of(header, 12);
        fv_safetensors *st = parse(b);
        cr_assert_eq((const unsigned char *)fv_safetensors_find(st, "a")->data,
                     b.data + 8 + strlen(header));
        fv_safetensors_free(st);
        free(b.data);
    }
}

Test(safetensors, every_truncation_is_refused) {
    bytes whole = file_of(two, 12);
    for (size_t n = 0; n < whole.n; n++) {
        bytes b = {malloc(n ? n : 1), n};
        memcpy(b.data, whole.data, n);
        refuse_bytes(b, n < 8 ? "too few" : "");
        free(b.data);
    }
    free(whole.data);
}

Test(safetensors, a_header_longer_than_the_file_is_refused) {
    static const unsigned char lengths[][8] = {
        {4, 0, 0, 0, 0, 0, 0, 0},                         /* one more than there is */
        {0, 0, 0, 16, 0, 0, 0, 0},                        /* over the bound */
        {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, /* would overflow 8 + N */
        {0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F},
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        bytes b = file_of("{} ", 0);
        memcpy(b.data, lengths[i], 8);
        refuse_bytes(b, "does not fit a file of 11");
        free(b.data);
    }
}

Test(safetensors, a_header_that_is_no_json_object_is_refused) {
    refuse("", 0, "the header is empty");
    refuse("[]", 0, "a JSON object is expected");
    refuse("{\"a\":{\"b\":1}", 0, "tensor 'a' has no valid dtype");
    refuse("{\"__metadata__\":{}", 0, "not valid JSON");
    refuse("{\"a\":1}", 0, "header entry 'a' must be an object");
    refuse("{\"a\" 1}", 0, "not valid JSON at byte 5: ':' is expected");
    refuse("{\"__metadata__\":{} \"b\":{}}", 0, "not valid JSON");
    refuse("{\"a\":{]}", 0, "not valid JSON");
    refuse("{\"a\":{\"b\":1,\"b\":1}}", 0, "duplicate object key");
    refuse("{\"a\\u0000\":{}}", 0, "a name with U+0000");
    refuse("{1:2}", 0, "a name is expected");
    refuse("{} {}", 0, "the end is expected");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__");
}

#define EMPTY "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}"

Test(safetensors, a_name_that_comes_twice_is_refused) {
    refuse("{\"a\":" EMPTY ",\"b\":" EMPTY ",\"\\u0061\":" EMPTY "}", 0,
           "tensor 'a' is in the header twice");
}

/* Parsing takes linear time: comparing all pairs would exceed this test's timeout. */
Test(safetensors, a_header_of_very_many_tensors_is_read, .timeout = 300) {
    enum { N = 400000 };
    char *header = malloc(N * (sizeof EMPTY + 20)), *at = header;
    cr_assert_not_null(header);
    for (int i = 0; i < N; i++) at += sprintf(at, "%c\"t%d\":" EMPTY, i ? ',' : '{', i);
    strcpy(at, "}");
    bytes b = file_of(header, 0);
    fv_safetensors *st;
    cr_assert_eq(fv_safetensors_parse(b.data, b.n, "x", &st), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_safetensors_count(st), N);
    cr_assert_not_null(fv_safetensors_find(st, "t399999"));
    cr_assert_null(fv_safetensors_find(st, "t400000"));
    fv_safetensors_free(st);
    free(b.data);
    free(header);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

Test(safetensors, a_wrong_dtype_is_refused) {
    refuse("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 't' has no valid dtype");
    refuse(ONE("32", "[1]", "[0,4]"), 4, "tensor 't' has no valid dtype");
    refuse(ONE("\"A_NAME_WITHOUT_END\"", "[1]", "[0,4]"), 4, "tensor 't' has no valid dtype");
}

Test(safetensors, a_wrong_shape_is_refused) {
    refuse("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape must be a list");
    refuse(ONE("\"F32\"", "1", "[0,4]"), 4, "shape must be a list");
    refuse(ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "shape must be a list of at most 8");
    refuse(ONE("\"F32\"", "[1.0]", "[0,4]"), 4, "shape holds a size that cannot be");
    refuse(ONE("\"F32\"", "[-1]", "[0,4]"), 4, "shape holds a size that cannot be");
    refuse(ONE("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "a size that cannot be");
    refuse(ONE("\"F32\"", "[2305843009213693952]", "[0,0]"), 0, "do not give its 0 bytes");
    refuse(ONE("\"F32\"", "[2]", "[0,4]"), 4, "shape and dtype F32 do not give its 4 bytes");
    refuse(ONE("\"BF16\"", "[1]", "[0,4]"), 4, "shape and dtype BF16 do not give its 4 bytes");
    refuse(ONE("\"F4\"", "[3]", "[0,1]"), 1, "shape and dtype F4 do not give its 1 bytes");
}

Test(safetensors, offsets_outside_the_data_are_refused) {
    refuse("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets must be two integers");
    refuse(ONE("\"F32\"", "[1]", "[0]"), 4, "data_offsets must be two integers");
    refuse(ONE("\"F32\"", "[1]", "[0,4,8]"), 4, "data_offsets must be two integers");
    refuse(ONE("\"F32\"", "[1]", "[0.0,4]"), 4, "data_offsets must be two integers");
    refuse(ONE("\"F32\"", "[1]", "[-4,0]"), 4, "exceed the file's 4 bytes");
    refuse(ONE("\"F32\"", "[1]", "[4,0]"), 4, "exceed the file's 4 bytes");
    refuse(ONE("\"F32\"", "[1]", "[1,5]"), 4, "exceed the file's 4 bytes");
    refuse(ONE("\"F32\"", "[1]", "[0,9223372036854775807]"), 4, "is the file truncated?");
}

Test(safetensors, holes_and_overlaps_are_refused) {
    refuse(ONE("\"F32\"", "[1]", "[4,8]"), 8, "tensor 't' leaves a hole");
    refuse(ONE("\"F32\"", "[1]", "[0,4]"), 9, "5 bytes after the last tensor");
    refuse("{}", 1, "1 bytes after the last tensor");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
           12, "tensor 'b' overlaps");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
           4, "overlaps");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
           12, "tensor 'b' leaves a hole");
}

Test(safetensors, freeing_nothing_is_fine) { fv_safetensors_free(NULL); }
