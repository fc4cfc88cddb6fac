/* rpc/status.c */
#include <criterion/criterion.h>
#include <string.h>

#include "rpc/status.h"

Test(rpc_status, every_status_comes_back_as_itself) {
    for (int s = 0; s < FV_N_STATUS; s++) {
        int64_t retry_ms = s == FV_EBUSY ? 100 : -1;
        cr_assert_eq(fv_rpc_status(fv_rpc_code((fv_status)s), retry_ms), (fv_status)s, "%s",
                     fv_status_name((fv_status)s));
    }
}

Test(rpc_status, only_ok_is_ok) {
    for (int code = 0; code <= 16; code++)
        cr_assert_eq(fv_rpc_status((grpc_status_code)code, -1) == FV_OK, code == GRPC_STATUS_OK);
}

Test(rpc_status, what_a_client_did_itself_reads_as_cancelled) {
    cr_assert_eq(fv_rpc_status(GRPC_STATUS_CANCELLED, -1), FV_ECANCELLED);
    cr_assert_eq(fv_rpc_status(GRPC_STATUS_DEADLINE_EXCEEDED, -1), FV_EDEADLINE);
}

Test(rpc_status, a_code_that_does_not_exist_is_an_io_failure) {
    cr_assert_eq(fv_rpc_status((grpc_status_code)99, -1), FV_EIO);
    cr_assert_str_eq(fv_rpc_code_name((grpc_status_code)99), "UNKNOWN");
    cr_assert_eq(fv_rpc_code((fv_status)99), GRPC_STATUS_UNKNOWN);
}

Test(rpc_status, codes_have_the_names_that_grpc_gives_them) {
    cr_assert_str_eq(fv_rpc_code_name(GRPC_STATUS_DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED");
    cr_assert_str_eq(fv_rpc_code_name(GRPC_STATUS_UNAUTHENTICATED), "UNAUTHENTICATED");
}

Test(rpc_status, logs_call_a_status_as_the_wire_does) {
    for (int s = -1; s <= FV_N_STATUS; s++)
        cr_assert_str_eq(fv_status_grpc_name((fv_status)s),
                         fv_rpc_code_name(fv_rpc_code((fv_status)s)));
}

Test(rpc_status, the_peers_sentence_becomes_ours_with_its_name_before_it) {
    fv_rpc_end end = {.status = FV_ENOTFOUND,
                      .code = GRPC_STATUS_NOT_FOUND,
                      .origin = FV_ORIGIN_WORKER,
                      .retry_ms = -1,
                      .text = "no such model"};
    cr_assert_eq(fv_rpc_end_status(&end, "router"), FV_ENOTFOUND);
    cr_assert_str_eq(fv_last_error(), "router: no such model");
    cr_assert_eq(fv_last_origin(), FV_ORIGIN_WORKER);
    end.text = "";
    fv_rpc_end_status(&end, "router");
    cr_assert_str_eq(fv_last_error(), "router: NOT_FOUND");
}
