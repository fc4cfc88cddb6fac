/* Runs a fuzz target over committed inputs where libFuzzer is missing: each argument is a file or a
 * directory of files. Without any input it fails, since it would test nothing.
 *
 * Each input is given as it is, then truncated in several places, then with single bytes changed:
 * near misses of valid inputs are where parsers break. Every run does the same. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { INPUT_MAX = 1 << 26, N_CUT = 16, N_CHANGE = 48, HEAD = 64 };

static int n_file, n_input;

/* A copy of exactly n bytes, so that AddressSanitizer detects reading past them. */
static void feed(const uint8_t *data, size_t n) {
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact) return;
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    n_input++;
}

static void feed_near_misses(uint8_t *data, size_t n) {
    for (size_t i = 0; i < N_CUT; i++) feed(data, n * i / N_CUT);
    feed(data, n - 1);
    uint32_t state = 2463534242u;
    for (int i = 0; i < N_CHANGE; i++) {
        state ^= state << 13; /* xorshift32 */
        state ^= state >> 17;
        state ^= state << 5;
        /* Every other change hits the start, where formats keep their sizes. */
        size_t at = state % (i % 2 && n > HEAD ? HEAD : n);
        uint8_t was = data[at];
        data[at] = i % 3 ? (uint8_t)(was ^ (1u << (state >> 29))) : (uint8_t)(state >> 16);
        feed(data, n);
        data[at] = was;
    }
}

static int replay_file(const char *path) {
    char *data;
    size_t n;
    if (fv_file_read(path, INPUT_MAX, &data, &n) != FV_OK) {
        fprintf(stderr, "%s\n", fv_last_error());
        return 1;
    }
    printf("%s\n", path);
    fflush(stdout); /* so that a crash names its input */
    feed((uint8_t *)data, n);
    if (n) feed_near_misses((uint8_t *)data, n);
    free(data);
    n_file++;
    return 0;
}

static int replay_path(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: no such file\n", path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode)) return replay_file(path);
    struct dirent **list;
    int n = scandir(path, &list, NULL, alphasort), failed = n < 0;
    for (int i = 0; i < n; i++) {
        char child[4096];
        if (list[i]->d_name[0] != '.') {
            failed |= fv_path_join(path, list[i]->d_name, child, sizeof child) != FV_OK ||
                      replay_path(child) != 0;
        }
        free(list[i]);
    }
    if (n >= 0) free(list);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= replay_path(argv[i]);
    printf("%d files, %d inputs replayed\n", n_file, n_input);
    return failed || n_file == 0;
}
