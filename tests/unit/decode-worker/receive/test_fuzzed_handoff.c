/* The seed corpus of the hand-off fuzzer still arrives. A seed refused at its first section,
 * because the format has changed, would find nothing any more. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "tests/support/fuzzed_handoff.h"
#include "tests/support/handoff.h"
#include "tests/support/stream.h"

Test(fuzzed_handoff, what_the_fuzzer_starts_from_arrives) {
    static const char *const good[] = {
        "exact",        "exact_by_layer", "ragged",         "ragged_by_layer", "packed",
        "packed_8_4",   "coded",          "merged",         "latent",          "latent_fewer",
        "latent_own",   "latent_exact",   "text_only_rows", "text_codes",      "grid",
        "latent_coded", "state"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char path[512];
        fv_kv_pool *pool;
        fv_receiver *r;
        fv_received got;
        char *bytes;
        size_t n;
        snprintf(path, sizeof path, FOVEA_TEST_DATA "/fuzz/corpus/kv_packet/%s", good[i]);
        cr_assert_eq(fv_file_read(path, 1 << 16, &bytes, &n), FV_OK, "%s", fv_last_error());
        fv_hello hello = fuzzed_hello_of((uint8_t)bytes[0]);
        fuzzed_open((uint8_t)bytes[0], &pool, &r);
        rig_put_right((uint8_t *)bytes + 1, n - 1, hello.compat.hash);
        cr_assert_eq(rig_deliver(r, &hello, (uint8_t *)bytes + 1, n - 1, 500, &got), FV_OK,
                     "%s: %s", good[i], fv_last_error());
        fv_received_free(&got);
        free(bytes);
        fv_receiver_close(r);
        fv_kv_pool_close(pool);
    }
}
