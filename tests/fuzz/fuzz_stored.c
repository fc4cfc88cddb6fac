/* Any bytes as the tensors of a quantized weight: refused, or placed, filled and decoded without reading past them.
 *
 * Input: a byte that chooses the config, rows and columns of the weight as u16 (little endian), and a
 * safetensors file with its tensors, those of layer 0's q_proj. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/dequantize.h"
#include "model/stored.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile float sum; /* reads that must not be optimised away */

enum { HEAD = 5, PATH_CAP = 128 };

#define QUANTIZED(q) "{\"quantization_config\": {" q "}}"
static const char *const config[] = {
    QUANTIZED("\"quant_method\": \"awq\""),
    QUANTIZED("\"quant_method\": \"gptq\""),
    QUANTIZED("\"quant_method\": \"gptq\", \"checkpoint_format\": \"gptq_v2\""),
    QUANTIZED("\"quant_method\": \"fp8\", \"weight_block_size\": [8, 64]"),
    QUANTIZED("\"quant_method\": \"compressed-tensors\""),
    QUANTIZED("\"quant_method\": \"bitsandbytes\""),
};

/* A folder whose weights are a file in memory, made once. */
static int folder(char dir[PATH_CAP]) {
    static char made[PATH_CAP];
    static int fd = -1;
    char link[PATH_CAP + 32], file[64];
    if (fd < 0) {
        snprintf(made, sizeof made, "%s/fuzz-stored-XXXXXX", P_tmpdir);
        fd = memfd_create("stored", 0);
        if (fd < 0 || !mkdtemp(made)) abort();
        snprintf(link, sizeof link, "%s/model.safetensors", made);
        snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
        if (symlink(file, link) != 0) abort();
    }
    snprintf(dir, PATH_CAP, "%s", made);
    return fd;
}

static void remove_folder(void) {
    char dir[PATH_CAP], link[PATH_CAP + 32];
    folder(dir);
    snprintf(link, sizeof link, "%s/model.safetensors", dir);
    unlink(link);
    rmdir(dir);
}

static void decode(const fv_tensor *w) {
    size_t n = (size_t)w->rows * (size_t)w->cols;
    float *numbers = malloc(n * sizeof *numbers + 1);
    if (!numbers) abort();
    fv_dequantize(w, FV_F32, numbers);
    for (size_t i = 0; i < n; i++) sum += numbers[i];
    free(numbers);
}

static void read_weight(const fv_shards *sh, const char *text, const uint8_t *head) {
    fv_tensor_spec e = {.name = "text.layers.0.self_attn.q_proj.weight",
                        .n_dim = 2,
                        .shape = {head[1] | head[2] << 8, head[3] | head[4] << 8}};
    if (e.shape[0] == 0 || e.shape[1] == 0) return; /* no network has such a weight */
    fv_stored_config c;
    fv_stored_weight w;
    fv_arena arena = {0};
    const fv_shard_tensor *found;
    if (fv_stored_parse(text, strlen(text), "config.json", &c) != FV_OK) abort();
    if (fv_stored_find(&c, sh, &e, &w, &found) == FV_OK && found &&
        fv_stored_place(&w, &e, &arena) == FV_OK && fv_stored_fill(&w))
        decode(&w.view);
    fv_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static int registered;
    char dir[PATH_CAP];
    fv_shards *sh;
    if (bytes < HEAD) return 0;
    if (!registered++) atexit(remove_folder);
    int fd = folder(dir);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data + HEAD, bytes - HEAD, 0) < 0) abort();
    if (fv_shards_open(dir, &sh) != FV_OK) return 0;
    read_weight(sh, config[data[0] % (sizeof config / sizeof *config)], data);
    fv_shards_close(sh);
    return 0;
}
