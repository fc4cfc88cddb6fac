/* Writes items of the evaluation and the offsets of a checkpoint's tensors for a machine with
 * only libc and a GPU (tests/ops/nano_items.h).
 *
 *     nano_items CHECKPOINT ITEMS OUT
 *
 * One turn of each item is asked, images are painted at the tower's own size. */
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/eval/session.h"
#include "eval/suite/suite.h"
#include "model/engine.h"
#include "prefill-worker/image/image.h"
#include "prefill-worker/prompt/prompt.h"
#include "tests/ops/nano_items.h"
#include "text/chat.h"

enum { MAX_FILES = 64 };

typedef struct writer {
    FILE *out;
    fv_engine engine;
    fv_chat *chat;
    char file[MAX_FILES][ITEMS_NAME];
    int32_t n_file, n_tensor;
    items_tensor *tensor; /* grows */
} writer;

static void must(fv_status s) {
    if (s == FV_OK) return;
    fprintf(stderr, "nano_items: %s\n", fv_last_error());
    exit(1);
}

static void fail(const char *what) {
    fprintf(stderr, "nano_items: %s\n", what);
    exit(1);
}

static void put(writer *w, const void *p, size_t bytes) {
    if (bytes && fwrite(p, bytes, 1, w->out) != 1) fail("the file cannot be written");
}

/* ---- tensors ----------------------------------------------------------------------------- */

static int32_t file_number(writer *w, const char *name) {
    for (int32_t i = 0; i < w->n_file; i++)
        if (!strcmp(w->file[i], name)) return i;
    if (w->n_file == MAX_FILES || strlen(name) >= ITEMS_NAME) fail("the checkpoint has odd files");
    strcpy(w->file[w->n_file], name);
    return w->n_file++;
}

/* Finds a tensor's place in its file: weights are mapped, and the kernel knows the mappings. */
static void find(void *arg, fv_tensor *t) {
    writer *w = arg;
    items_tensor found = {.file = -1, .dtype = t->dtype, .rows = t->rows, .cols = t->cols};
    uint64_t at = (uintptr_t)t->data, from, to, offset;
    char line[4096], path[4096];
    FILE *maps = t->data ? fopen("/proc/self/maps", "r") : NULL;
    while (maps && fgets(line, sizeof line, maps)) {
        path[0] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %4000[^\n]", &from, &to,
                   &offset, path) < 3 ||
            at < from || at >= to)
            continue;
        if (path[0] != '/') fail("a tensor is not mapped from a file");
        found.file = file_number(w, basename(path));
        found.offset = (int64_t)(offset + (at - from));
    }
    if (maps) fclose(maps);
    if (t->data && found.file < 0) fail("a tensor is not mapped from a file");
    w->tensor = realloc(w->tensor, (size_t)(w->n_tensor + 1) * sizeof *w->tensor);
    if (!w->tensor) fail("out of memory");
    w->tensor[w->n_tensor++] = found;
}

/* ---- items ------------------------------------------------------------------------------- */

/* Writes the image's bytes channel by channel. */
static void put_image(writer *w, const fv_image *image) {
    size_t n = (size_t)image->w * (size_t)image->h;
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < n; i++) put(w, image->rgb + 3 * i + c, 1);
}

static void put_item(writer *w, const fv_suite *suite, int32_t number) {
    const fv_model_config *cfg = fv_checkpoint_config(w->engine.ck);
    static fv_item item;
    fv_chat_text text;
    fv_prompt prompt;
    must(fv_suite_item(suite, number, &item));
    fv_scene_task task = fv_suite_task_of(suite, number);
    fv_chat_turn turn = {.role = "user", .text = item.turn[0].question, .n_image = item.n_image};
    must(fv_chat_render(w->chat, &turn, 1, NULL, 0, &text));
    static fv_layout layout[FV_ITEM_IMAGES];
    for (int32_t i = 0; i < item.n_image; i++)
        must(fv_layout_image(&cfg->layout, cfg->vision.image, cfg->vision.image, item.n_image,
                             &layout[i]));
    must(fv_prompt_make_chat(w->engine.tok, cfg, &text, item.n_image, layout,
                             cfg->text.max_position, &prompt));
    items_item head = {.n = prompt.n,
                       .n_image = item.n_image,
                       .max_tokens = fv_suite_max_tokens(item.turn[0].task, false)};
    snprintf(head.task, sizeof head.task, "%s", fv_task_describe((int32_t)task)->name);
    put(w, &head, sizeof head);
    put(w, prompt.ids, (size_t)prompt.n * sizeof *prompt.ids);
    for (int32_t i = 0; i < item.n_image; i++) {
        fv_image image;
        must(fv_eval_session_render(&item.scene[i], cfg->vision.image, &image));
        put_image(w, &image);
        fv_image_free(&image);
    }
    fv_prompt_free(&prompt);
    fv_chat_text_free(&text);
}

/* Gives the preprocessor's value for each byte, by an image of 256 colours. */
static void fill_values(writer *w, items_head *head) {
    const fv_layout all = {.image_w = 256,
                           .image_h = 1,
                           .n_view = 1,
                           .view = {{.w = 256, .h = 1, .cols = 1, .rows = 1}}};
    uint8_t bytes[256 * 3];
    float value[3 * 256];
    for (int i = 0; i < 256 * 3; i++) bytes[i] = (uint8_t)(i / 3);
    must(fv_image_preprocess(&(fv_image){bytes, 256, 1}, &all, fv_checkpoint_image(w->engine.ck),
                             value));
    memcpy(head->value, value, sizeof value);
}

int main(int argc, char **argv) {
    static items_head head;
    static writer w;
    fv_suite suite;
    if (argc != 4) fail("usage: nano_items CHECKPOINT ITEMS OUT");
    fv_engine_options opt = {.checkpoint = argv[1], .backend = "cpu", .isa = "auto", .threads = 1};
    must(fv_engine_open(&opt, &w.engine));
    const fv_checkpoint *ck = w.engine.ck;
    head.cfg = *fv_checkpoint_config(ck);
    head.cfg.n_vocab_used = w.engine.n_vocab;
    if (!head.cfg.has_vision) fail("the checkpoint has no eye");
    must(fv_suite_make(NULL, 0, atoi(argv[2]), 0, false, &suite));
    must(fv_engine_chat(&w.engine, "", &w.chat));
    fill_values(&w, &head);
    items_weights weights = {*fv_checkpoint_text(ck), *fv_checkpoint_vision(ck),
                             *fv_checkpoint_projector(ck)};
    items_tensors(&head.cfg, &weights, find, &w);
    snprintf(head.magic, sizeof head.magic, "%s", ITEMS_MAGIC);
    head.n_file = w.n_file;
    head.n_tensor = w.n_tensor;
    head.n_item = suite.n_item;
    if (!(w.out = fopen(argv[3], "wb"))) fail("the file cannot be written");
    put(&w, &head, sizeof head);
    put(&w, w.file, (size_t)w.n_file * sizeof *w.file);
    put(&w, w.tensor, (size_t)w.n_tensor * sizeof *w.tensor);
    for (int32_t i = 0; i < suite.n_item; i++) put_item(&w, &suite, i);
    if (fclose(w.out) != 0) fail("the file cannot be written");
    free(w.tensor);
    fv_engine_close(&w.engine);
    return 0;
}
