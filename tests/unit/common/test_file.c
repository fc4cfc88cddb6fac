/* common/file: mapping, reading, writing, folders; missing, too large, or not a file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

/* Makes an empty folder for the test. */
static const char *folder(void) {
    static char dir[256];
    snprintf(dir, sizeof dir, "%s/file_XXXXXX", FOVEA_TEST_TMP);
    cr_assert_not_null(mkdtemp(dir));
    return dir;
}

static const char *in(const char *dir, const char *name) {
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];
    cr_assert_eq(fv_path_join(dir, name, p, sizeof path[0]), FV_OK);
    return p;
}

static void expect_failure(fv_status got, fv_status want, const char *words) {
    cr_assert_eq(got, want, "%s: %s", fv_status_name(got), fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), words), "%s", fv_last_error());
}

Test(file, what_was_written_is_read_with_a_nul_after_it) {
    const char *path = in(folder(), "a");
    char *data = NULL;
    size_t n = 0;
    cr_assert_eq(fv_file_write(path, "a\0b", 3), FV_OK);
    cr_assert_eq(fv_file_read(path, 3, &data, &n), FV_OK);
    cr_assert_eq(n, 3);
    cr_assert_eq(memcmp(data, "a\0b\0", 4), 0);
    free(data);
}

Test(file, writing_again_replaces_what_was_there) {
    const char *path = in(folder(), "a");
    char *data = NULL;
    size_t n = 0;
    cr_assert_eq(fv_file_write(path, "long text", 9), FV_OK);
    cr_assert_eq(fv_file_write(path, "short", 5), FV_OK);
    cr_assert_eq(fv_file_read(path, 100, &data, &n), FV_OK);
    cr_assert_str_eq(data, "short");
    free(data);
}

Test(file, an_empty_file_reads_as_an_empty_string_and_maps_to_null) {
    const char *path = in(folder(), "empty");
    char *data = NULL;
    size_t n = 9;
    fv_file_map map = {.bytes = 9};
    cr_assert_eq(fv_file_write(path, NULL, 0), FV_OK);
    cr_assert_eq(fv_file_read(path, 0, &data, &n), FV_OK);
    cr_assert_eq(n, 0);
    cr_assert_str_eq(data, "");
    free(data);
    cr_assert_eq(fv_file_map_open(path, &map), FV_OK);
    cr_assert_null(map.data);
    cr_assert_eq(map.bytes, 0);
    fv_file_map_close(&map);
}

Test(file, a_map_shows_the_bytes_and_may_be_closed_twice) {
    const char *path = in(folder(), "a");
    fv_file_map map = {0};
    cr_assert_eq(fv_file_write(path, "fovea", 5), FV_OK);
    cr_assert_eq(fv_file_map_open(path, &map), FV_OK);
    cr_assert_eq(map.bytes, 5);
    cr_assert_eq(memcmp(map.data, "fovea", 5), 0);
    fv_file_map_close(&map);
    cr_assert_null(map.data);
    fv_file_map_close(&map);
}

Test(file, a_file_larger_than_allowed_is_refused_with_both_numbers) {
    const char *path = in(folder(), "a");
    char *data = NULL;
    size_t n = 7;
    cr_assert_eq(fv_file_write(path, "12345", 5), FV_OK);
    expect_failure(fv_file_read(path, 4, &data, &n), FV_EDATA, "5 bytes; at most 4");
    cr_assert_null(data);
    cr_assert_eq(n, 7);
}

Test(file, a_missing_file_is_not_found_and_named) {
    const char *path = in(folder(), "absent");
    char *data = NULL;
    size_t n = 0;
    fv_file_map map = {.bytes = 3};
    expect_failure(fv_file_read(path, 10, &data, &n), FV_ENOTFOUND, path);
    expect_failure(fv_file_map_open(path, &map), FV_ENOTFOUND, path);
    cr_assert_eq(map.bytes, 3);
    cr_assert_not(fv_file_exists(path));
}

/* A link to itself, which root cannot read either. */
Test(file, a_file_that_cannot_be_read_is_there) {
    const char *path = in(folder(), "loop");
    char *data = NULL;
    size_t n = 0;
    cr_assert_eq(symlink(path, path), 0);
    cr_assert(fv_file_exists(path));
    expect_failure(fv_file_read(path, 10, &data, &n), FV_EIO, path);
}

Test(file, a_path_through_a_file_is_not_found) {
    const char *dir = folder();
    fv_file_map map = {0};
    cr_assert_eq(fv_file_write(in(dir, "a"), "x", 1), FV_OK);
    cr_assert_not(fv_file_exists(in(dir, "a/b")));
    expect_failure(fv_file_map_open(in(dir, "a/b"), &map), FV_ENOTFOUND, "a/b");
}

Test(file, a_folder_is_not_a_regular_file) {
    const char *dir = folder();
    char *data = NULL;
    size_t n = 0;
    fv_file_map map = {0};
    expect_failure(fv_file_map_open(dir, &map), FV_EIO, "not a regular file");
    expect_failure(fv_file_read(dir, 10, &data, &n), FV_EIO, "not a regular file");
}

Test(file, a_pipe_is_refused_without_waiting_for_a_writer, .timeout = 240) {
    const char *path = in(folder(), "pipe");
    fv_file_map map = {0};
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_failure(fv_file_map_open(path, &map), FV_EIO, "not a regular file");
}

Test(file, a_full_disk_is_an_error_that_names_the_file) {
    if (access("/dev/full", W_OK) != 0) cr_skip("no /dev/full");
    expect_failure(fv_file_write("/dev/full", "x", 1), FV_EIO, "/dev/full");
}

Test(file, writing_into_a_missing_folder_is_an_error_that_names_the_file) {
    const char *path = in(folder(), "absent/a");
    expect_failure(fv_file_write(path, "x", 1), FV_ENOTFOUND, path);
}

Test(file, folders_are_made_with_their_parents_and_may_be_there_already) {
    const char *dir = folder(), *deep = in(dir, "x/y//z/");
    cr_assert_eq(fv_dir_make(deep), FV_OK);
    cr_assert_eq(fv_dir_make(deep), FV_OK);
    cr_assert_eq(fv_dir_make("/"), FV_OK);
    cr_assert_eq(fv_file_write(in(dir, "x/y/z/a"), "x", 1), FV_OK);
    cr_assert(fv_file_exists(in(dir, "x/y/z/a")));
}

Test(file, a_folder_is_not_made_where_a_file_is) {
    const char *dir = folder();
    cr_assert_eq(fv_file_write(in(dir, "a"), "x", 1), FV_OK);
    cr_assert_neq(fv_dir_make(in(dir, "a")), FV_OK);
    cr_assert_neq(fv_dir_make(in(dir, "a/b")), FV_OK);
}

Test(file, a_folder_name_that_is_empty_or_endless_is_refused) {
    char endless[6000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    cr_assert_eq(fv_dir_make(""), FV_EINVAL);
    cr_assert_eq(fv_dir_make(endless), FV_EINVAL);
}

Test(file, a_joined_path_fits_exactly_or_is_refused) {
    char out[6] = "?";
    cr_assert_eq(fv_path_join("ab", "cd", out, 6), FV_OK);
    cr_assert_str_eq(out, "ab/cd");
    expect_failure(fv_path_join("ab", "cd", out, 5), FV_EINVAL, "ab/cd is too long");
}
