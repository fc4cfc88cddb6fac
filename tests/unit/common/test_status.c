/* common/status: codes, the message of the last failure, FV_TRY and FV_TRY_GOTO. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/status.h"

static int calls_after_try;

static fv_status pass_up(fv_status s) {
    FV_TRY(s);
    calls_after_try++;
    return FV_OK;
}

static fv_status release_in_order(fv_status s, int *released) {
    fv_status st = FV_OK;
    FV_TRY_GOTO(s, st, out);
    *released += 10;
out:
    *released += 1;
    return st;
}

Test(status, every_code_has_its_own_name) {
    for (int i = 0; i < FV_N_STATUS; i++) {
        cr_assert_not_null(fv_status_name((fv_status)i));
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(fv_status_name((fv_status)i), fv_status_name((fv_status)j));
    }
    cr_assert_str_eq(fv_status_name(FV_OK), "OK");
    cr_assert_str_eq(fv_status_name(FV_EBUSY), "EBUSY");
}

Test(status, an_unknown_code_has_a_name) {
    cr_assert_str_eq(fv_status_name(FV_N_STATUS), "UNKNOWN");
    cr_assert_str_eq(fv_status_name((fv_status)-1), "UNKNOWN");
}

Test(status, there_is_no_sentence_before_the_first_failure) {
    cr_assert_str_eq(fv_last_error(), "");
    cr_assert_str_eq(fv_last_error_where(), "");
}

Test(status, a_failure_leaves_its_code_its_sentence_and_its_line) {
    fv_status st = FV_FAIL(FV_EINVAL, "image %dx%d: sides must be 28..4096", 3, 5);
    int line = __LINE__ - 1;
    char where[32];
    snprintf(where, sizeof where, "test_status.c:%d", line);
    cr_assert_eq(st, FV_EINVAL);
    cr_assert_str_eq(fv_last_error(), "image 3x5: sides must be 28..4096");
    cr_assert_not_null(strstr(fv_last_error_where(), where));
}

Test(status, the_next_failure_replaces_the_sentence) {
    (void)FV_FAIL(FV_EIO, "the first");
    (void)FV_FAIL(FV_EDATA, "the second");
    cr_assert_str_eq(fv_last_error(), "the second");
}

Test(status, a_sentence_may_quote_the_one_before_it) {
    (void)FV_FAIL(FV_EIO, "disk is full");
    (void)FV_FAIL(FV_EIO, "cannot save: %s", fv_last_error());
    cr_assert_str_eq(fv_last_error(), "cannot save: disk is full");
}

Test(status, a_prefix_goes_before_the_sentence_and_keeps_where_it_was_born) {
    (void)FV_FAIL(FV_EDATA, "no such key");
    char where[128];
    snprintf(where, sizeof where, "%s", fv_last_error_where());
    cr_assert_eq(fv_fail_prefix(FV_EDATA, "file %d", 7), FV_EDATA);
    cr_assert_str_eq(fv_last_error(), "file 7: no such key");
    cr_assert_str_eq(fv_last_error_where(), where);
}

Test(status, a_sentence_that_is_too_long_is_cut_and_terminated) {
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    (void)FV_FAIL(FV_EINVAL, "%s", big);
    size_t n = strlen(fv_last_error());
    cr_assert_gt(n, 500);
    cr_assert_lt(n, sizeof big - 1);
    (void)fv_fail_prefix(FV_EINVAL, "prefix");
    cr_assert_eq(strncmp(fv_last_error(), "prefix: xxx", 11), 0);
    (void)fv_fail_prefix(FV_EINVAL, "%s", big);
    cr_assert_eq(strlen(fv_last_error()), n);
}

Test(status, what_others_wrote_steers_no_terminal) {
    (void)FV_FAIL(FV_EDATA, "tensor \"%s\" of %s", "a\x1b[2Jb\x7f\r\nc\x01",
                  "caf\xc3\xa9\xc2\x9b\xc2\xa0");
    cr_assert_str_eq(fv_last_error(), "tensor \"a?[2Jb?  c?\" of caf\xc3\xa9??\xc2\xa0");
    (void)fv_fail_prefix(FV_EDATA, "\x1b%s", "f");
    cr_assert_eq(strncmp(fv_last_error(), "?f: tensor", 10), 0);
}

Test(status, try_returns_a_failure_and_goes_on_after_success) {
    cr_assert_eq(pass_up(FV_ENOTFOUND), FV_ENOTFOUND);
    cr_assert_eq(calls_after_try, 0);
    cr_assert_eq(pass_up(FV_OK), FV_OK);
    cr_assert_eq(calls_after_try, 1);
}

Test(status, try_goto_jumps_to_the_release_with_the_code) {
    int released = 0;
    cr_assert_eq(release_in_order(FV_EIO, &released), FV_EIO);
    cr_assert_eq(released, 1);
    cr_assert_eq(release_in_order(FV_OK, &released), FV_OK);
    cr_assert_eq(released, 12);
}

static void *fail_elsewhere(void *first) {
    *(char *)first = fv_last_error()[0];
    (void)FV_FAIL(FV_EIO, "of the other thread");
    return NULL;
}

Test(status, each_thread_has_its_own_sentence) {
    (void)FV_FAIL(FV_EINVAL, "of this thread");
    char first = 'x';
    pthread_t t;
    cr_assert_eq(pthread_create(&t, NULL, fail_elsewhere, &first), 0);
    pthread_join(t, NULL);
    cr_assert_eq(first, '\0');
    cr_assert_str_eq(fv_last_error(), "of this thread");
}

Test(status, some_ends_are_no_failure_of_whoever_was_asked) {
    cr_assert(fv_status_is_callers(FV_EINVAL) && fv_status_is_callers(FV_EUNSUPPORTED));
    cr_assert(fv_status_is_callers(FV_ENOTFOUND) && fv_status_is_callers(FV_ECANCELLED));
    cr_assert_not(fv_status_is_callers(FV_OK) || fv_status_is_callers(FV_EDATA));
    cr_assert_not(fv_status_is_callers(FV_EIO) || fv_status_is_callers(FV_EDEVICE));
    cr_assert_not(fv_status_is_callers(FV_EDEADLINE) || fv_status_is_callers(FV_EBUSY));
}

Test(status, a_failure_has_the_origin_that_was_said_nearest_to_the_fault) {
    FV_FAIL(FV_EDATA, "a");
    cr_assert_eq(fv_last_origin(), FV_ORIGIN_UNSTATED);
    cr_assert_eq(fv_fail_origin(FV_EDATA, FV_ORIGIN_CHECKPOINT), FV_EDATA);
    cr_assert_eq(fv_fail_origin(FV_EDATA, FV_ORIGIN_WORKER), FV_EDATA);
    fv_fail_prefix(FV_EDATA, "b");
    cr_assert_eq(fv_last_origin(), FV_ORIGIN_CHECKPOINT);
    cr_assert_eq(fv_fail_caller(FV_EDATA), FV_EDATA, "it is the checkpoint's");
    FV_FAIL(FV_EIO, "c");
    cr_assert_eq(fv_last_origin(), FV_ORIGIN_UNSTATED, "another failure");
    cr_assert_eq(fv_fail_origin(FV_OK, FV_ORIGIN_WORKER), FV_OK);
    cr_assert_eq(fv_last_origin(), FV_ORIGIN_UNSTATED);
}

Test(status, bytes_of_a_caller_that_are_wrong_are_an_invalid_argument) {
    static const struct {
        fv_status st, told;
        fv_origin origin;
    } cases[] = {{FV_EINVAL, FV_EINVAL, FV_ORIGIN_CALLER},
                 {FV_EDATA, FV_EINVAL, FV_ORIGIN_CALLER},
                 {FV_EUNSUPPORTED, FV_EINVAL, FV_ORIGIN_CALLER},
                 {FV_ENOTFOUND, FV_EINVAL, FV_ORIGIN_CALLER},
                 {FV_EDEADLINE, FV_EDEADLINE, FV_ORIGIN_CALLER},
                 {FV_ENOMEM, FV_ENOMEM, FV_ORIGIN_UNSTATED},
                 {FV_EBUSY, FV_EBUSY, FV_ORIGIN_UNSTATED},
                 {FV_EDEVICE, FV_EDEVICE, FV_ORIGIN_UNSTATED},
                 {FV_EIO, FV_EIO, FV_ORIGIN_UNSTATED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(fv_fail_caller(FV_FAIL(cases[i].st, "x")), cases[i].told);
        cr_assert_eq(fv_last_origin(), cases[i].origin, "%s", fv_status_name(cases[i].st));
    }
    cr_assert_eq(fv_fail_caller(FV_OK), FV_OK);
}

Test(status, a_failure_that_is_kept_comes_back_with_sentence_and_origin) {
    fv_error e;
    fv_error_take(&e, fv_fail_origin(FV_FAIL(FV_EDATA, "layer 3: checksum"), FV_ORIGIN_HANDOFF));
    FV_FAIL(FV_EIO, "another one");
    cr_assert_eq(fv_error_raise(&e), FV_EDATA);
    cr_assert_str_eq(fv_last_error(), "layer 3: checksum");
    cr_assert_eq(fv_last_origin(), FV_ORIGIN_HANDOFF);
    fv_error_take(&e, FV_OK);
    cr_assert_eq(fv_error_raise(&e), FV_OK);
}

Test(status, origins_are_known_by_their_names) {
    for (int o = 0; o < FV_N_ORIGIN; o++) {
        const char *name = fv_origin_name((fv_origin)o);
        cr_assert_eq(fv_origin_named(name, strlen(name)), o);
    }
    cr_assert_eq(fv_origin_named("callers", 7), FV_ORIGIN_UNSTATED);
    cr_assert_str_eq(fv_origin_name(FV_N_ORIGIN), "");
}
