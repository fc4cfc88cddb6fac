/* eval/scenes/tasks.c and ask_*.c: answers are true, referents unique, answers balanced, items
 * fixed.
 *
 * Truth is derived here from the words of the question alone, by code that shares nothing with the
 * generator: the words say which objects are meant, the objects give the answer. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "eval/scenes/handwriting.h"
#include "eval/scenes/tasks.h"
#include "tests/support/thorough.h"

static const char *const shapes[] = {"circle", "square", "triangle", "diamond", "cross", "ring"};
static const char *const colors[] = {"red",    "green",  "blue", "yellow",
                                     "purple", "orange", "cyan", "white"};
static const char *const sizes[] = {"small", "medium", "large"};
static const char *const rows[] = {"top", "middle", "bottom"};
static const char *const columns[] = {"left", "center", "right"};

static fv_item make(fv_split split, int task, uint64_t index) {
    fv_item item;
    cr_assert_eq(fv_item_make(split, (fv_scene_task)task, index, NULL, &item), FV_OK, "%s",
                 fv_last_error());
    return item;
}

/* ---- words of a question ------------------------------------------------------------------ */

enum { MAX_WORDS = 40, WORD = 24 };

typedef struct words {
    int32_t n;
    char at[MAX_WORDS][WORD];
} words;

static words split_words(const char *text) {
    words w = {0};
    while (*text) {
        size_t length = strcspn(text, " ,.:?");
        if (length > 0) {
            cr_assert(w.n < MAX_WORDS && length < WORD);
            memcpy(w.at[w.n++], text, length);
        }
        text += length;
        if (*text) text++;
    }
    return w;
}

static int32_t index_of(const char *const *list, int32_t n, const char *word) {
    for (int32_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0) return i;
    return -1;
}

static bool has(const words *w, const char *word) {
    for (int32_t i = 0; i < w->n; i++)
        if (strcmp(w->at[i], word) == 0) return true;
    return false;
}

/* The properties that a description asks for; -1: any. */
typedef struct filter {
    int32_t color, shape, size;
} filter;

static int32_t plural_shape(const char *word) {
    char one[WORD];
    snprintf(one, sizeof one, "%s", word);
    size_t n = strlen(one);
    if (strncmp(word, "cross", 5) == 0) return FV_SHAPE_CROSS;
    if (n > 1 && one[n - 1] == 's') one[n - 1] = 0;
    return index_of(shapes, FV_N_SHAPE, one);
}

/* The descriptions in a question, in order: words of attributes next to each other. */
static int32_t find_filters(const words *w, filter *out) {
    int32_t n = 0;
    bool open = false;
    for (int32_t i = 0; i < w->n; i++) {
        const filter f = {index_of(colors, FV_N_COLOR, w->at[i]), plural_shape(w->at[i]),
                          index_of(sizes, FV_N_SIZE, w->at[i])};
        if (strcmp(w->at[i], "shape") == 0 || (f.color < 0 && f.shape < 0 && f.size < 0)) {
            open = false;
            continue;
        }
        if (!open) out[n++] = (filter){-1, -1, -1};
        open = true;
        if (f.color >= 0) out[n - 1].color = f.color;
        if (f.shape >= 0) out[n - 1].shape = f.shape;
        if (f.size >= 0) out[n - 1].size = f.size;
    }
    return n;
}

static bool meets(const fv_scene_object *o, filter f) {
    return (f.color < 0 || o->color == f.color) && (f.shape < 0 || o->shape == f.shape) &&
           (f.size < 0 || o->size == f.size);
}

static int32_t count(const fv_scene *s, filter f) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_object; i++) n += meets(&s->object[i], f);
    return n;
}

/* The one object that a description fits. */
static const fv_scene_object *the_one(const fv_scene *s, filter f, const char *question) {
    const fv_scene_object *found = NULL;
    cr_assert_eq(count(s, f), 1, "%s", question);
    for (int32_t i = 0; i < s->n_object; i++)
        if (meets(&s->object[i], f)) found = &s->object[i];
    return found;
}

/* ---- true answers ------------------------------------------------------------------------ */

static int32_t third(int32_t v) {
    return v < FV_SCENE_UNIT / 3 ? 0 : v < FV_SCENE_UNIT * 2 / 3 ? 1 : 2;
}

static void true_cell(const fv_scene_object *o, char *out) {
    sprintf(out, "%s %s", rows[third(o->y)], columns[third(o->x)]);
}

static void true_relation(const fv_scene *s, const words *w, const char *question, char *out) {
    filter f[4];
    cr_assert_eq(find_filters(w, f), 2, "%s", question);
    const fv_scene_object *a = the_one(s, f[0], question), *b = the_one(s, f[1], question);
    if (strcmp(w->at[0], "Seen") == 0 || strcmp(w->at[0], "On") == 0) {
        const fv_scene_object *swap = a;
        a = b;
        b = swap;
    }
    cr_assert(a != b, "%s", question);
    const bool upright = has(w, "above");
    const int32_t apart = upright ? a->y - b->y : a->x - b->x;
    cr_assert_geq(abs(apart) * 10, FV_SCENE_UNIT - 10, "%s: too close", question);
    strcpy(out, upright ? (apart < 0 ? "above" : "below") : (apart < 0 ? "left" : "right"));
}

static int32_t place_along(const fv_scene_number *n, const words *w) {
    if (has(w, "leftmost")) return -n->x;
    if (has(w, "rightmost")) return n->x;
    return has(w, "topmost") ? -n->y : n->y;
}

static void true_number(const fv_scene *s, const words *w, char *out) {
    const bool named =
        has(w, "leftmost") || has(w, "rightmost") || has(w, "topmost") || has(w, "bottommost");
    int32_t best = 0;
    cr_assert_eq(named, s->n_number > 1);
    for (int32_t i = 1; i < s->n_number; i++)
        if (place_along(&s->number[i], w) > place_along(&s->number[best], w)) best = i;
    for (int32_t i = 0; i < s->n_number; i++)
        if (i != best)
            cr_assert_gt((place_along(&s->number[best], w) - place_along(&s->number[i], w)) * 21,
                         FV_SCENE_UNIT);
    for (int32_t i = 0; i < s->number[best].n_digit; i++)
        out += sprintf(out, "%d", s->number[best].digit[i]);
}

static void true_compare(const fv_scene *s, const words *w, char *out) {
    filter f[4] = {{-1, -1, -1}};
    find_filters(w, f); /* none: all objects */
    const int32_t first = count(&s[0], f[0]), second = count(&s[1], f[0]);
    cr_assert_gt(first + second, 0);
    strcpy(out, first > second ? "first" : first < second ? "second" : "same");
}

/* *it: the object of the previous turn; set to the object of this one. */
static void true_answer(const fv_item *item, const fv_turn *turn, const fv_scene_object **it,
                        char *out) {
    const fv_scene *s = item->scene;
    const words w = split_words(turn->question);
    filter f[4] = {{-1, -1, -1}, {-1, -1, -1}};
    const int32_t n = find_filters(&w, f);
    switch (turn->task) {
    case FV_TASK_SHAPE:
        cr_assert(n == 1 && f[0].shape < 0 && f[0].color >= 0);
        *it = the_one(s, f[0], turn->question);
        strcpy(out, shapes[(*it)->shape]);
        break;
    case FV_TASK_COLOR:
        cr_assert(n == 1 && f[0].color < 0 && f[0].shape >= 0);
        *it = the_one(s, f[0], turn->question);
        strcpy(out, colors[(*it)->color]);
        break;
    case FV_TASK_COUNT:
        cr_assert_eq(n, 1, "%s", turn->question);
        sprintf(out, "%d", count(s, f[0]));
        break;
    case FV_TASK_EXISTS:
        cr_assert(n == 1 && f[0].color >= 0 && f[0].shape >= 0, "%s", turn->question);
        cr_assert(count(s, (filter){f[0].color, -1, -1}) && count(s, (filter){-1, f[0].shape, -1}),
                  "both attributes are there");
        strcpy(out, count(s, f[0]) ? "yes" : "no");
        break;
    case FV_TASK_RELATION: true_relation(s, &w, turn->question, out); break;
    case FV_TASK_CELL:
        if (!has(&w, "it")) *it = the_one(s, f[0], turn->question);
        cr_assert_not_null(*it);
        true_cell(*it, out);
        break;
    case FV_TASK_NUMBER: true_number(s, &w, out); break;
    case FV_TASK_WRITTEN:
        cr_assert_eq(s->n_written, 1);
        sprintf(out, "%d", fv_handwriting_digit(s->written.sample));
        break;
    case FV_TASK_COMPARE: true_compare(s, &w, out); break;
    default: cr_assert_fail("a task without a truth");
    }
}

static void check_true(const fv_item *item) {
    const fv_scene_object *it = NULL;
    for (int32_t i = 0; i < item->n_turn; i++) {
        const fv_turn *turn = &item->turn[i];
        char truth[64] = "";
        true_answer(item, turn, &it, truth);
        cr_assert_str_eq(turn->answer, truth, "%s", turn->question);
        /* Restated: a sentence with the answer in it. */
        size_t n = strlen(turn->restated);
        cr_assert(n > strlen(truth) + 2 && turn->restated[n - 1] == '.');
        cr_assert(strstr(turn->restated, truth), "%s", turn->restated);
    }
}

Test(tasks, answers_are_true) {
    const uint64_t n = thorough() ? 1500 : 300;
    for (int task = 0; task < FV_TASK_CAPTION; task++)
        for (uint64_t i = 0; i < n; i++)
            for (fv_split split = FV_SPLIT_TRAIN; split <= FV_SPLIT_TEST; split += 2) {
                fv_item item = make(split, task, i);
                check_true(&item);
            }
}

Test(tasks, answers_about_rich_scenes_are_true_and_dialogs_have_ten_turns) {
    const fv_scene_knobs rich = fv_scene_knobs_rich();
    int32_t most = 0;
    for (int task = 0; task < FV_TASK_CAPTION; task++)
        for (uint64_t i = 0; i < 200; i++) {
            static fv_item item;
            cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)task, i, &rich, &item), FV_OK,
                         "%s", fv_last_error());
            cr_assert_eq(item.n_turn, task == FV_TASK_DIALOG ? 10 : 1);
            check_true(&item);
            for (int32_t a = 0; a < item.n_turn; a++)
                for (int32_t b = 0; b < a; b++)
                    cr_assert_str_neq(item.turn[a].question, item.turn[b].question);
            if (item.scene[0].n_object > most) most = item.scene[0].n_object;
        }
    cr_assert_gt(most, FV_PLAIN_OBJECTS);
}

Test(tasks, questions_about_scenes_that_are_there_are_true_too) {
    int32_t asked[FV_N_TASK] = {0};
    for (uint64_t i = 0; i < 2000; i++)
        for (int task = 0; task < FV_TASK_CAPTION; task++) {
            fv_item item = {.task = (fv_scene_task)task, .n_turn = fv_task_describe(task)->n_turn};
            for (uint32_t k = 0; k < 2; k++) {
                fv_scene_key key = {.split = FV_SPLIT_TRAIN, .image = k, .index = i};
                cr_assert_eq(fv_scene_make(&key, NULL, &item.scene[k]), FV_OK);
            }
            if (!fv_task_ask((fv_scene_task)task, item.scene, i, item.turn)) continue;
            check_true(&item);
            asked[task]++;
        }
    for (int task = 0; task < FV_TASK_CAPTION; task++)
        cr_assert_gt(asked[task], task == FV_TASK_DIALOG ? 200 : 300, "%s: %d",
                     fv_task_describe(task)->name, asked[task]);
}

/* ---- captions ----------------------------------------------------------------------------- */

/* Words, and the full stop of each sentence. */
static int32_t tokens(const char *text) {
    int32_t n = 0;
    for (const char *c = text; *c; c++) n += *c == ' ' || *c == '.';
    return n + 1;
}

static void true_caption(const fv_scene *s, char *out) {
    out += sprintf(out, "There are %d objects.", s->n_object);
    for (int32_t row = 0; row < 3; row++)
        for (int32_t x = 0; x < FV_SCENE_UNIT; x++)
            for (int32_t i = 0; i < s->n_object; i++) {
                const fv_scene_object *o = &s->object[i];
                if (o->x != x || third(o->y) != row) continue;
                out +=
                    sprintf(out, " In the %s %s there is a %s %s %s.", rows[row], columns[third(x)],
                            sizes[o->size], colors[o->color], shapes[o->shape]);
            }
    for (int32_t row = 0; row < 3; row++)
        for (int32_t x = 0; x < FV_SCENE_UNIT; x++)
            for (int32_t i = 0; i < s->n_number; i++) {
                const fv_scene_number *n = &s->number[i];
                if (n->x != x || third(n->y) != row) continue;
                out += sprintf(out, " In the %s %s there is the printed number ", rows[row],
                               columns[third(x)]);
                for (int32_t d = 0; d < n->n_digit; d++) out += sprintf(out, "%d", n->digit[d]);
                out += sprintf(out, ".");
            }
    if (s->n_written)
        sprintf(out, " In the %s %s there is the handwritten digit %d.", rows[third(s->written.y)],
                columns[third(s->written.x)], s->written.digit);
}

Test(tasks, captions_list_everything_in_raster_order) {
    int32_t shortest = 1000, longest = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        fv_item item = make(FV_SPLIT_TEST, FV_TASK_CAPTION, i);
        char truth[FV_ANSWER_MAX];
        true_caption(item.scene, truth);
        cr_assert_str_eq(item.turn[0].answer, truth);
        cr_assert_str_eq(item.turn[0].restated, truth);
        int32_t n = tokens(truth);
        if (n < shortest) shortest = n;
        if (n > longest) longest = n;
    }
    cr_log_info("captions: %d to %d words and stops", shortest, longest);
    cr_assert(shortest >= 60 && longest > 120 && longest <= 200, "%d %d", shortest, longest);
}

Test(tasks, captions_of_rich_scenes_list_everything_too) {
    const fv_scene_knobs rich = fv_scene_knobs_rich();
    for (uint64_t i = 0; i < 300; i++) {
        static fv_item item;
        char truth[FV_ANSWER_MAX];
        cr_assert_eq(fv_item_make(FV_SPLIT_TEST, FV_TASK_CAPTION, i, &rich, &item), FV_OK);
        true_caption(item.scene, truth);
        cr_assert_str_eq(item.turn[0].answer, truth);
        cr_assert_leq(tokens(truth), 320);
    }
}

Test(tasks, a_caption_of_one_object_is_grammatical) {
    fv_scene s = {.n_object = 1, .object = {{.color = FV_COLOR_ORANGE, .x = 1, .y = 1}}};
    fv_turn turn;
    cr_assert(fv_task_ask(FV_TASK_CAPTION, &s, 0, &turn));
    cr_assert_str_eq(turn.answer,
                     "There is 1 object. In the top left there is a small orange circle.");
}

/* ---- balance ------------------------------------------------------------------------------ */

/* How often each answer was correct, per kind of question: what can be guessed from the question
 * without the image. */
typedef struct accum {
    int32_t n, n_answer;
    char answer[1200][16];
    int32_t times[1200];
} accum;

static void note(accum *t, const char *answer) {
    int32_t i = 0;
    t->n++;
    while (i < t->n_answer && strcmp(t->answer[i], answer) != 0) i++;
    if (i == t->n_answer) {
        cr_assert_lt(i, 1200);
        strcpy(t->answer[t->n_answer++], answer);
    }
    t->times[i]++;
}

static int32_t kind_of(const fv_turn *turn) {
    const words w = split_words(turn->question);
    filter f[4] = {{-1, -1, -1}};
    if (turn->task == FV_TASK_RELATION) return has(&w, "above");
    if (turn->task != FV_TASK_COUNT && turn->task != FV_TASK_COMPARE) return 0;
    if (find_filters(&w, f) == 0) return 0;
    return f[0].color >= 0 ? 1 : f[0].shape >= 0 ? 2 : 3;
}

enum { KINDS = 4, ITEMS = 4000 };

static void check_balance(const char *name, double chance, const accum *t) {
    int32_t best = 0;
    for (int32_t i = 1; i < t->n_answer; i++)
        if (t->times[i] > t->times[best]) best = i;
    const double share = (double)t->times[best] / t->n;
    const double noise = 4 * sqrt(chance * (1 - chance) / t->n);
    cr_expect(share <= chance + noise, "%s: '%s' is right in %.3f of %d, chance %.3f", name,
              t->answer[best], share, t->n, chance);
}

Test(tasks, no_constant_answer_beats_chance, .timeout = 300) {
    static accum all[FV_N_TASK], by_kind[FV_N_TASK][KINDS];
    for (int task = 0; task < FV_TASK_CAPTION; task++) {
        memset(all, 0, sizeof all);
        memset(by_kind, 0, sizeof by_kind);
        for (uint64_t i = 0; i < (thorough() ? ITEMS : ITEMS / 4); i++) {
            fv_item item = make(FV_SPLIT_TEST, task, i);
            for (int32_t k = 0; k < item.n_turn; k++) {
                const fv_turn *turn = &item.turn[k];
                note(&all[turn->task], turn->answer);
                note(&by_kind[turn->task][kind_of(turn)], turn->answer);
            }
        }
        for (int rule = 0; rule < FV_N_TASK; rule++) {
            const fv_task_info *info = fv_task_describe(rule);
            if (all[rule].n) check_balance(info->name, info->chance, &all[rule]);
            for (int k = 0; k < KINDS; k++)
                if (by_kind[rule][k].n) check_balance(info->name, info->chance, &by_kind[rule][k]);
        }
    }
}

Test(tasks, the_chance_of_a_dialog_is_the_mean_of_its_turns) {
    double sum = 0;
    int32_t n = 0;
    for (uint64_t i = 0; i < ITEMS; i++) {
        fv_item item = make(FV_SPLIT_TEST, FV_TASK_DIALOG, i);
        cr_assert_eq(item.n_turn, 3);
        for (int32_t k = 0; k < 3; k++, n++)
            sum += fv_task_describe((int)item.turn[k].task)->chance;
    }
    /* The turns are shape or colour, cell, count or existence, each equally likely, up to noise. */
    cr_assert_float_eq(sum / n, fv_task_describe(FV_TASK_DIALOG)->chance, 0.005);
}

/* ---- items kept from training ------------------------------------------------------------ */

static bool names_a_pair_held_back(const char *text) {
    for (int32_t shape = 0; shape < FV_N_SHAPE; shape++)
        for (int32_t color = 0; color < FV_N_COLOR; color++) {
            char pair[40];
            snprintf(pair, sizeof pair, "%s %s", colors[color], shapes[shape]);
            if (color == (3 * shape + 1) % 8 && strstr(text, pair)) return true;
        }
    return false;
}

Test(tasks, training_is_never_asked_about_a_pair_that_is_held_back) {
    const uint64_t n = thorough() ? 1000 : 250;
    uint64_t in_test = 0;
    for (int task = 0; task < FV_N_TASK; task++)
        for (uint64_t i = 0; i < n; i++) {
            fv_item train = make(FV_SPLIT_TRAIN, task, i), test = make(FV_SPLIT_TEST, task, i);
            for (int32_t k = 0; k < train.n_turn; k++) {
                cr_assert(!names_a_pair_held_back(train.turn[k].question));
                cr_assert(!names_a_pair_held_back(train.turn[k].answer));
                cr_assert(!train.turn[k].held_back);
                const bool named = names_a_pair_held_back(test.turn[k].question) ||
                                   names_a_pair_held_back(test.turn[k].answer);
                cr_assert(!named || test.turn[k].held_back);
                in_test += test.turn[k].held_back;
            }
        }
    cr_assert_gt(in_test, n);
}

/* ---- items -------------------------------------------------------------------------------- */

Test(tasks, questions_are_worded_in_several_ways) {
    for (int task = 0; task < FV_N_TASK; task++) {
        char starts[64][12];
        int32_t n = 0;
        for (uint64_t i = 0; i < 100; i++) {
            fv_item item = make(FV_SPLIT_TRAIN, task, i);
            char start[12];
            int32_t k = 0;
            snprintf(start, sizeof start, "%.11s", item.turn[0].question);
            while (k < n && strcmp(starts[k], start) != 0) k++;
            if (k == n && n < 64) strcpy(starts[n++], start);
        }
        cr_assert_geq(n, 3, "%s has %d", fv_task_describe(task)->name, n);
    }
}

Test(tasks, an_item_is_the_same_again_and_others_are_others) {
    for (int task = 0; task < FV_N_TASK; task++) {
        static fv_item a, b, c;
        cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)task, 5, NULL, &a), FV_OK);
        cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)task, 5, NULL, &b), FV_OK);
        cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)task, 6, NULL, &c), FV_OK);
        cr_assert_eq(memcmp(a.scene, b.scene, sizeof a.scene), 0);
        cr_assert_str_eq(a.turn[0].question, b.turn[0].question);
        cr_assert_neq(a.scene[0].look, c.scene[0].look);
        if (a.n_image == 2) cr_assert_neq(a.scene[0].look, a.scene[1].look);
    }
}

Test(tasks, few_objects_suffice_for_all_but_captions) {
    const fv_scene_knobs knobs = {1, 2, 0, 0, 0, false};
    for (int task = 0; task < FV_N_TASK; task++)
        for (uint64_t i = 0; i < 100; i++) {
            fv_item item;
            cr_assert_eq(fv_item_make(FV_SPLIT_TRAIN, (fv_scene_task)task, i, &knobs, &item), FV_OK,
                         "%s", fv_last_error());
            if (task == FV_TASK_CAPTION) continue;
            for (int32_t k = 0; k < item.n_image; k++) cr_assert_leq(item.scene[k].n_object, 2);
            check_true(&item);
        }
}

Test(tasks, what_is_out_of_range_is_refused) {
    fv_item item;
    cr_assert_eq(fv_item_make(FV_SPLIT_TEST, FV_N_TASK, 0, NULL, &item), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "no task 11"));
    cr_assert_eq(fv_item_make(FV_N_SPLIT, FV_TASK_CELL, 0, NULL, &item), FV_EINVAL);
    cr_assert_eq(fv_item_make(FV_SPLIT_TEST, FV_TASK_CELL, UINT64_C(1) << 40, NULL, &item),
                 FV_EINVAL);
    fv_scene_knobs knobs = {5, 2, 0, 0, 0, false};
    cr_assert_eq(fv_item_make(FV_SPLIT_TEST, FV_TASK_CELL, 0, &knobs, &item), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "5 to 2 objects"), "%s", fv_last_error());
    cr_assert_null(fv_task_describe(-1));
    cr_assert_null(fv_task_describe(FV_N_TASK));
}

Test(tasks, scenes_that_do_not_suit_are_not_asked_about) {
    fv_scene none = {.n_object = 0};
    fv_turn turn[FV_ITEM_TURNS];
    fv_scene_task tasks[] = {FV_TASK_SHAPE, FV_TASK_COLOR,  FV_TASK_EXISTS,  FV_TASK_RELATION,
                             FV_TASK_CELL,  FV_TASK_NUMBER, FV_TASK_WRITTEN, FV_TASK_DIALOG};
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        cr_assert(!fv_task_ask(tasks[i], &none, 1, turn));
}

/* Every text of the first items, and which scenes they are about. */
static uint64_t digest_of(int task) {
    uint64_t digest = 0;
    for (uint64_t i = 0; i < 200; i++) {
        fv_item item = make(FV_SPLIT_TEST, task, i);
        for (int32_t k = 0; k < item.n_image; k++)
            digest = XXH64(&item.scene[k].look, sizeof item.scene[k].look, digest);
        for (int32_t k = 0; k < item.n_turn; k++) {
            const fv_turn *t = &item.turn[k];
            digest = XXH64(t->question, strlen(t->question), digest);
            digest = XXH64(t->answer, strlen(t->answer), digest);
            digest = XXH64(t->restated, strlen(t->restated), digest);
        }
    }
    return digest;
}

Test(tasks, items_are_those_of_the_day_they_were_fixed) {
    static const uint64_t golden[FV_N_TASK] = {
        [FV_TASK_SHAPE] = UINT64_C(0x6a6029670e437ab8),
        [FV_TASK_COLOR] = UINT64_C(0x558815f0eeae1068),
        [FV_TASK_COUNT] = UINT64_C(0x24cc9cfd92b7c277),
        [FV_TASK_EXISTS] = UINT64_C(0x1dad06e70af7ec21),
        [FV_TASK_RELATION] = UINT64_C(0xae9d9de14376fc3f),
        [FV_TASK_CELL] = UINT64_C(0x71e48f9568256d83),
        [FV_TASK_NUMBER] = UINT64_C(0xf2cd9fd2b95857c3),
        [FV_TASK_WRITTEN] = UINT64_C(0xeebfb45c685db923),
        [FV_TASK_COMPARE] = UINT64_C(0x4dde43da90d60735),
        [FV_TASK_DIALOG] = UINT64_C(0x7d79f8e7b8bfb04f),
        [FV_TASK_CAPTION] = UINT64_C(0x933a29466ff15d83),
    };
    for (int task = 0; task < FV_N_TASK; task++) {
        uint64_t digest = digest_of(task);
        cr_expect_eq(digest, golden[task], "%s: %#llx", fv_task_describe(task)->name,
                     (unsigned long long)digest);
    }
}
