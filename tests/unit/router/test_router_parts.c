/* router/parts.h: prompts have names in common as far as they are alike, and nothing else has. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "router/parts.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Turn turn_message;

enum { TURNS = 100 };

static const fv_key secret = {{1, 2, 3}};

/* A chat whose every turn has a text, and an image before it if images[i] is set. */
typedef struct chat {
    request_message msg;
    Fovea__Inference__V1__Prompt prompt;
    Fovea__Inference__V1__Chat chat;
    turn_message turn[TURNS], *turns[TURNS];
    Fovea__Inference__V1__Image image[TURNS], *images[TURNS];
} chat;

static chat *chat_new(void) {
    chat *c = calloc(1, sizeof *c);
    fovea__inference__v1__generate_request__init(&c->msg);
    fovea__inference__v1__prompt__init(&c->prompt);
    fovea__inference__v1__chat__init(&c->chat);
    c->msg.prompt = &c->prompt;
    c->msg.images = c->images;
    c->prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    c->prompt.chat = &c->chat;
    c->chat.turns = c->turns;
    return c;
}

static void say(chat *c, const char *text, const char *image) {
    turn_message *t = &c->turn[c->chat.n_turns];
    fovea__inference__v1__turn__init(t);
    t->role = (char *)(c->chat.n_turns % 2 ? "assistant" : "user");
    t->text = (char *)(uintptr_t)text;
    if (image) {
        Fovea__Inference__V1__Image *i = &c->image[c->msg.n_images];
        fovea__inference__v1__image__init(i);
        i->data = (ProtobufCBinaryData){strlen(image), (uint8_t *)(uintptr_t)image};
        c->images[c->msg.n_images++] = i;
        t->n_images = 1;
    }
    c->turns[c->chat.n_turns++] = t;
}

static fv_parts name_as(const request_message *m, const char *tenant, const char *adapter) {
    fv_parts p;
    const fv_parts_of of = {.msg = m,
                            .secret = &secret,
                            .tenant = tenant,
                            .adapter = adapter,
                            .word = {"<image>", "<video>"},
                            .image_token = 9,
                            .video_token = 8};
    cr_assert_eq(fv_parts_name(&of, &p), FV_OK);
    cr_assert(p.n >= 1 && p.n <= FV_PARTS_MAX);
    for (int32_t i = 1; i < p.n; i++) {
        const fv_part_end *a = &p.end[i - 1], *b = &p.end[i];
        cr_assert(a->name && b->name && a->items <= b->items && a->text <= b->text);
    }
    return p;
}

static fv_parts name(const request_message *m) { return name_as(m, "", ""); }

/* Number of names that both have. */
static int32_t common(const fv_parts *a, const fv_parts *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < a->n; i++)
        for (int32_t k = 0; k < b->n; k++) n += a->end[i].name == b->end[k].name;
    return n;
}

static fv_parts one(const char *text, const char *image) {
    chat *c = chat_new();
    say(c, text, image);
    fv_parts p = name(&c->msg);
    free(c);
    return p;
}

Test(router_parts, another_question_about_an_image_has_the_image_in_common) {
    fv_parts a = one("what is it?", "a photo"), b = one("and why?", "a photo"),
             other = one("what is it?", "a drawing");
    cr_assert_eq(a.n, 2); /* behind the image, and behind the turn */
    cr_assert(a.end[0].items == 1 && a.end[0].text == 0);
    cr_assert(a.end[1].items == 1 && a.end[1].text == strlen("what is it?"));
    cr_assert_eq(a.end[0].name, b.end[0].name);
    cr_assert_eq(common(&a, &b), 1);
    cr_assert_eq(common(&a, &other), 0);
    fv_parts again = one("what is it?", "a photo");
    cr_assert_eq(memcmp(&a, &again, sizeof a), 0);
}

Test(router_parts, a_chat_that_goes_on_has_all_before_in_common) {
    chat *c = chat_new();
    say(c, "what is it?", "a photo");
    fv_parts before = name(&c->msg);
    for (int i = 0; i < 8; i++) { /* more have too many names */
        say(c, "some answer", NULL);
        say(c, "some question", i == 5 ? "another photo" : NULL);
        fv_parts now = name(&c->msg);
        cr_assert_eq(common(&before, &now), before.n, "turn %d", i);
        before = now;
    }
    free(c);
}

Test(router_parts, a_long_chat_keeps_names_in_common_with_its_next_turn) {
    chat *c = chat_new();
    say(c, "what is it?", "a photo");
    fv_parts before = name(&c->msg);
    while (c->chat.n_turns + 2 <= TURNS) {
        say(c, "some answer", NULL);
        say(c, "some question", NULL);
        fv_parts now = name(&c->msg);
        /* Names in common are at most a few turns from the end. */
        cr_assert_geq(common(&before, &now), before.n / 3, "%zu turns", c->chat.n_turns);
        before = now;
    }
    cr_assert_leq(before.n, FV_PARTS_MAX);
    free(c);
}

Test(router_parts, a_long_text_is_cut_and_shared_up_to_where_it_differs) {
    enum { BYTES = 200000 };
    static char a[BYTES + 1], b[BYTES + 1];
    memset(a, 'x', BYTES);
    memset(b, 'x', BYTES);
    b[BYTES - 10] = 'y';
    fv_parts x = one(a, NULL), y = one(b, NULL);
    cr_assert_eq(x.n, y.n);
    cr_assert_eq(common(&x, &y), x.n - 1);
    b[10] = 'y';
    y = one(b, NULL);
    cr_assert_eq(common(&x, &y), 0);
}

Test(router_parts, tenants_salts_and_whatever_shapes_all_of_it_have_nothing_in_common) {
    chat *c = chat_new();
    say(c, "what is it?", "a photo");
    fv_parts p[8];
    p[0] = name_as(&c->msg, "", "");
    p[1] = name_as(&c->msg, "a", "");
    p[2] = name_as(&c->msg, "b", "");
    p[3] = name_as(&c->msg, "", "an adapter");
    c->msg.cache_salt = (char *)"a";
    p[4] = name_as(&c->msg, "", "");
    c->msg.cache_salt = (char *)"";
    c->chat.template_ = (char *)"chatml";
    p[5] = name_as(&c->msg, "", "");
    c->chat.variables = (char *)"{}";
    p[6] = name_as(&c->msg, "", "");
    c->msg.truncate_case = FOVEA__INFERENCE__V1__GENERATE_REQUEST__TRUNCATE_TRUNCATE_PROMPT_TOKENS;
    p[7] = name_as(&c->msg, "", "");
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < i; k++) cr_assert_eq(common(&p[i], &p[k]), 0, "%d and %d", i, k);
    free(c);
}

Test(router_parts, images_in_plain_text_and_among_ids_are_ends) {
    Fovea__Inference__V1__Image image = FOVEA__INFERENCE__V1__IMAGE__INIT, *images[] = {&image};
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    Fovea__Inference__V1__TokenIds ids = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    request_message m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    uint32_t id[] = {1, 2, 9, 3};
    image.data = (ProtobufCBinaryData){3, (uint8_t *)(uintptr_t) "abc"};
    m.prompt = &prompt;
    m.n_images = 1;
    m.images = images;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"USER: <image>\nwhat is it?";
    fv_parts a = name(&m);
    cr_assert_eq(a.n, 2);
    cr_assert(a.end[0].items == 1 && a.end[0].text == strlen("USER: "));
    prompt.text = (char *)"USER: <image>\nand why?";
    fv_parts b = name(&m);
    cr_assert_eq(common(&a, &b), 1);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt.ids = &ids;
    ids.n_id = 4;
    ids.id = id;
    a = name(&m);
    cr_assert_eq(a.n, 2);
    cr_assert(a.end[0].items == 1 && a.end[0].text == 8 && a.end[1].text == 12);
    id[3] = 4;
    b = name(&m);
    cr_assert_eq(common(&a, &b), 1);
    id[0] = 7;
    b = name(&m);
    cr_assert_eq(common(&a, &b), 0);
}

/* Marks without images, which the worker refuses, and numbers of images that lie. */
Test(router_parts, odd_messages_are_named_too) {
    chat *c = chat_new();
    say(c, "", NULL);
    cr_assert_eq(name(&c->msg).n, 1);
    c->turn[0].n_images = UINT32_MAX;
    cr_assert_eq(name(&c->msg).n, 1);
    say(c, "what?", "a photo");
    c->turn[0].n_images = UINT32_MAX;
    (void)name(&c->msg);
    Fovea__Inference__V1__Video video = FOVEA__INFERENCE__V1__VIDEO__INIT, *videos[] = {&video};
    video.n_frames = UINT32_MAX;
    video.first_image = UINT32_MAX;
    c->msg.n_videos = 1;
    c->msg.videos = videos;
    Fovea__Inference__V1__Part part = FOVEA__INFERENCE__V1__PART__INIT, *parts[] = {&part, &part};
    part.kind_case = FOVEA__INFERENCE__V1__PART__KIND_VIDEO;
    c->turn[1].n_images = 0;
    c->turn[1].n_parts = 2;
    c->turn[1].parts = parts;
    (void)name(&c->msg);
    free(c);
}
