/* router/admit.c: valid requests, and how many bytes they may take. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan/plan.h"
#include "router/admit.h"
#include "serving/policy_message.h"
#include "tests/support/choice.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;

static Fovea__Inference__V1__Limits limits;
static Fovea__Inference__V1__Model model;
static Fovea__Inference__V1__Prompt prompt;
static Fovea__Inference__V1__TokenIds ids;
static Fovea__Inference__V1__Sampling sampling;
static Fovea__Inference__V1__Image image;
static Fovea__Inference__V1__Image *images[3] = {&image, &image, &image};
static uint32_t id_list[] = {1, 2, 999, 3};
/* The header of a PNG of 20 x 10 pixels. */
static uint8_t bytes[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x14\0\0\0\x0a";
static request_message req;
static fv_request_bounds need;
static uint32_t tokens_default = 64;
static uint32_t keep_ms_max;

/* Four ids, one of them an image's, for a model of 4 layers, 2 KV heads of 8 numbers. */
static Fovea__Inference__V1__ImageLayout layout;

static void setup(void) {
    fovea__inference__v1__limits__init(&limits);
    limits.max_positions = 256;
    limits.bytes_image = 1000;
    limits.n_images = 2;
    fovea__inference__v1__model__init(&model);
    model.name = (char *)"m";
    model.fingerprint = (char *)"f00d";
    model.n_layer = 4;
    model.n_kv = 2;
    model.d_head = 8;
    model.n_vocab = 1000;
    model.kv_dtype = (char *)"bf16";
    model.image_token = 999;
    fovea__inference__v1__image_layout__init(&layout); /* 16 tokens an image */
    layout.family = (char *)"llava";
    layout.tile = layout.shortest_edge = 56;
    layout.patch = 14;
    layout.merge = 1;
    layout.tower_class_token = true;
    model.image_layout = &layout;
    model.limits = &limits;
    fovea__inference__v1__token_ids__init(&ids);
    ids.n_id = 4;
    ids.id = id_list;
    fovea__inference__v1__prompt__init(&prompt);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt.ids = &ids;
    fovea__inference__v1__image__init(&image);
    image.data = (ProtobufCBinaryData){sizeof bytes, bytes};
    fovea__inference__v1__sampling__init(&sampling);
    fovea__inference__v1__generate_request__init(&req);
    req.prompt = &prompt;
    req.n_images = 1;
    req.images = images;
    req.max_tokens = 10;
}

TestSuite(router_admit, .init = setup);

static void refused(fv_status st, const char *words) {
    cr_assert_eq(fv_admit(&req, &model, keep_ms_max, tokens_default, &need), st, "%s",
                 fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
}

static void admitted(void) {
    cr_assert_eq(fv_admit(&req, &model, keep_ms_max, tokens_default, &need), FV_OK, "%s",
                 fv_last_error());
}

Test(router_admit, the_bound_is_rows_times_bytes) {
    admitted();
    cr_assert_eq(need.max_tokens, 10);
    /* 3 text, 16 visual and 10 new tokens in 4 layers of 2 heads; K and V of 8 bf16 each */
    cr_assert_eq(need.bytes, (uint64_t)(3 + 16 + 10) * 4 * 2 * 2 * 8 * 2);
}

Test(router_admit, text_that_no_context_has_room_for_is_refused_by_its_bytes) {
    static char text[2000];
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "<image>", 7);
    limits.bytes_text = sizeof text - 1 - 7;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = text;
    admitted();
    limits.bytes_text--;
    refused(FV_EINVAL, "the text has 1992 bytes, but the model's context of 256 tokens");
    limits.bytes_text = 0; /* a worker that does not say */
    admitted();
}

Test(router_admit, the_text_of_all_turns_counts) {
    Fovea__Inference__V1__Chat chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    Fovea__Inference__V1__Turn turn[2] = {FOVEA__INFERENCE__V1__TURN__INIT,
                                          FOVEA__INFERENCE__V1__TURN__INIT};
    Fovea__Inference__V1__Turn *turns[2] = {&turn[0], &turn[1]};
    turn[0].role = (char *)"system";
    turn[1].role = (char *)"user";
    turn[0].text = (char *)"0123456789";
    turn[1].text = (char *)"01234";
    turn[1].n_images = 1;
    chat.n_turns = 2;
    chat.turns = turns;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    prompt.chat = &chat;
    limits.bytes_text = 15;
    admitted();
    limits.bytes_text = 14;
    refused(FV_EINVAL, "the text has 15 bytes");
    /* the same as parts */
    Fovea__Inference__V1__NextImage next = FOVEA__INFERENCE__V1__NEXT_IMAGE__INIT;
    Fovea__Inference__V1__Part text = FOVEA__INFERENCE__V1__PART__INIT, picture = text;
    Fovea__Inference__V1__Part *parts[2] = {&text, &picture};
    text.kind_case = FOVEA__INFERENCE__V1__PART__KIND_TEXT;
    text.text = (char *)"01234";
    picture.kind_case = FOVEA__INFERENCE__V1__PART__KIND_IMAGE;
    picture.image = &next;
    turn[1].n_parts = 2;
    turn[1].parts = parts;
    refused(FV_EINVAL, "turn 1 has parts as well as text or n_images");
    turn[1].text = (char *)"";
    turn[1].n_images = 0;
    refused(FV_EINVAL, "the text has 15 bytes");
    limits.bytes_text = 15;
    admitted();
    next.ahead = (char *)"<1>";
    refused(FV_EINVAL, "the text has 18 bytes");
    char longer[66];
    memset(longer, 'x', 65);
    longer[65] = 0;
    next.ahead = longer;
    refused(FV_EINVAL, "part 1 of turn 1: ahead has more than 64 bytes");
    picture.kind_case = FOVEA__INFERENCE__V1__PART__KIND__NOT_SET;
    refused(FV_EINVAL, "part 1 of turn 1 is neither text, image nor video");
}

Test(router_admit, the_bound_follows_the_policy) {
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    Fovea__Inference__V1__StagePolicy stage = FOVEA__INFERENCE__V1__STAGE_POLICY__INIT;
    Fovea__Inference__V1__Param param = FOVEA__INFERENCE__V1__PARAM__INIT;
    Fovea__Inference__V1__Param *params = &param;
    Fovea__Inference__V1__StagePolicy *stages = &stage;
    stage.stage = (char *)"prune";
    stage.method = (char *)"vtw";
    param.name = (char *)"layer";
    param.value = 2;
    stage.n_params = 1;
    stage.params = &params;
    policy.n_stages = 1;
    policy.stages = &stages;
    req.policy = &policy;
    admitted();
    cr_assert_eq(need.bytes, ((uint64_t)(3 + 10) * 4 + 16 * 2) * 2 * 2 * 8 * 2);
    param.value = 77;
    refused(FV_EINVAL, "layer");
    stage.method = (char *)"no;such=method";
    refused(FV_EINVAL, "no;such=method");
}

/* The map is the checkpoint's: prefill workers send it when they join. */
Test(router_admit, the_bound_of_a_calibrated_map_is_that_of_the_map) {
    Fovea__Inference__V1__Policy *vla, *gla;
    uint32_t source_layers[4] = {0, 1, 1, 1};
    fv_policy p;
    fv_arena arena = {0};
    const uint64_t part = 2 * 8 * 2; /* keys, or values, of a token in a layer */
    cr_assert_eq(fv_policy_parse("lazy=vla,map=calibrated", &p), FV_OK);
    cr_assert_eq(fv_policy_to_message(&p, &arena, &vla), FV_OK);
    cr_assert_eq(fv_policy_parse("lazy=gla,map=calibrated", &p), FV_OK);
    cr_assert_eq(fv_policy_to_message(&p, &arena, &gla), FV_OK);
    req.policy = vla;
    refused(FV_EINVAL, "fovea calibrate");
    model.uncalibrated = (char *)"it is of other weights";
    refused(FV_EINVAL, "it is of other weights");
    model.uncalibrated = (char *)"";
    model.n_lazy_source_layers = 4;
    model.lazy_source_layers = source_layers;
    admitted();
    cr_assert_eq(need.bytes, ((3 + 16 + 10) * 8 - 16 * 2) * part, "keys of image rows");
    req.policy = gla;
    admitted();
    cr_assert_eq(need.bytes, (3 + 16 + 10) * (8 - 2) * part, "and of text rows");
    model.n_lazy_source_layers = 3; /* of another depth: ignored */
    refused(FV_EINVAL, "fovea calibrate");
    fv_arena_fini(&arena);
}

/* Bits by steps of the error are the checkpoint's, too. */
Test(router_admit, the_bound_of_latents_follows_their_error) {
    Fovea__Inference__V1__Policy *latent;
    static uint32_t steps[60];
    fv_policy p;
    fv_arena arena = {0};
    cr_assert_eq(fv_policy_parse("pack=latent,budget=1/16,error=0.1", &p), FV_OK);
    cr_assert_eq(fv_policy_to_message(&p, &arena, &latent), FV_OK);
    req.policy = latent;
    model.latent_layers = 4;
    model.latent_directions = 16;
    admitted();
    uint64_t budget = need.bytes;
    model.n_latent_steps = 60;
    model.latent_steps = steps;
    steps[39] = 20;
    admitted();
    uint64_t less = need.bytes;
    cr_assert(less < budget, "%d, and without the error %d", (int)less, (int)budget);
    for (int i = 0; i < 60; i++) steps[i] = UINT32_MAX; /* no worker's */
    admitted();
    cr_assert_eq(need.bytes, budget);
    steps[39] = 20;
    model.n_latent_steps = 59;
    admitted();
    cr_assert_eq(need.bytes, budget);
    fv_arena_fini(&arena);
}

/* Tokens left after 1, 2, 3 of 4 layers; 16 at first. */
Test(router_admit, the_bound_of_what_was_calibrated_is_that_of_the_checkpoint) {
    Fovea__Inference__V1__Schedule fitted = FOVEA__INFERENCE__V1__SCHEDULE__INIT, *list = &fitted;
    Fovea__Inference__V1__Policy *vtw, *fitprune;
    uint32_t leave[4] = {288, 0, 144, 144};
    fv_policy p;
    fv_arena arena = {0};
    const uint64_t row = 2 * 2 * 8 * 2;
    cr_assert_eq(fv_policy_parse("prune=vtw,from=calibrated", &p), FV_OK);
    cr_assert_eq(fv_policy_to_message(&p, &arena, &vtw), FV_OK);
    cr_assert_eq(fv_policy_parse("prune=fitprune,target=70", &p), FV_OK);
    cr_assert_eq(fv_policy_to_message(&p, &arena, &fitprune), FV_OK);
    req.policy = vtw;
    refused(FV_EINVAL, "fovea calibrate");
    model.vtw_layer = 3;
    admitted();
    cr_assert_eq(need.bytes, ((3 + 10) * 4 + 3 * 16) * row);
    model.vtw_layer = 5; /* impossible for this model */
    refused(FV_EINVAL, "fovea calibrate");
    req.policy = fitprune;
    admitted();
    uint64_t published = need.bytes;
    fitted.target = 70;
    fitted.n_dropped = 4;
    fitted.dropped = leave;
    model.n_fitprune = 1;
    model.fitprune = &list;
    admitted();
    cr_assert_eq(need.bytes, ((3 + 10) * 4 + 16 + 8 + 8 + 4) * row);
    leave[3] = 145; /* more than there are */
    admitted();
    cr_assert_eq(need.bytes, published);
    leave[3] = 144;
    fitted.n_dropped = 3;
    admitted();
    cr_assert_eq(need.bytes, published);
    fv_arena_fini(&arena);
}

Test(router_admit, an_answer_is_bounded_by_the_positions_that_are_left) {
    req.max_tokens = 100000;
    admitted();
    cr_assert_leq(need.bytes, (uint64_t)(256 + 256) * 4 * 2 * 2 * 8 * 2);
}

Test(router_admit, zero_tokens_is_the_default) {
    req.max_tokens = 0;
    tokens_default = 7;
    admitted();
    cr_assert_eq(need.max_tokens, 7);
    tokens_default = 0;
    admitted();
    cr_assert_eq(need.max_tokens, limits.max_positions, "the rest of the context bounds it");
}

static uint64_t bytes_of(const char *text) {
    Fovea__Inference__V1__Policy *message;
    fv_arena arena = {0};
    fv_policy policy;
    cr_assert_eq(fv_policy_parse(text, &policy), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_policy_to_message(&policy, &arena, &message), FV_OK);
    uint64_t n = fv_admit_policy_bytes(message, &model);
    fv_arena_fini(&arena);
    return n;
}

Test(router_admit, presets_are_compared_by_what_they_hold_of_an_image_and_a_question) {
    model.n_image_tokens = 64;
    cr_assert_eq(bytes_of(""),
                 2 * 2 * 4 * 2 * 8 * (64 + 32)); /* K and V, bf16, layers, heads, D, tokens */
    cr_assert_eq(bytes_of("prune=vtw,layer=2"), 2 * 2 * 2 * 8 * (4 * 32 + 2 * 64));
    cr_assert_lt(bytes_of("prune=fastv,layer=2,keep=0.25"),
                 bytes_of("prune=fastv,layer=2,keep=0.5"));
    model.no_latent = (char *)"none";
    cr_assert_gt(bytes_of("preset=latent"), 0);
}

Test(router_admit, a_model_goes_by_its_names_and_no_other) {
    static char *aliases[] = {(char *)"gpt-4o", (char *)"pictures"};
    model.n_aliases = 2;
    model.aliases = aliases;
    static const char *const its[] = {"", "m", "f00d", "gpt-4o", "pictures"};
    static const char *const others[] = {"M", "gpt-4", "gpt-4o-mini", " m"};
    for (int i = 0; i < 5; i++) cr_assert_eq(fv_admit_model(its[i], &model), FV_OK, "%s", its[i]);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(fv_admit_model(others[i], &model), FV_ENOTFOUND, "%s", others[i]);
}

Test(router_admit, an_adapter_goes_by_its_name) {
    Fovea__Inference__V1__Adapter x = FOVEA__INFERENCE__V1__ADAPTER__INIT, *all[] = {&x};
    x.name = (char *)"sql";
    cr_assert_eq(fv_admit_model("sql", &model), FV_ENOTFOUND);
    model.n_adapters = 1;
    model.adapters = all;
    cr_assert_eq(fv_admit_model("sql", &model), FV_OK);
    cr_assert_eq(fv_admit_model("sq", &model), FV_ENOTFOUND);
    cr_assert_str_eq(fv_model_adapter(&model, "sql"), "sql");
    cr_assert_null(fv_model_adapter(&model, "m"));
    cr_assert_null(fv_model_adapter(&model, ""));
    req.model = (char *)"sql";
    admitted();
    model.n_adapters = 0;
}

Test(router_admit, another_model_is_not_found) {
    req.model = (char *)"other";
    refused(FV_ENOTFOUND, "other");
    req.model = (char *)"m";
    admitted();
    req.model = (char *)"f00d";
    admitted();
}

Test(router_admit, a_request_id_is_printable_and_short) {
    char id[130];
    memset(id, 'x', sizeof id);
    id[128] = '\0';
    req.request_id = id;
    admitted();
    id[128] = 'x';
    id[129] = '\0';
    refused(FV_EINVAL, "request_id");
    req.request_id = (char *)"a b";
    refused(FV_EINVAL, "request_id");
    req.request_id = (char *)"\xc3\xa4";
    refused(FV_EINVAL, "request_id");
}

Test(router_admit, a_prompt_is_needed) {
    req.prompt = NULL;
    refused(FV_EINVAL, "no prompt");
    req.prompt = &prompt;
    ids.n_id = 0;
    req.n_images = 0;
    refused(FV_EINVAL, "no token ids");
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"";
    refused(FV_EINVAL, "empty");
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM__NOT_SET;
    refused(FV_EINVAL, "no prompt");
}

Test(router_admit, ids_are_in_the_vocabulary) {
    id_list[3] = 1000;
    refused(FV_EINVAL, "1000");
    id_list[3] = 998;
    admitted();
}

Test(router_admit, as_many_images_as_the_prompt_mentions) {
    req.n_images = 2;
    refused(FV_EINVAL, "places 1 image, but the request has 2");
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"<image> and <image>";
    admitted();
    prompt.text = (char *)"<image><image><image>";
    req.n_images = 3;
    refused(FV_EINVAL, "the limit is 2");
    image.data.len = 1001;
    req.n_images = 2;
    prompt.text = (char *)"<image><image>";
    refused(FV_EINVAL, "1001 bytes");
    image.data.len = 0;
    refused(FV_EINVAL, "no bytes");
}

Test(router_admit, an_image_without_a_header_is_refused_and_named) {
    static uint8_t other[] = "this is not an image, says its first line";
    static Fovea__Inference__V1__Image second;
    images[1] = &second;
    second = image;
    second.data = (ProtobufCBinaryData){sizeof other, other};
    req.n_images = 2;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"<image> and <image>";
    refused(FV_EINVAL, "image 1: the image starts with bytes 74 68 69 73");
    second.data = (ProtobufCBinaryData){20, bytes};
    refused(FV_EINVAL, "image 1: the PNG has no header");
    model.limits = NULL;
    refused(FV_EINVAL, "image 1");
}

Test(router_admit, pixels_are_counted_from_headers_and_bounded) {
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"<image> and <image>";
    req.n_images = 2;
    admitted();
    cr_assert_eq(need.pixels, 400);
    layout.pad_square = true;
    admitted();
    cr_assert_eq(need.pixels, 800, "of the squares that they are padded to");
    layout.pad_square = false;
    limits.side_max = 20;
    limits.pixels_max = 200;
    limits.pixels_request = 400;
    admitted();
    limits.pixels_request = 399;
    refused(FV_EINVAL, "400 pixels in total; the limit is 399");
    limits.pixels_max = 199;
    refused(FV_EINVAL, "image 0: the PNG has 20 x 10 pixels; at most 199");
    limits.side_max = 19;
    refused(FV_EINVAL, "image 0: the PNG is 20 x 10 pixels; sides go up to 19");
}

Test(router_admit, images_must_fit_the_positions) {
    limits.max_positions = 16;
    refused(FV_EINVAL, "positions");
    limits.max_positions = 18;
    refused(FV_EINVAL, "positions");
    limits.max_positions = 19;
    admitted();
}

Test(router_admit, frames_of_a_video_have_one_mark_together) {
    static Fovea__Inference__V1__Video one, two;
    static Fovea__Inference__V1__Video *videos[] = {&one, &two};
    fovea__inference__v1__video__init(&one);
    fovea__inference__v1__video__init(&two);
    limits.n_images = 3;
    req.n_images = 3;
    req.n_videos = 1;
    req.videos = videos;
    one.n_frames = 3;
    one.fps = 2;
    id_list[2] = 998;
    refused(FV_EINVAL, "reads no videos: send their frames as images");
    model.video_token = 998;
    layout.family = (char *)"qwen_vl";
    layout.merge = 2;
    layout.pixels_min = layout.video_pixels_min = 784;
    layout.pixels_max = layout.video_pixels_max = 784 * 9;
    admitted();
    one.n_frames = 2;
    refused(FV_EINVAL, "the prompt places 1 image, but the request has 2");
    static const uint32_t wrong[][2] = {{0, 4}, {3, 1}, {4, 1}, {1, UINT32_MAX}};
    for (int i = 0; i < 4; i++) {
        one.first_image = wrong[i][0], one.n_frames = wrong[i][1];
        refused(FV_EINVAL, "on, and the request has 3 images");
    }
    one.first_image = 0, one.n_frames = 0;
    refused(FV_EINVAL, "video 0 has no frames");
    one.first_image = 0, one.n_frames = 2;
    two.first_image = 1, two.n_frames = 2;
    req.n_videos = 2;
    refused(FV_EINVAL, "video 1 begins with image 1, which is a frame of the video before it");
    one.n_frames = 1;
    refused(FV_EINVAL, "the prompt places 1 image, but the request has 2");
    limits.n_images = 2;
    req.n_videos = 1, one.n_frames = 3;
    refused(FV_EINVAL, "3 images; the limit is 2");
    limits.n_images = 3;
    double seconds[] = {0, 2, 1};
    one.seconds = seconds, one.n_seconds = 3;
    refused(FV_EINVAL, "frame 2 is at 1 seconds; its time must be from 2");
    one.n_seconds = 2;
    refused(FV_EINVAL, "3 frames and the times of 2: give each frame's, or none");
    id_list[2] = 999;
}

Test(router_admit, images_are_counted_as_the_request_bounds_them) {
    Fovea__Inference__V1__ImageBounds bounds = FOVEA__INFERENCE__V1__IMAGE_BOUNDS__INIT;
    layout.family = (char *)"qwen_vl";
    layout.merge = 2;
    layout.pixels_min = 784 * 4;
    layout.pixels_max = 784 * 64;
    admitted();
    const uint64_t least = need.tokens_known;
    req.image_bounds = &bounds;
    admitted();
    cr_assert_eq(need.tokens_known, least);
    bounds.pixels_min = bounds.pixels_max = 784 * 64;
    admitted();
    cr_assert_gt(need.tokens_known, least + 40);
    bounds.pixels_max = 784 * 65;
    refused(FV_EINVAL, "limits are 3136 to 50176");
}

Test(router_admit, a_chat_has_turns_of_any_role) {
    Fovea__Inference__V1__Chat chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    Fovea__Inference__V1__Turn turn[2];
    Fovea__Inference__V1__Turn *turns[] = {&turn[0], &turn[1]};
    char role[66] = "";
    for (int i = 0; i < 2; i++) fovea__inference__v1__turn__init(&turn[i]);
    turn[0].role = (char *)"system";
    turn[0].n_images = 1;
    turn[1].role = (char *)"assistant";
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    prompt.chat = &chat;
    chat.turns = turns;
    refused(FV_EINVAL, "no turns");
    chat.n_turns = 2;
    admitted();
    turn[1].role = (char *)"robot";
    admitted();
    turn[1].role = (char *)"";
    refused(FV_EINVAL, "turn 1: the role must have 1..64 bytes");
    memset(role, 'x', 65);
    turn[1].role = role;
    refused(FV_EINVAL, "turn 1: the role");
}

Test(router_admit, sampling_is_in_its_ranges) {
    req.sampling = &sampling;
    admitted();
    sampling.temperature = -1;
    refused(FV_EINVAL, "temperature");
    sampling.temperature = NAN;
    refused(FV_EINVAL, "temperature");
    sampling.temperature = 1;
    sampling.nucleus_case = FOVEA__INFERENCE__V1__SAMPLING__NUCLEUS_TOP_P;
    sampling.top_p = 1.5f;
    refused(FV_EINVAL, "top_p");
    sampling.top_p = 0;
    admitted();
    sampling.repetition_case = FOVEA__INFERENCE__V1__SAMPLING__REPETITION_REPETITION_PENALTY;
    sampling.repetition_penalty = -2;
    refused(FV_EINVAL, "repetition_penalty");
    sampling.repetition_penalty = 0;
    refused(FV_EINVAL, "repetition_penalty is 0; it must be above 0");
    sampling.repetition_penalty = NAN;
    refused(FV_EINVAL, "repetition_penalty");
    sampling.repetition_case = FOVEA__INFERENCE__V1__SAMPLING__REPETITION__NOT_SET;
    admitted();
    sampling.min_p = 1.5f;
    refused(FV_EINVAL, "min_p");
    sampling.min_p = 0;
    sampling.presence_penalty = -2.5f;
    refused(FV_EINVAL, "presence_penalty");
    sampling.presence_penalty = 0;
    sampling.frequency_penalty = NAN;
    refused(FV_EINVAL, "frequency_penalty");
    sampling.frequency_penalty = 0;
    req.n_logprobs = 21;
    refused(FV_EINVAL, "n_logprobs");
}

Test(router_admit, logit_biases_are_of_ids_of_the_model_and_in_range) {
    Fovea__Inference__V1__LogitBias b[2] = {FOVEA__INFERENCE__V1__LOGIT_BIAS__INIT,
                                            FOVEA__INFERENCE__V1__LOGIT_BIAS__INIT};
    Fovea__Inference__V1__LogitBias *list[301] = {&b[0], &b[1]};
    req.sampling = &sampling;
    sampling.logit_bias = list;
    sampling.n_logit_bias = 2;
    b[0].bias = -100;
    b[1].id = model.n_vocab - 1;
    admitted();
    b[1].id = 0;
    refused(FV_EINVAL, "id 0 twice");
    b[1].id = model.n_vocab;
    refused(FV_EINVAL, "logit_bias");
    b[1].id = 1;
    b[1].bias = NAN;
    refused(FV_EINVAL, "-100..100");
    sampling.n_logit_bias = 301;
    refused(FV_EINVAL, "301 ids");
}

Test(router_admit, rules_have_ids_of_the_model_and_bounded_lists) {
    static uint32_t many[1 << 20];
    static char text[258], *words[257];
    Fovea__Inference__V1__TokenRules rules = FOVEA__INFERENCE__V1__TOKEN_RULES__INIT;
    for (int i = 0; i < 257; i++) words[i] = (char *)"x";
    req.rules = &rules;
    rules.allowed_token_ids = many;
    rules.n_allowed_token_ids = 1 << 15;
    rules.stop_token_ids = many;
    rules.n_stop_token_ids = 256;
    rules.bad_words = words;
    rules.n_bad_words = 256;
    admitted();
    rules.n_allowed_token_ids = 1 << 20;
    refused(FV_EINVAL, "allowed_token_ids has 1048576 ids; the limit is 32768");
    rules.n_allowed_token_ids = 0;
    rules.n_stop_token_ids = 257;
    refused(FV_EINVAL, "stop_token_ids has 257 ids");
    rules.n_stop_token_ids = 1;
    many[0] = model.n_vocab;
    refused(FV_EINVAL, "stop_token_ids: id");
    many[0] = model.n_vocab - 1;
    rules.n_bad_words = 257;
    refused(FV_EINVAL, "bad_words has 257 words");
    rules.n_bad_words = 1;
    memset(text, 'x', 257);
    words[0] = text;
    refused(FV_EINVAL, "bad_words: word 0 must have 1..256 bytes");
    text[0] = '\0';
    refused(FV_EINVAL, "bad_words: word 0");
    rules.n_bad_words = 0;
    req.max_tokens = 4;
    rules.min_tokens = 4;
    admitted();
    rules.min_tokens = 5;
    refused(FV_EINVAL, "min_tokens is 5; it must be 0..4");
    req.max_tokens = 0;
    admitted();
    rules.min_tokens = UINT32_MAX;
    refused(FV_EINVAL, "min_tokens");
}

Test(router_admit, what_is_returned_of_the_prompt_is_in_range) {
    req.prompt_alternatives_case =
        FOVEA__INFERENCE__V1__GENERATE_REQUEST__PROMPT_ALTERNATIVES_PROMPT_LOGPROBS;
    req.prompt_logprobs = 20;
    admitted();
    req.prompt_logprobs = 21;
    refused(FV_EINVAL, "prompt_logprobs is 21");
    req.prompt_logprobs = 0;
    req.truncate_case = FOVEA__INFERENCE__V1__GENERATE_REQUEST__TRUNCATE_TRUNCATE_PROMPT_TOKENS;
    refused(FV_EINVAL, "truncate_prompt_tokens is 0");
    req.truncate_prompt_tokens = 1;
    admitted();
}

Test(router_admit, predictions_are_bounded) {
    static char prediction[(1 << 16) + 2];
    memset(prediction, 'x', sizeof prediction - 2);
    req.prediction = prediction;
    admitted();
    prediction[1 << 16] = 'x';
    refused(FV_EINVAL, "prediction has 65537 bytes");
}

Test(router_admit, stop_strings_are_few_and_short) {
    static char text[258];
    char *stop[17];
    for (int i = 0; i < 17; i++) stop[i] = text;
    memset(text, 'x', 256);
    req.stop = stop;
    req.n_stop = 16;
    admitted();
    req.n_stop = 17;
    refused(FV_EINVAL, "17 stop strings");
    req.n_stop = 1;
    text[256] = 'x';
    refused(FV_EINVAL, "stop string 0");
    text[0] = '\0';
    refused(FV_EINVAL, "stop string 0");
}

Test(router_admit, conversations_are_kept_for_so_long_and_no_longer) {
    keep_ms_max = 0;
    req.keep_ms = 1;
    refused(FV_EUNSUPPORTED, "keeps no conversations");
    keep_ms_max = 5000;
    req.keep_ms = 5000;
    admitted();
    req.keep_ms = 5001;
    refused(FV_EINVAL, "at most 5000 ms");
}

Test(router_admit, a_follow_up_is_text_alone) {
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    uint8_t name[100] = "0123456789abcdefd0";
    id_list[2] = 4;
    req.n_images = 0;
    req.conversation = (ProtobufCBinaryData){18, name};
    admitted();
    cr_assert_eq(need.bytes, (uint64_t)(4 + 10) * 4 * 2 * 2 * 8 * 2, "what it adds");
    req.conversation.len = 16;
    refused(FV_EINVAL, "16 bytes");
    req.conversation.len = 81;
    refused(FV_EINVAL, "81 bytes");
    req.conversation.len = 18;
    req.policy = &policy;
    refused(FV_EINVAL, "policy");
    req.policy = NULL;
    req.n_images = 1;
    refused(FV_EINVAL, "cannot add images");
}

Test(router_admit, ids_are_bounded_from_below_as_from_above_and_text_is_not) {
    admitted();
    cr_assert_eq(need.bytes_least, need.bytes);
    cr_assert_eq(need.bytes_prompt, (uint64_t)(3 + 16) * 4 * 2 * 2 * 8 * 2);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"<image> what is it?";
    admitted();
    cr_assert_eq(need.bytes_least, (uint64_t)(1 + 16 + 10) * 4 * 2 * 2 * 8 * 2);
    cr_assert_gt(need.bytes, need.bytes_least);
}
