/* calibration.json: keys that are read, ignored, and preserved when the file is rewritten. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "model/calibration.h"

static const char *folder(void) {
    static char dir[512];
    snprintf(dir, sizeof dir, "%s/calibration-%d", FOVEA_TEST_TMP, (int)getpid());
    cr_assert_eq(fv_dir_make(dir), FV_OK, "%s", fv_last_error());
    return dir;
}

static void write_text(const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/calibration.json", folder());
    cr_assert_eq(fv_file_write(path, text, strlen(text)), FV_OK);
}

static fv_status read_back(fv_calibration *c) {
    return fv_calibration_read(folder(), "00ff", 4, c);
}

Test(calibration, what_was_written_is_read) {
    fv_calibration b = {0};
    cr_assert_eq(read_back(&b), FV_ENOTFOUND);
    json_t *lazy = json_pack("{s:[iiii]}", "source_layers", 0, 1, 1, 3);
    cr_assert_eq(fv_calibration_write(folder(), "00ff", "lazy", lazy), FV_OK, "%s",
                 fv_last_error());
    json_decref(lazy);
    cr_assert_eq(read_back(&b), FV_OK, "%s", fv_last_error());
    const int32_t *source_layer = b.blocks.source_layer;
    cr_assert(b.blocks.n_layer == 4 && source_layer[1] == 1 && source_layer[2] == 1 &&
              source_layer[3] == 3);
    cr_assert_not(b.has_thresholds);
    json_t *cosines =
        json_pack("{s:f, s:f, s:f}", "cos", 0.99731, "l2", 0.03, "exit_cos", 0.999931);
    cr_assert_eq(fv_calibration_write(folder(), "00ff", "visipruner", cosines), FV_OK);
    json_decref(cosines);
    cr_assert_eq(read_back(&b), FV_OK, "%s", fv_last_error());
    cr_assert(b.blocks.n_layer == 4 && b.has_thresholds);
    cr_assert(b.thresholds[0] == 0.99731 && b.thresholds[1] == 0.03 && b.thresholds[2] == 0.999931);
    cr_assert(b.withdraw == 0 && b.n_fitted == 0);
    json_t *vtw = json_pack("{s:i}", "layer", 3),
           *fitted = json_pack("{s:[{s:i, s:[iiii]}]}", "schedules", "target", 70, "leave", 200, 0,
                               300, 76);
    cr_assert_eq(fv_calibration_write(folder(), "00ff", "vtw", vtw), FV_OK);
    cr_assert_eq(fv_calibration_write(folder(), "00ff", "fitprune", fitted), FV_OK);
    json_decref(vtw);
    json_decref(fitted);
    cr_assert_eq(read_back(&b), FV_OK, "%s", fv_last_error());
    cr_assert(b.has_thresholds && b.withdraw == 3 && b.n_fitted == 1);
    cr_assert(b.fitted[0].target == 70 && b.fitted[0].leave[2] == 300);
}

Test(calibration, other_measurements_stay_those_of_other_weights_do_not) {
    fv_calibration b = {0};
    json_t *lazy = json_pack("{s:[iiii]}", "source_layers", 0, 0, 2, 2),
           *other = json_pack("{s:i}", "a", 1);
    cr_assert_eq(fv_calibration_write(folder(), "00ff", "lazy", lazy), FV_OK);
    cr_assert_eq(fv_calibration_write(folder(), "00ff", "other", other), FV_OK);
    cr_assert_eq(read_back(&b), FV_OK);
    cr_assert_eq(b.blocks.source_layer[3], 2);
    cr_assert_eq(fv_calibration_write(folder(), "1234", "other", other), FV_OK);
    cr_assert_eq(read_back(&b), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "fovea calibrate"), "%s", fv_last_error());
    cr_assert_eq(fv_calibration_read(folder(), "1234", 4, &b), FV_OK);
    cr_assert(b.blocks.n_layer == 0 && !b.has_thresholds, "neither was measured");
    json_decref(lazy);
    json_decref(other);
}

Test(calibration, the_digest_is_of_all_that_was_measured) {
    char none[17], one[17], both[17], other[17], again[17], path[600];
    cr_assert_eq(fv_calibration_digest(folder(), none), FV_OK);
    cr_assert_str_eq(none, "none");
    write_text("{}");
    cr_assert_eq(fv_calibration_digest(folder(), one), FV_OK);
    snprintf(path, sizeof path, "%s/latent.bin", folder());
    cr_assert_eq(fv_file_write(path, "directions", 10), FV_OK);
    cr_assert_eq(fv_calibration_digest(folder(), both), FV_OK);
    cr_assert_eq(fv_file_write(path, "direction_", 10), FV_OK);
    cr_assert_eq(fv_calibration_digest(folder(), other), FV_OK);
    cr_assert_eq(fv_file_write(path, "directions", 10), FV_OK);
    cr_assert_eq(fv_calibration_digest(folder(), again), FV_OK);
    cr_assert(strlen(one) == 16 && strcmp(one, both) != 0 && strcmp(both, other) != 0);
    cr_assert_str_eq(both, again);
    unlink(path);
    cr_assert_eq(fv_calibration_digest(folder(), again), FV_OK);
    cr_assert_str_eq(one, again);
}

Test(calibration, a_broken_file_is_told_from_none) {
    static const char *const bad[] = {
        "",
        "[]",
        "{\"fingerprint\": 7}",
        "{\"fingerprint\": \"00ff\", \"lazy\": []}",
        "{\"fingerprint\": \"00ff\", \"lazy\": {\"source_layers\": [0, 1, 2]}}",
        "{\"fingerprint\": \"00ff\", \"lazy\": {\"source_layers\": [0, 1, 0, 3]}}",
        "{\"fingerprint\": \"00ff\", \"lazy\": {\"source_layers\": [1, 1, 2, 3]}}",
        "{\"fingerprint\": \"00ff\", \"lazy\": {\"source_layers\": [0, 1, 2, \"3\"]}}",
        "{\"fingerprint\": \"00ff\", \"visipruner\": {}}",
        "{\"fingerprint\": \"00ff\", \"visipruner\": {\"cos\": 2, \"l2\": 1, \"exit_cos\": 1}}",
        "{\"fingerprint\": \"00ff\", \"visipruner\": {\"cos\": 1, \"l2\": -1, \"exit_cos\": 1}}",
        "{\"fingerprint\": \"00ff\", \"visipruner\": {\"cos\": 1, \"l2\": 1, \"exit_cos\": \"1\"}}",
        "{\"fingerprint\": \"00ff\", \"vtw\": {}}",
        "{\"fingerprint\": \"00ff\", \"vtw\": {\"layer\": 0}}",
        "{\"fingerprint\": \"00ff\", \"vtw\": {\"layer\": 5}}",
        "{\"fingerprint\": \"00ff\", \"fitprune\": {}}",
        "{\"fingerprint\": \"00ff\", \"fitprune\": {\"schedules\": [7]}}",
        "{\"fingerprint\": \"00ff\", \"fitprune\": {\"schedules\": [{\"target\": 60, \"leave\": "
        "[1, 2, 3]}]}}",
        "{\"fingerprint\": \"00ff\", \"fitprune\": {\"schedules\": [{\"target\": 0, \"leave\": [1, "
        "2, 3, 4]}]}}",
        "{\"fingerprint\": \"00ff\", \"fitprune\": {\"schedules\": [{\"target\": 60, \"leave\": "
        "[1, 2, -3, "
        "4]}]}}",
        "{\"fingerprint\": \"00ff\", \"fitprune\": {\"schedules\": [{\"target\": 60, \"leave\": "
        "[500, 70, 6, "
        "1]}]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fv_calibration b = {0};
        write_text(bad[i]);
        cr_assert_eq(read_back(&b), FV_EDATA, "%s", bad[i]);
        cr_assert(b.blocks.n_layer == 0 && !b.has_thresholds && !b.withdraw && !b.n_fitted);
    }
}
