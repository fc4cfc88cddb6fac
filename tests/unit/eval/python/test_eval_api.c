/* eval/python/api.c: the flat interface gives the same results as the layer, and reports what it
 * cannot do. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "eval/python/api.h"
#include "eval/scenes/tasks.h"

Test(eval_api, scenes_are_those_of_the_layer) {
    fv_scene a[3], b;
    const int32_t knobs[6] = {2, 4, 0, 1, 50, 0};
    cr_assert_eq(fv_api_scene_bytes(), sizeof(fv_scene));
    cr_assert_eq(fv_api_scenes(FV_SPLIT_TEST, 40, 3, knobs, a), 0);
    fv_scene_key key = {.split = FV_SPLIT_TEST, .index = 42};
    cr_assert_eq(fv_scene_make(&key, &(fv_scene_knobs){2, 4, 0, 1, 50, false}, &b), FV_OK);
    cr_assert_eq(memcmp(&a[2], &b, sizeof b), 0);
}

Test(eval_api, tasks_are_those_of_the_table) {
    double chance;
    int32_t n_image, n_turn;
    cr_assert_eq(fv_api_version(), FV_API_VERSION);
    cr_assert_eq(fv_api_tasks(), FV_N_TASK);
    cr_assert_str_eq(fv_api_task(FV_TASK_DIALOG, &chance, &n_image, &n_turn), "dialog");
    cr_assert_eq(n_image, 1);
    cr_assert_eq(n_turn, 3);
    cr_assert_null(fv_api_task(FV_N_TASK, &chance, &n_image, &n_turn));
}

Test(eval_api, turns_are_lines_of_four_fields) {
    static char text[8192], expected[8192];
    fv_scene scenes[2];
    fv_item item;
    cr_assert_eq(fv_api_item(FV_SPLIT_TEST, FV_TASK_DIALOG, 3, NULL, scenes, text, sizeof text), 0);
    cr_assert_eq(fv_item_make(FV_SPLIT_TEST, FV_TASK_DIALOG, 3, NULL, &item), FV_OK);
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        n += (size_t)snprintf(expected + n, sizeof expected - n, "%d\t%s\t%s\t%s\n",
                              (int)item.turn[i].task, item.turn[i].question, item.turn[i].answer,
                              item.turn[i].restated);
    cr_assert_str_eq(text, expected);
    cr_assert_eq(memcmp(&scenes[0], &item.scene[0], sizeof(fv_scene)), 0);
}

static void says(int32_t result, const char *because) {
    cr_assert_eq(result, -1);
    cr_assert(strstr(fv_api_error(), because), "said: %s", fv_api_error());
}

Test(eval_api, unsupported_requests_are_errors) {
    char text[16];
    fv_scene scenes[2];
    uint8_t pixel[3];
    cr_assert_eq(fv_api_scenes(FV_SPLIT_TRAIN, 0, 1, NULL, scenes), 0);
    says(fv_api_scenes(7, 0, 1, NULL, scenes), "no split 7");
    says(fv_api_render(scenes, 1, -4, pixel), "out of range 96..1024");
    says(fv_api_patches(scenes, 1, 0, pixel), "1 to 64");
    says(fv_api_ask(scenes, 99, 0, text, sizeof text), "no task 99");
    says(fv_api_ask(scenes, FV_TASK_CAPTION, 0, text, sizeof text), "16 bytes is too small");
    says(fv_api_item(FV_SPLIT_TRAIN, -1, 0, NULL, scenes, text, sizeof text), "no task -1");
    cr_assert_eq(fv_api_score(-1, "red", "red"), -1);
    cr_assert_eq(fv_api_score(FV_TASK_COLOR, "red", "Red."), 1);
}
