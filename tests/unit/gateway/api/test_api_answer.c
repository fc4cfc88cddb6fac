/* gateway/api/answer.h: the JSON that clients read. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/answer.h"
#include "gateway/api/message_json.h"

/* Compares JSON with a text; takes the JSON. */
static void is(json_t *json, const char *text) {
    char *got = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    cr_assert_str_eq(got, text);
    free(got);
    json_decref(json);
}

static json_t *whole(const fv_api_names *names, const fv_api_choice *choices, int32_t n,
                     const fv_api_usage *usage) {
    char *printed;
    size_t n_printed;
    cr_assert_eq(fv_api_whole(names, choices, n, usage, &printed, &n_printed), FV_OK);
    json_t *read = json_loadb(printed, n_printed, JSON_REJECT_DUPLICATES, NULL);
    free(printed);
    return read;
}

static const fv_api_names chat = {FV_API_CHAT, "id", "nano", 7},
                          text = {FV_API_TEXT, "id", "nano", 7};

Test(api_answer, chunks_and_whole_answers_have_their_shapes) {
    fv_api_usage usage = {.n_prompt = 3, .n_answer = 4, .n_cached = 2};
    fv_api_choice c = {.index = 1, .text = "a"},
                  last = {.index = 1,
                          .finish = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH};
    is(fv_api_chunk(&chat, &c, false, NULL),
       "{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null,\"index\":1,"
       "\"logprobs\":null}],\"created\":7,\"id\":\"id\",\"model\":\"nano\","
       "\"object\":\"chat.completion.chunk\"}");
    is(fv_api_chunk(&chat, &last, true, NULL),
       "{\"choices\":[{\"delta\":{},\"finish_reason\":\"length\",\"index\":1,\"logprobs\":null}],"
       "\"created\":7,\"id\":\"id\",\"model\":\"nano\",\"object\":\"chat.completion.chunk\","
       "\"usage\":null}");
    is(fv_api_chunk(&text, NULL, true, &usage),
       "{\"choices\":[],\"created\":7,\"id\":\"id\",\"model\":\"nano\","
       "\"object\":\"text_completion\",\"usage\":{\"completion_tokens\":4,\"prompt_tokens\":3,"
       "\"prompt_tokens_details\":{\"cached_tokens\":2},\"total_tokens\":7}}");
    fv_api_usage drafted = {.n_prompt = 3, .n_answer = 4, .n_drafted = 5, .n_drafts_kept = 3};
    is(fv_api_chunk(&text, NULL, true, &drafted),
       "{\"choices\":[],\"created\":7,\"id\":\"id\",\"model\":\"nano\","
       "\"object\":\"text_completion\",\"usage\":{\"completion_tokens\":4,"
       "\"completion_tokens_details\":{\"accepted_prediction_tokens\":3,"
       "\"rejected_prediction_tokens\":2},\"prompt_tokens\":3,"
       "\"prompt_tokens_details\":{\"cached_tokens\":0},\"total_tokens\":7}}");
    c.finish = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP;
    is(whole(&chat, &c, 1, &usage),
       "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":1,\"logprobs\":null,\"message\":"
       "{\"content\":\"a\",\"role\":\"assistant\"}}],\"created\":7,\"id\":\"id\",\"model\":"
       "\"nano\","
       "\"object\":\"chat.completion\",\"usage\":{\"completion_tokens\":4,\"prompt_tokens\":3,"
       "\"prompt_tokens_details\":{\"cached_tokens\":2},\"total_tokens\":7}}");
}

/* Makes the logprobs of tokens, as a chunk has them. */
static json_t *logprobs_of(fv_api_logprobs *l, const Fovea__Inference__V1__Tokens *t) {
    json_t *out;
    cr_assert_eq(fv_api_logprobs_add(l, t), FV_OK);
    cr_assert_eq(fv_api_logprobs_take(l, UINT32_MAX, &out), FV_OK);
    return out;
}

Test(api_answer, logprobs_have_strings_and_bytes_also_of_half_a_character) {
    Fovea__Inference__V1__Token t = FOVEA__INFERENCE__V1__TOKEN__INIT, *list = &t;
    Fovea__Inference__V1__Alternative a = FOVEA__INFERENCE__V1__ALTERNATIVE__INIT, *as = &a;
    Fovea__Inference__V1__Tokens m = FOVEA__INFERENCE__V1__TOKENS__INIT;
    fv_api_logprobs of_chat = {.kind = FV_API_CHAT}, of_text = {.kind = FV_API_TEXT, .base = 3};
    uint8_t half[] = {'x', 0xc3};
    t.id = 8;
    t.text = (ProtobufCBinaryData){2, half};
    t.text_offset = 2;
    t.logprob = -INFINITY;
    a.id = 9;
    a.text = (ProtobufCBinaryData){1, half};
    a.logprob = -0.5f;
    t.alternatives = &as;
    t.n_alternatives = 1;
    m.tokens = &list;
    m.n_tokens = 1;
    is(logprobs_of(&of_chat, &m),
       "{\"content\":[{\"bytes\":[120,195],\"logprob\":-9999.0,\"token\":\"x\xEF\xBF\xBD\","
       "\"top_logprobs\":[{\"bytes\":[120],\"logprob\":-0.5,\"token\":\"x\"}]}]}");
    is(logprobs_of(&of_text, &m),
       "{\"text_offset\":[5],\"token_logprobs\":[-9999.0],\"tokens\":[\"bytes:\\\\x78\\\\xc3\"],"
       "\"top_logprobs\":[{\"bytes:\\\\x78\\\\xc3\":-9999.0,\"x\":-0.5}]}");
    of_chat.as_ids = of_text.as_ids = true;
    is(logprobs_of(&of_text, &m),
       "{\"text_offset\":[5],\"token_logprobs\":[-9999.0],\"tokens\":[\"token_id:8\"],"
       "\"top_logprobs\":[{\"token_id:8\":-9999.0,\"token_id:9\":-0.5}]}");
    is(logprobs_of(&of_chat, &m),
       "{\"content\":[{\"bytes\":[120,195],\"logprob\":-9999.0,\"token\":\"token_id:8\","
       "\"top_logprobs\":[{\"bytes\":[120],\"logprob\":-0.5,\"token\":\"token_id:9\"}]}]}");
    fv_api_logprobs_free(&of_chat);
    fv_api_logprobs_free(&of_text);
}

Test(api_answer, equal_texts_do_not_overwrite_each_other) {
    Fovea__Inference__V1__Token t = FOVEA__INFERENCE__V1__TOKEN__INIT, *list = &t;
    Fovea__Inference__V1__Alternative a[2], *as[] = {&a[0], &a[1]};
    Fovea__Inference__V1__Tokens m = FOVEA__INFERENCE__V1__TOKENS__INIT;
    fv_api_logprobs l = {.kind = FV_API_TEXT};
    uint8_t text_of[] = "x";
    for (int i = 0; i < 2; i++) {
        fovea__inference__v1__alternative__init(&a[i]);
        a[i].id = 10 + (uint32_t)i;
        a[i].text = (ProtobufCBinaryData){1, text_of};
        a[i].logprob = -0.5f * (float)(i + 1);
    }
    t.id = 11;
    t.text = a[0].text;
    t.logprob = -1;
    t.alternatives = as;
    t.n_alternatives = 2;
    m.tokens = &list;
    m.n_tokens = 1;
    is(logprobs_of(&l, &m), "{\"text_offset\":[0],\"token_logprobs\":[-1.0],\"tokens\":[\"x\"],"
                            "\"top_logprobs\":[{\"token_id:11\":-1.0,\"x\":-0.5}]}");
    fv_api_logprobs_free(&l);
}

Test(api_answer, logprobs_wait_for_their_text) {
    static const char *const chars[] = {"a", "", "b", "\xc3\xa4", "c"};
    static const uint32_t offsets[] = {0, 1, 1, 2, 3};
    Fovea__Inference__V1__Token t[5], *list[5];
    Fovea__Inference__V1__Tokens m = FOVEA__INFERENCE__V1__TOKENS__INIT;
    fv_api_logprobs l = {.kind = FV_API_TEXT};
    json_t *out;
    for (int i = 0; i < 5; i++) {
        fovea__inference__v1__token__init(&t[i]);
        t[i].text = (ProtobufCBinaryData){strlen(chars[i]), (uint8_t *)(uintptr_t)chars[i]};
        t[i].text_offset = offsets[i];
        list[i] = &t[i];
    }
    m.tokens = list;
    m.n_tokens = 5;
    cr_assert_eq(fv_api_logprobs_add(&l, &m), FV_OK);
    cr_assert_eq(fv_api_logprobs_take(&l, 0, &out), FV_OK);
    cr_assert_null(out);
    cr_assert_eq(fv_api_logprobs_take(&l, 1, &out), FV_OK);
    is(json_copy(json_object_get(out, "tokens")), "[\"a\"]");
    json_decref(out);
    cr_assert_eq(fv_api_logprobs_take(&l, 3, &out), FV_OK);
    is(json_copy(json_object_get(out, "tokens")), "[\"\",\"b\",\"\xc3\xa4\"]");
    is(json_copy(json_object_get(out, "text_offset")), "[1,1,2]");
    json_decref(out);
    cr_assert_eq(l.n_held, 1, "what a stop string cuts off is never given out");
    fv_api_logprobs_free(&l);
}

Test(api_answer, logprobs_of_a_prompt_are_null_where_there_are_none) {
    Fovea__Inference__V1__Token t[2];
    Fovea__Inference__V1__PromptToken p[2], *list[] = {&p[0], &p[1]};
    Fovea__Inference__V1__Alternative a = FOVEA__INFERENCE__V1__ALTERNATIVE__INIT, *as = &a;
    Fovea__Inference__V1__PromptTokens m = FOVEA__INFERENCE__V1__PROMPT_TOKENS__INIT;
    fv_api_logprobs l = {.kind = FV_API_TEXT};
    fv_api_list printed = {0};
    json_t *out;
    uint8_t text_of[] = "x";
    for (int i = 0; i < 2; i++) {
        fovea__inference__v1__token__init(&t[i]);
        fovea__inference__v1__prompt_token__init(&p[i]);
        t[i].id = (uint32_t)i + 1;
        t[i].text = (ProtobufCBinaryData){1, text_of};
        p[i].token = &t[i];
    }
    p[1].rank = 7;
    t[1].logprob = -3;
    t[1].text_offset = 1;
    a.id = 4;
    a.text = t[0].text;
    a.logprob = -0.25f;
    t[1].alternatives = &as;
    t[1].n_alternatives = 1;
    m.tokens = list;
    m.n_tokens = 2;
    cr_assert_eq(fv_api_prompt_logprobs_add(&m, &printed), FV_OK);
    json_t *nothing = json_array();
    cr_assert_eq(fv_api_list_add(&printed, nothing), FV_OK);
    json_decref(nothing);
    cr_assert_eq(strncmp(printed.text,
                         "null,{\"2\":{\"logprob\":-3.0,\"rank\":7,\"decoded_token\":\"x\"},"
                         "\"4\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\"x\"}}",
                         printed.n),
                 0, "%.*s", (int)printed.n, printed.text);
    free(printed.text);
    cr_assert_eq(fv_api_logprobs_add_prompt(&l, &m), FV_OK);
    cr_assert_eq(fv_api_logprobs_take(&l, UINT32_MAX, &out), FV_OK);
    is(out, "{\"text_offset\":[0,1],\"token_logprobs\":[null,-3.0],\"tokens\":[\"x\",\"x\"],"
            "\"top_logprobs\":[null,{\"token_id:2\":-3.0,\"x\":-0.25}]}");
    fv_api_logprobs_free(&l);
}

Test(api_answer, a_whole_answer_has_what_was_printed_before) {
    static const fv_api_usage usage = {.n_prompt = 1, .n_answer = 4};
    static const fv_api_kind kinds[] = {FV_API_CHAT, FV_API_TEXT};
    Fovea__Inference__V1__Token t[4], *list[4];
    Fovea__Inference__V1__Tokens all = FOVEA__INFERENCE__V1__TOKENS__INIT, part = all;
    fv_api_list ids = {0}, prompt_ids = {0};
    json_t *some = json_pack("[i, i]", 5, 6);
    cr_assert_eq(fv_api_list_add(&ids, some), FV_OK);
    cr_assert_eq(fv_api_list_add(&prompt_ids, some), FV_OK);
    cr_assert_eq(fv_api_list_add(&prompt_ids, some), FV_OK);
    json_decref(some);
    for (int i = 0; i < 4; i++) {
        static uint8_t text_of[] = "a\"b\n";
        fovea__inference__v1__token__init(&t[i]);
        t[i].text = (ProtobufCBinaryData){1, text_of + i};
        t[i].text_offset = (uint32_t)i;
        t[i].logprob = -(float)i;
        list[i] = &t[i];
    }
    all.tokens = list;
    all.n_tokens = 4;
    for (int k = 0; k < 2; k++) {
        const fv_api_names *names = k == 0 ? &chat : &text;
        fv_api_logprobs kept[2] = {{.kind = kinds[k]}, {.kind = kinds[k]}},
                        once = {.kind = kinds[k]};
        json_t *wanted = logprobs_of(&once, &all);
        for (size_t i = 0, n = 0; i < 4; i += n++) { /* 0, 1, 2 and 1 tokens */
            part.tokens = list + i;
            part.n_tokens = n < 4 - i ? n : 4 - i;
            cr_assert_eq(fv_api_logprobs_add(&kept[0], &part), FV_OK);
            cr_assert_eq(fv_api_logprobs_keep(&kept[0], UINT32_MAX), FV_OK);
        }
        const fv_api_choice choices[] = {{.index = 0,
                                          .text = "x",
                                          .kept = &kept[0],
                                          .all_ids = &ids,
                                          .all_prompt_ids = &prompt_ids,
                                          .prompt_logprobs = &prompt_ids},
                                         {.index = 1, .text = "y", .kept = &kept[1]},
                                         {.index = 2, .text = "z"}};
        json_t *got = whole(names, choices, 3, &usage), *list_of = json_object_get(got, "choices");
        json_t *first = json_array_get(list_of, 0), *place = k == 0 ? got : first;
        cr_assert(json_equal(json_object_get(first, "logprobs"), wanted));
        cr_assert(json_is_object(json_object_get(json_array_get(list_of, 1), "logprobs")));
        cr_assert(json_is_null(json_object_get(json_array_get(list_of, 2), "logprobs")));
        is(json_copy(json_object_get(first, "token_ids")), "[5,6]");
        is(json_copy(json_object_get(place, "prompt_token_ids")), "[5,6,5,6]");
        is(json_copy(json_object_get(place, "prompt_logprobs")), "[5,6,5,6]");
        cr_assert_null(json_object_get(json_array_get(list_of, 1), "token_ids"));
        cr_assert_str_eq(json_string_value(json_object_get(got, "model")), "nano");
        json_decref(got);
        json_decref(wanted);
        fv_api_logprobs_free(&kept[0]);
        fv_api_logprobs_free(&once);
    }
    free(ids.text);
    free(prompt_ids.text);
}

Test(api_answer, failures_have_a_status_a_type_and_perhaps_a_field) {
    cr_assert_eq(fv_api_http_status(FV_EBUSY), 429);
    cr_assert_eq(fv_api_http_status(FV_EDENIED), 403);
    cr_assert_eq(fv_api_http_status(FV_EIO), 503);
    cr_assert_eq(fv_api_http_status(FV_EUNSUPPORTED), 501);
    cr_assert_eq(fv_api_http_status(FV_ENOTFOUND), 404);
    cr_assert_eq(fv_api_http_status(FV_EFATAL), 500);
    is(fv_api_error(FV_EINVAL, "min_p is 2; it must be 0..1", ""),
       "{\"error\":{\"code\":null,\"message\":\"min_p is 2; it must be 0..1\",\"param\":\"min_p\","
       "\"type\":\"invalid_request_error\"}}");
    is(fv_api_error(FV_EINVAL, "policy: prune=vtw,layer=99: this checkpoint has layers 0..11", ""),
       "{\"error\":{\"code\":null,\"message\":\"policy: prune=vtw,layer=99: this checkpoint has "
       "layers 0..11\",\"param\":\"policy\",\"type\":\"invalid_request_error\"}}");
    is(fv_api_error(FV_ENOTFOUND, "unknown model 'x'", ""),
       "{\"error\":{\"code\":\"model_not_found\",\"message\":\"unknown model 'x'\","
       "\"param\":\"model\",\"type\":\"invalid_request_error\"}}");
    is(fv_api_error(FV_EINVAL, "there are several models; the request must name one: a, b", ""),
       "{\"error\":{\"code\":null,\"message\":\"there are several models; the request must name "
       "one: a, b\",\"param\":\"model\",\"type\":\"invalid_request_error\"}}");
    is(fv_api_error(FV_EIO, "\xc3 broken", ""),
       "{\"error\":{\"code\":\"unavailable\",\"message\":\"\xEF\xBF\xBD broken\",\"param\":null,"
       "\"type\":\"server_error\"}}");
}

Test(api_answer, any_message_becomes_json_without_what_is_unset) {
    Fovea__Inference__V1__Report r = FOVEA__INFERENCE__V1__REPORT__INIT;
    Fovea__Inference__V1__KeptTokens kept = FOVEA__INFERENCE__V1__KEPT_TOKENS__INIT, *ks = &kept;
    Fovea__Inference__V1__Worker w = FOVEA__INFERENCE__V1__WORKER__INIT;
    uint32_t visual[] = {5, 0};
    uint8_t heads[] = {1, 2, 255, 0};
    r.policy = (char *)"quality";
    r.bytes_raw = 1ull << 40;
    r.seconds_vision = 0.5;
    r.visual_tokens = visual;
    r.n_visual_tokens = 2;
    kept.heads = (ProtobufCBinaryData){4, heads};
    r.kept = &ks;
    r.n_kept = 1;
    is(fv_message_json(&r.base), "{\"bytes_raw\":1099511627776,\"kept\":[{\"heads\":\"AQL/AA==\"}],"
                                 "\"policy\":\"quality\",\"seconds_vision\":0.5,"
                                 "\"visual_tokens\":[5,0]}");
    w.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    is(fv_message_json(&w.base), "{\"role\":\"ROLE_DECODE\"}");
}
