/* Measures how many images with questions one core makes per second, which limits training.
 *
 * Each row makes `--images` scenes of the training split with all their facts, renders them, labels
 * their patches and asks seven questions about each, as a training step would. The last rows make
 * evaluation items, which draw scenes until one has the wanted answer. Times are CPU time, so other
 * programs hardly affect them.
 *
 *     bench_scenes --images 1000 */
#include <stdio.h>

#include "bench/program.h"
#include "eval/scenes/patches.h"
#include "eval/scenes/render.h"
#include "eval/scenes/tasks.h"

/* Makes one training image: the facts, pixels of `side` (0: none), labels of `grid` (0: none) and
 * n_ask questions. */
static void make(uint64_t index, int32_t side, int32_t grid, int32_t n_ask, uint8_t *rgb) {
    static fv_patch patches[FV_PATCH_GRID_MAX * FV_PATCH_GRID_MAX];
    static fv_turn turns[FV_ITEM_TURNS];
    fv_scene scene;
    bench_must(
        fv_scene_make(&(fv_scene_key){.split = FV_SPLIT_TRAIN, .index = index}, NULL, &scene));
    if (side > 0) bench_must(fv_render(&scene, side, rgb));
    if (grid > 0) bench_must(fv_scene_patches(&scene, grid, patches));
    for (int32_t i = 0; i < n_ask; i++)
        fv_task_ask((fv_scene_task)(i % FV_TASK_COMPARE), &scene, index * 16 + (uint64_t)i, turns);
}

static void row(const char *name, int32_t n, int32_t side, int32_t grid, int32_t n_ask,
                uint8_t *rgb) {
    const double begin = bench_cpu_s(0);
    for (int32_t i = 0; i < n; i++) make((uint64_t)i, side, grid, n_ask, rgb);
    printf("%-44s %9.0f images/s\n", name, n / (bench_cpu_s(0) - begin));
}

static void row_items(fv_scene_task t, int32_t n) {
    static fv_item item;
    const double begin = bench_cpu_s(0);
    for (int32_t i = 0; i < n; i++)
        bench_must(fv_item_make(FV_SPLIT_TEST, t, (uint64_t)i, NULL, &item));
    printf("items of task %-25s %9.0f items/s\n", fv_task_describe((int32_t)t)->name,
           n / (bench_cpu_s(0) - begin));
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"images", NULL, FV_OPTION_INT, "N", "1000", "pictures per row", 1, 1000000},
    };
    fv_options *o = bench_options(table, 1, argc, argv, "bench_scenes [--images N]",
                                  "Speed of the evaluation's images.");
    const int32_t n = (int32_t)fv_options_int(o, "images");
    fv_options_free(o);
    static uint8_t rgb[(size_t)336 * 336 * 3];
    row("facts", n, 0, 0, 0, rgb);
    row("facts, 7 questions", n, 0, 0, 7, rgb);
    row("facts, 7 questions, 144 px", n, 144, 0, 7, rgb);
    row("facts, 7 questions, 144 px, 12 x 12 labels", n, 144, 12, 7, rgb);
    row("facts, 7 questions, 336 px", n, 336, 0, 7, rgb);
    row("facts, 7 questions, 336 px, 24 x 24 labels", n, 336, 24, 7, rgb);
    for (int t = 0; t < FV_N_TASK; t++) row_items((fv_scene_task)t, n);
    return 0;
}
