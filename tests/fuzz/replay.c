/* Runs a fuzz target without libFuzzer, so that every compiler and CI replays its corpus.
 *
 * usage: fuzz_x CORPUS...     files or folders of files
 *
 * Each input is given as it is, then cut short in several places, then with single bytes
 * changed: the near misses of good inputs are where parsers break. All of it is the same on
 * every run. Inputs are copied to blocks of exactly their size, so that AddressSanitizer sees
 * a read one byte too far. A corpus without files is a failure, for nothing was tested. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { BYTES_MAX = 4 << 20, N_CUTS = 16, N_FLIPS = 48, PATH_CAP = 4096 };

static int n_files, n_inputs;

static void feed(const uint8_t *data, size_t bytes) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact) return;
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
    n_inputs++;
}

static void feed_near_misses(uint8_t *data, size_t bytes) {
    for (int i = 0; i < N_CUTS; i++) feed(data, bytes * (size_t)i / N_CUTS);
    feed(data, bytes - 1);
    uint32_t state = 2463534242u;
    for (int i = 0; i < N_FLIPS; i++) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5; /* xorshift32 */
        /* Every other change falls into the first 64 bytes: headers live there. */
        size_t at = state % (i % 2 && bytes > 64 ? 64 : bytes);
        uint8_t was = data[at];
        data[at] = i % 3 ? (uint8_t)(was ^ (1u << (state >> 29))) : (uint8_t)(state >> 16);
        feed(data, bytes);
        data[at] = was;
    }
}

static bool replay(const char *path) {
    char *data;
    size_t bytes;
    if (fv_file_read(path, BYTES_MAX, &data, &bytes) != FV_OK) {
        fprintf(stderr, "%s\n", fv_last_error());
        return false;
    }
    feed((const uint8_t *)data, bytes);
    if (bytes) feed_near_misses((uint8_t *)data, bytes);
    free(data);
    n_files++;
    return true;
}

static bool replay_folder(const char *path) {
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        fprintf(stderr, "cannot read the folder %s\n", path);
        return false;
    }
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char file[PATH_CAP];
        if (entries[i]->d_name[0] != '.')
            ok = fv_path_join(path, entries[i]->d_name, file, sizeof file) == FV_OK &&
                 replay(file) && ok;
        free(entries[i]);
    }
    free(entries);
    return ok;
}

int main(int argc, char **argv) {
    bool ok = true;
    for (int i = 1; i < argc; i++) {
        struct stat sb;
        bool folder = stat(argv[i], &sb) == 0 && S_ISDIR(sb.st_mode);
        ok = (folder ? replay_folder(argv[i]) : replay(argv[i])) && ok;
    }
    printf("%d files, %d inputs\n", n_files, n_inputs);
    if (n_files == 0) fprintf(stderr, "no input was found: give files, or a folder with files\n");
    return ok && n_files > 0 ? 0 : 1;
}
