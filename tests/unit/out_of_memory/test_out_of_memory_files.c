/* Readers of files whose n-th allocation fails: each ends with FV_ENOMEM, or normally if the memory was optional. Under
 * AddressSanitizer nothing leaks, and nothing is read that was not made. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/files.h"
#include "kernels/backends/open.h"
#include "kv/tier/disk.h"
#include "model/adapter.h"
#include "model/checkpoint.h"
#include "model/inspect.h"
#include "model/synth/synth.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/tensor_file.h"
#include "tests/support/thorough.h"
#include "text/tokenizer.h"

#define GOLDEN FOVEA_TEST_DATA "/golden/"
#define GGUF(name) GOLDEN "gguf/vision/" name ".gguf+" GOLDEN "gguf/vision/" name ".mmproj.gguf"

TestSuite(out_of_memory_files, .timeout = 600);

/* Fails each of the first allocations of f(of), and later ones at growing distances. */
static void each_allocation(fv_status (*f)(const char *of), const char *of) {
    int64_t n_failed = 0;
    bool came = true;
    cr_assert_eq(f(of), FV_OK, "%s: %s", of, fv_last_error());
    for (int64_t n = 1; came; n += sanitized_step(2) + (thorough() ? 0 : n / 12)) {
        alloc_fail_begin(n);
        fv_status st = f(of);
        came = alloc_fail_end();
        n_failed += st != FV_OK;
        cr_assert(st == FV_OK || st == FV_ENOMEM, "%s, allocation %lld: %s, %s", of, (long long)n,
                  fv_status_name(st), fv_last_error());
    }
    cr_assert_gt(n_failed, 1, "%s allocates", of);
}

static fv_status open_checkpoint(const char *from) {
    fv_checkpoint *ck = NULL;
    fv_backend be;
    FV_TRY(fv_checkpoint_open(from, &ck));
    fv_status st = fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1});
    if (st == FV_OK) {
        st = fv_checkpoint_load(ck, &be, NULL, NULL, NULL);
        fv_backend_close(&be);
    }
    fv_checkpoint_close(ck);
    return st;
}

Test(out_of_memory_files, checkpoints_in_gguf) {
    each_allocation(open_checkpoint, GGUF("qwen2_vl"));
    each_allocation(open_checkpoint, GGUF("qwen3_5_moe"));
    each_allocation(open_checkpoint, GGUF("gemma3"));
}

static fv_status inspect(const char *from) {
    fv_inspection in;
    FV_TRY(fv_inspect(from, &in));
    fv_inspection_free(&in);
    return FV_OK;
}

Test(out_of_memory_files, inspections) {
    each_allocation(inspect, GGUF("qwen3_5"));
    each_allocation(inspect, GOLDEN "stored");
    each_allocation(inspect, GOLDEN "tokenizer_files/llama");
}

static fv_status open_tokenizer(const char *from) {
    fv_tokenizer *tok;
    FV_TRY(fv_tokenizer_open(from, &tok));
    fv_tokenizer_free(tok);
    return FV_OK;
}

Test(out_of_memory_files, tokenizers_of_other_files) {
    each_allocation(open_tokenizer, GOLDEN "tokenizer_files/gemma");
    each_allocation(open_tokenizer, GOLDEN "tokenizer_files/llama");
    each_allocation(open_tokenizer, GOLDEN "tokenizer_files/mistral");
}

static fv_model_config cfg; /* of the adapter's model */

static fv_status open_adapter(const char *from) {
    fv_arena arena = {0};
    fv_adapters all;
    char spec[600] = "a=";
    const char *specs[] = {spec};
    strcat(spec, from);
    fv_status st = fv_adapters_open(specs, 1, &cfg, &arena, &all);
    fv_arena_fini(&arena);
    return st;
}

Test(out_of_memory_files, adapters) {
    fv_synth_options o = {.config_file = GOLDEN "engine/lora_text_1/config.json"};
    cr_assert_eq(fv_synth_config(&o, &cfg), FV_OK, "%s", fv_last_error());
    each_allocation(open_adapter, GOLDEN "engine/lora_text_1/adapter");
}

/* A directory that is searched for a model's file and its tower's. */
static fv_status find_gguf(const char *dir) {
    fv_gguf_files found;
    FV_TRY(fv_gguf_files_find(dir, &found));
    cr_assert(strstr(found.model, "/b.gguf") && strstr(found.mmproj, "/b-mmproj.gguf"));
    return FV_OK;
}

Test(out_of_memory_files, directories_of_gguf) {
    char dir[512];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "b.gguf", "");
    write_text(dir, "b-mmproj.gguf", "");
    each_allocation(find_gguf, dir);
}

/* Writes and reads two segments in a folder with room for one. */
static fv_status use_disk(const char *dir) {
    enum { BYTES = 3000, ROOM = 4096 };
    static uint8_t rows[BYTES];
    const fv_seal_head head = {.n = 64, .seconds = 0.25, .bytes = BYTES};
    fv_kv_tier *tier;
    double seconds;
    FV_TRY(fv_kv_disk_open(dir, ROOM, NULL, &tier));
    fv_status st = FV_OK;
    for (uint8_t i = 0; i < 2 && st == FV_OK; i++) {
        const fv_chain_key key = {{i}};
        st = tier->ops->write(tier, "ann", &key, &head, rows);
        if (st == FV_OK) st = tier->ops->read(tier, &key, &head, rows, &seconds);
    }
    tier->ops->close(tier);
    return st;
}

Test(out_of_memory_files, segments_on_a_disk) {
    char dir[512];
    scratch_dir(dir, sizeof dir);
    each_allocation(use_disk, dir);
}
