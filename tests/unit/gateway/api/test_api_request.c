/* gateway/api/request.h: valid bodies, and the error of each mistake. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/api_body.h"

static fv_arena arena;
static fv_api_request q;
static char param[FV_API_PARAM_MAX];
static bool strict;

static void end(void) {
    fv_api_bytes_free(q.bytes);
    fv_arena_fini(&arena);
}

TestSuite(api_request, .fini = end);

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"
#define PNG "data:image/png;base64,iVBORw0K"

static fv_status read_pieces(fv_api_kind kind, const char *body, const char *policy, size_t piece) {
    const fv_api_reader_options opt = {
        .kind = kind, .policy = policy, .json_max = API_BODY_JSON_MAX, .strict = strict};
    fv_api_bytes_free(q.bytes);
    return api_body_read(&opt, body, strlen(body), piece, &arena, &q, param);
}

/* Reads a body in pieces of several sizes; all must give the same. */
static fv_status read_kind(fv_api_kind kind, const char *body, const char *policy) {
    char first[FV_API_PARAM_MAX], why[1024];
    const fv_status st = read_pieces(kind, body, policy, 1);
    strcpy(first, param);
    snprintf(why, sizeof why, "%s", fv_last_error());
    cr_assert_eq(read_pieces(kind, body, policy, strlen(body) + 1), st);
    cr_assert_str_eq(param, first);
    if (st != FV_OK) cr_assert_str_eq(fv_last_error(), why);
    return st;
}

static void good(fv_api_kind kind, const char *body) {
    cr_assert_eq(read_kind(kind, body, NULL), FV_OK, "%s: %s: %s", body, param, fv_last_error());
}

/* Expects an error that names the field and has the word in its text. */
static void bad(fv_api_kind kind, const char *body, const char *field, const char *word) {
    cr_assert_eq(read_kind(kind, body, NULL), FV_EINVAL, "%s", body);
    cr_assert_str_eq(param, field, "%s: '%s'", body, param);
    cr_assert(strstr(fv_last_error(), word), "%s: %s", body, fv_last_error());
}

Test(api_request, a_chat_has_turns_with_parts_in_any_order) {
    good(FV_API_CHAT,
         "{\"model\":\"nano\",\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"here:\"},"
         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" PNG "\",\"detail\":\"high\"}},"
         "{\"type\":\"text\",\"text\":\"what is it?\"}]}]}");
    const Fovea__Inference__V1__Chat *chat = q.message.prompt->chat;
    cr_assert_eq(chat->n_turns, 2);
    cr_assert_str_eq(chat->turns[0]->role, "developer");
    cr_assert_str_eq(chat->turns[0]->text, "be brief");
    cr_assert_eq(chat->turns[1]->n_parts, 3);
    cr_assert_str_eq(chat->turns[1]->parts[0]->text, "here:");
    cr_assert_eq(chat->turns[1]->parts[1]->kind_case, FOVEA__INFERENCE__V1__PART__KIND_IMAGE);
    cr_assert_str_eq(chat->turns[1]->parts[2]->text, "what is it?");
    cr_assert_eq(q.message.n_images, 1);
    cr_assert_eq(q.message.images[0]->data.len, 6);
    cr_assert_eq(memcmp(q.message.images[0]->data.data, "\x89PNG\r\n", 6), 0);
    cr_assert_str_eq(q.message.model, "nano");
    cr_assert(q.message.sampling->temperature == 1, "OpenAI's default");
    cr_assert(q.n == 1 && !q.stream && !q.seeded && !q.message.token_texts);
}

Test(api_request, every_number_arrives) {
    good(FV_API_CHAT,
         "{" HELLO ",\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"min_p\":0.125,\"seed\":-1,"
         "\"presence_penalty\":1.5,\"frequency_penalty\":-0.5,\"repetition_penalty\":1.25,"
         "\"max_completion_tokens\":9,\"n\":3,\"stop\":[\"a\",\"b\"],\"logprobs\":true,"
         "\"top_logprobs\":4,\"logit_bias\":{\"12\":-100,\"7\":2.5},\"user\":\"me\","
         "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"keep_ms\":50,"
         "\"ignore_eos\":true,\"fovea_report\":true,\"kept_tokens\":true}");
    const Fovea__Inference__V1__Sampling *s = q.message.sampling;
    cr_assert(s->temperature == 0.5f && s->top_p == 0.25f && s->top_k == 7 && s->min_p == 0.125f);
    cr_assert(s->presence_penalty == 1.5f && s->frequency_penalty == -0.5f &&
              s->repetition_penalty == 1.25f && s->seed == UINT64_MAX);
    cr_assert_eq(s->n_logit_bias, 2);
    for (size_t i = 0; i < 2; i++)
        cr_assert(s->logit_bias[i]->bias == (s->logit_bias[i]->id == 12 ? -100 : 2.5f));
    cr_assert(q.n == 3 && q.seeded && q.stream && q.include_usage && q.report && q.logprobs);
    cr_assert(q.message.max_tokens == 9 && q.message.n_logprobs == 4 && q.message.token_texts &&
              q.message.keep_ms == 50 && q.message.ignore_eos && q.message.kept_tokens);
    cr_assert_eq(q.message.n_stop, 2);
    cr_assert_str_eq(q.message.stop[1], "b");
    good(FV_API_CHAT, "{" HELLO ",\"top_k\":-1,\"stop\":\"end\",\"max_tokens\":null,\"tools\":[],"
                      "\"response_format\":{\"type\":\"text\"}}");
    cr_assert(q.message.sampling->top_k == 0 && q.message.n_stop == 1 && q.message.max_tokens == 0);
}

static const Fovea__Inference__V1__Constraint *form(const char *fields) {
    char body[1024];
    snprintf(body, sizeof body, "{" HELLO ",%s}", fields);
    good(FV_API_CHAT, body);
    cr_assert(q.message.rules && q.message.rules->constraint, "%s", fields);
    return q.message.rules->constraint;
}

Test(api_request, the_form_of_an_answer) {
    cr_assert(form("\"response_format\":{\"type\":\"json_object\"}")->json_object);
    cr_assert_str_eq(
        form("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
             "\"strict\":true,\"schema\":{\"b\":[1,0.5],\"a\":\"\\u00e9\\n\"}}}")
            ->json_schema,
        "{\"b\":[1,0.5],\"a\":\"\xC3\xA9\\n\"}", "in the order of the request");
    cr_assert_str_eq(form("\"guided_json\":\"{}\"")->json_schema, "{}");
    cr_assert_str_eq(form("\"guided_regex\":\"a+\"")->regex, "a+");
    cr_assert_str_eq(form("\"guided_grammar\":\"start: x\"")->grammar, "start: x");
    const Fovea__Inference__V1__Constraint *c =
        form("\"guided_choice\":[\"a\",\"b c\"],\"min_tokens\":2");
    cr_assert(c->choice->n_text == 2 && q.message.rules->min_tokens == 2);
    cr_assert_str_eq(c->choice->text[1], "b c");
    cr_assert_str_eq(form("\"structured_outputs\":{\"regex\":\"b\",\"json\":null}")->regex, "b");
    cr_assert(
        form("\"structured_outputs\":{\"structural_tag\":{\"triggers\":[]}}")->structural_tag);
    good(FV_API_CHAT, "{" HELLO ",\"structured_outputs\":{},\"response_format\":null}");
    cr_assert(!q.message.rules);
}

Test(api_request, a_zero_is_a_value) {
    good(FV_API_CHAT, "{" HELLO "}");
    cr_assert(!q.message.sampling->nucleus_case && !q.message.sampling->repetition_case);
    cr_assert(!q.message.rules && !q.message.prompt_alternatives_case && !q.message.truncate_case);
    good(FV_API_CHAT, "{" HELLO ",\"top_p\":0,\"repetition_penalty\":0,\"prompt_logprobs\":0,"
                      "\"min_tokens\":0,\"top_k\":0,\"min_p\":0,\"temperature\":0,\"seed\":0}");
    const Fovea__Inference__V1__Sampling *s = q.message.sampling;
    cr_assert(s->nucleus_case && s->top_p == 0);
    cr_assert(s->repetition_case && s->repetition_penalty == 0, "the router refuses it");
    cr_assert(q.message.prompt_alternatives_case && q.message.prompt_logprobs == 0);
    cr_assert(s->temperature == 0 && q.seeded && s->seed == 0);
    good(FV_API_TEXT, "{\"prompt\":\"a\",\"logprobs\":0}");
    cr_assert(q.logprobs && q.message.n_logprobs == 0);
    bad(FV_API_CHAT, "{" HELLO ",\"max_tokens\":0}", "max_tokens", "1 to");
    bad(FV_API_TEXT, "{\"prompt\":\"a\",\"max_tokens\":0}", "max_tokens", "echo");
    good(FV_API_TEXT, "{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true}");
    cr_assert(q.prompt_only && q.message.max_tokens == 1);
}

Test(api_request, rules_are_read_and_their_lists_are_bounded) {
    enum { MANY = 1 << 20 };
    char *body = malloc(2 * MANY + 200), *at = body;
    good(FV_API_CHAT, "{" HELLO ",\"min_tokens\":3,\"stop_token_ids\":[1,2],\"allowed_token_ids\":"
                      "[7],\"bad_words\":[\"x\",\" y\"],\"skip_special_tokens\":false,"
                      "\"include_stop_str_in_output\":true,\"truncate_prompt_tokens\":-1,"
                      "\"return_token_ids\":true,\"return_tokens_as_token_ids\":true}");
    const Fovea__Inference__V1__TokenRules *r = q.message.rules;
    cr_assert(r->min_tokens == 3 && r->n_stop_token_ids == 2 && r->stop_token_ids[1] == 2);
    cr_assert(r->n_allowed_token_ids == 1 && r->allowed_token_ids[0] == 7 && r->n_bad_words == 2);
    cr_assert_str_eq(r->bad_words[1], " y");
    cr_assert(q.message.special_tokens && q.message.include_stop && q.message.truncate_case &&
              q.message.truncate_prompt_tokens == INT32_MAX);
    cr_assert(q.ids && q.as_ids && q.message.prompt_tokens && !q.message.token_texts);
    bad(FV_API_CHAT, "{" HELLO ",\"stop_token_ids\":7}", "stop_token_ids", "list");
    bad(FV_API_CHAT, "{" HELLO ",\"stop_token_ids\":[-1]}", "stop_token_ids[0]", "integer");
    bad(FV_API_CHAT, "{" HELLO ",\"allowed_token_ids\":[]}", "allowed_token_ids", "at least one");
    bad(FV_API_CHAT, "{" HELLO ",\"bad_words\":[\"\"]}", "bad_words[0]", "1 to 256");
    bad(FV_API_CHAT, "{" HELLO ",\"bad_words\":[1]}", "bad_words[0]", "string");
    bad(FV_API_CHAT, "{" HELLO ",\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens", "-1");
    bad(FV_API_CHAT, "{" HELLO ",\"prompt_logprobs\":21}", "prompt_logprobs", "0 to 20");
    bad(FV_API_CHAT, "{" HELLO ",\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs",
        "stream");
    at += sprintf(at, "{" HELLO ",\"allowed_token_ids\":[1");
    for (int i = 1; i < MANY; i++) at = stpcpy(at, ",1");
    strcpy(at, "]}");
    const fv_api_reader_options opt = {.kind = FV_API_CHAT, .json_max = 4 << 20};
    cr_assert_eq(api_body_read(&opt, body, strlen(body), 1 << 16, &arena, &q, param), FV_EINVAL);
    cr_assert_str_eq(param, "allowed_token_ids");
    cr_assert(strstr(fv_last_error(), "more than 32768"), "%s", fv_last_error());
    at = body + sprintf(body, "{" HELLO ",\"bad_words\":[\"");
    memset(at, 'x', MANY);
    strcpy(at + MANY, "\"]}");
    cr_assert_eq(api_body_read(&opt, body, strlen(body), 1 << 16, &arena, &q, param), FV_EINVAL);
    cr_assert_str_eq(param, "bad_words[0]");
    free(body);
}

Test(api_request, echo_asks_for_the_prompt) {
    good(FV_API_TEXT, "{\"prompt\":\"a\",\"echo\":true}");
    cr_assert(q.echo && q.message.prompt_tokens && !q.message.prompt_alternatives_case);
    good(FV_API_TEXT, "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":2,\"prompt_logprobs\":1}");
    cr_assert(q.message.prompt_logprobs == 2 && q.message.token_texts);
    bad(FV_API_CHAT, "{" HELLO ",\"echo\":true}", "echo", "not supported");
}

Test(api_request, a_completion_has_a_text_or_ids) {
    good(FV_API_TEXT, "{\"prompt\":\"once\",\"logprobs\":2}");
    cr_assert_str_eq(q.message.prompt->text, "once");
    cr_assert(q.logprobs && q.message.n_logprobs == 2);
    good(FV_API_TEXT, "{\"prompt\":[\"once\"]}");
    cr_assert_str_eq(q.message.prompt->text, "once");
    good(FV_API_TEXT, "{\"prompt\":[1,2,3]}");
    cr_assert(q.message.prompt->ids->n_id == 3 && q.message.prompt->ids->id[2] == 3);
    good(FV_API_TEXT, "{\"prompt\":[[5]]}");
    cr_assert(q.message.prompt->ids->n_id == 1 && q.message.prompt->ids->id[0] == 5);
    bad(FV_API_TEXT, "{\"prompt\":[1,-2]}", "prompt[1]", "integer");
    bad(FV_API_TEXT, "{\"prompt\":[[\"a\"]]}", "prompt[0][0]", "integer");
    bad(FV_API_TEXT, "{\"prompt\":[]}", "prompt", "empty");
    bad(FV_API_TEXT, "{" HELLO "}", "prompt", "required");
    bad(FV_API_TEXT, "{}", "prompt", "required");
}

Test(api_request, a_completion_may_have_many_prompts) {
    good(FV_API_TEXT, "{\"prompt\":[\"a\",[5,6],\"c\"],\"n\":2}");
    cr_assert(q.n_prompt == 3 && q.message.prompt == q.prompts[0] && q.n == 2);
    cr_assert_str_eq(q.prompts[0]->text, "a");
    cr_assert(q.prompts[1]->ids->n_id == 2 && q.prompts[1]->ids->id[1] == 6);
    cr_assert_str_eq(q.prompts[2]->text, "c");
    good(FV_API_TEXT, "{\"prompt\":[[1],[2,3]]}");
    cr_assert(q.n_prompt == 2 && q.prompts[1]->ids->n_id == 2);
    good(FV_API_CHAT, "{" HELLO "}");
    cr_assert(q.n_prompt == 1 && q.prompts[0] == q.message.prompt);
    bad(FV_API_TEXT, "{\"prompt\":[1,[2]]}", "prompt[1]", "integer");
    bad(FV_API_TEXT, "{\"prompt\":[\"a\",2]}", "prompt[1]", "string");
    bad(FV_API_TEXT, "{\"prompt\":[[1],[\"a\"]]}", "prompt[1][0]", "integer");
    bad(FV_API_TEXT, "{\"prompt\":[\"a\",\"b\"],\"conversation\":\"YQ\"}", "conversation", "list");
    bad(FV_API_TOKENS, "{\"prompt\":[\"a\",\"b\"]}", "prompt", "one text");
    char body[1200] = "{\"n\":2,\"prompt\":[\"a\"";
    for (int i = 1; i < 65; i++) strcat(body, ",\"a\"");
    strcat(body, "]}");
    bad(FV_API_TEXT, body, "n", "at most 128 answers");
    body[5] = '1';
    good(FV_API_TEXT, body);
    cr_assert_eq(q.n_prompt, 65);
}

Test(api_request, what_has_no_effect_is_ignored_and_listed) {
    static const char body[] =
        "{" HELLO
        ",\"metadata\":{\"a\":[1,{}]},\"service_tier\":\"auto\",\"store\":true,\"x\":null,"
        "\"functions\":[{\"name\":\"f\"}],\"tool_choice\":\"auto\",\"function_call\":\"none\","
        "\"priority\":99999999999999999999999,\"request_id\":\"r\",\"stream\":true,"
        "\"best_of\":1.0,\"use_beam_search\":false,\"modalities\":[\"text\"],\"user\":\"me\","
        "\"response_format\":{\"type\":\"text\"},\"suffix\":\"\",\"logits_processors\":[],"
        "\"stream_options\":{\"include_obfuscation\":false,\"include_usage\":true,"
        "\"continuous_usage_stats\":true}}";
    static const char *const ignored[] = {"metadata",
                                          "service_tier",
                                          "store",
                                          "functions",
                                          "priority",
                                          "request_id",
                                          "stream_options.include_obfuscation"};
    char many[1000] = "{" HELLO;
    good(FV_API_CHAT, body);
    cr_assert_eq(q.n_ignored, 7);
    for (int32_t i = 0; i < q.n_ignored; i++) cr_assert_str_eq(q.ignored[i], ignored[i]);
    cr_assert(q.usage_always && q.include_usage);
    for (int i = 0; i < FV_API_IGNORED_MAX + 5; i++)
        sprintf(many + strlen(many), ",\"x%d\":%d", i, i);
    good(FV_API_CHAT, strcat(many, "}"));
    cr_assert(q.n_ignored == FV_API_IGNORED_MAX && strcmp(q.ignored[15], "x15") == 0);
    strict = true;
    bad(FV_API_CHAT, body, "metadata", "not supported");
    bad(FV_API_CHAT, "{" HELLO ",\"stream\":true,\"stream_options\":{\"x\":1}}", "stream_options.x",
        "not su");
    bad(FV_API_TOKENS, "{\"prompt\":\"x\",\"n\":2}", "n", "not supported");
    good(FV_API_CHAT, "{" HELLO ",\"x\":null,\"user\":\"me\"}");
    strict = false;
}

Test(api_request, numbers_are_integers_where_json_says_so) {
    good(FV_API_CHAT, "{" HELLO ",\"max_tokens\":16.0,\"n\":2e0,\"seed\":-3.0,\"top_k\":1E1,"
                      "\"temperature\":1}");
    cr_assert(q.message.max_tokens == 16 && q.n == 2 &&
              q.message.sampling->seed == UINT64_MAX - 2 && q.message.sampling->top_k == 10);
    bad(FV_API_CHAT, "{" HELLO ",\"seed\":9223372036854775808}", "seed",
        "-9223372036854775808 to 9223372036854775807, not 9.2");
    bad(FV_API_CHAT, "{" HELLO ",\"seed\":-1e19}", "seed", "integer");
    good(FV_API_CHAT, "{" HELLO ",\"seed\":-9223372036854775808}");
    bad(FV_API_CHAT, "{" HELLO ",\"max_tokens\":1e999}", "max_tokens", "1 to 2147483647, not inf");
    bad(FV_API_CHAT, "{" HELLO ",\"max_tokens\":\"5\"}", "max_tokens", "not the string \"5\"");
    char body[1200] = "{\"n\":";
    memset(body + 5, '1', 1100);
    bad(FV_API_CHAT, body, "", "column 1030: more than 1024 characters of a number");
    bad(FV_API_CHAT, "{" HELLO ",\"temperature\":-1e999}", "temperature", "out of range");
    bad(FV_API_CHAT, "{" HELLO ",\"stop\":\"a\\u0000\"}", "stop", "\\u0000 in a string");
    bad(FV_API_CHAT, "{" HELLO ",\"mod\\u0000el\":\"a\"}", "", "\\u0000 in a key");
}

Test(api_request, drafts_are_asked_for_and_predictions_are_joined) {
    good(FV_API_CHAT, "{" HELLO "}");
    cr_assert(!q.message.speculation_case && !q.message.prediction[0]);
    good(FV_API_CHAT, "{" HELLO ",\"speculate\":false,\"prediction\":null}");
    cr_assert(q.message.speculation_case && !q.message.speculate && !q.message.prediction[0]);
    good(FV_API_TEXT, "{\"prompt\":\"x\",\"speculate\":true,"
                      "\"prediction\":{\"type\":\"content\",\"content\":\"a \u00e9\"}}");
    cr_assert(q.message.speculation_case && q.message.speculate);
    cr_assert_str_eq(q.message.prediction, "a \xC3\xA9");
    good(FV_API_CHAT,
         "{" HELLO ",\"prediction\":{\"content\":[{\"type\":\"text\",\"text\":\"one\"},"
         "{\"text\":\" two\",\"type\":\"text\"}],\"type\":\"content\"}}");
    cr_assert(!q.message.speculation_case);
    cr_assert_str_eq(q.message.prediction, "one two");
    bad(FV_API_CHAT, "{" HELLO ",\"speculate\":\"on\"}", "speculate", "true or false");
    bad(FV_API_CHAT, "{" HELLO ",\"prediction\":\"x\"}", "prediction", "object");
    bad(FV_API_CHAT, "{" HELLO ",\"prediction\":{\"type\":\"text\"}}", "prediction.type",
        "content");
    bad(FV_API_CHAT, "{" HELLO ",\"prediction\":{\"content\":5}}", "prediction.content", "string");
    bad(FV_API_CHAT, "{" HELLO ",\"prediction\":{\"content\":[\"x\"]}}", "prediction.content[0]",
        "object");
    bad(FV_API_CHAT, "{" HELLO ",\"prediction\":{\"content\":[{\"type\":\"refusal\"}]}}",
        "prediction.content[0].type", "text");
}

Test(api_request, a_prediction_of_many_parts_takes_one_buffer) {
    enum { PARTS = 20000 };
    char *body = NULL;
    size_t n;
    FILE *f = open_memstream(&body, &n);
    cr_assert_not_null(f);
    fputs("{" HELLO ",\"prediction\":{\"type\":\"content\",\"content\":[", f);
    for (int i = 0; i < PARTS; i++)
        fprintf(f, "%s{\"text\":\"%s\"}", i ? "," : "", i % 2 ? "x" : "");
    fputs("]}}", f);
    fclose(f);
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    good(FV_API_CHAT, body);
    const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    cr_assert_eq(strlen(q.message.prediction), PARTS / 2);
    cr_assert_lt(after, before + ((size_t)16 << 20), "%zu bytes, then %zu", before, after);
    free(body);
}

Test(api_request, a_policy_is_given_in_one_of_three_ways) {
    static const char plain[] = "{\"model\":\"nano\"," HELLO "}",
                      body[] = "{" HELLO ",\"policy\":\"prune=vtw,layer=16\"}",
                      name[] = "{\"model\":\"nano@quality\"," HELLO "}";
    cr_assert_eq(read_kind(FV_API_CHAT, plain, "quality"), FV_OK);
    cr_assert_gt(q.message.policy->n_stages, 0);
    cr_assert_eq(read_kind(FV_API_CHAT, body, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(q.message.policy->stages[0]->method, "vtw");
    cr_assert_eq(read_kind(FV_API_CHAT, name, NULL), FV_OK);
    cr_assert_str_eq(q.message.model, "nano");
    cr_assert_gt(q.message.policy->n_stages, 0);
    cr_assert_eq(read_kind(FV_API_CHAT, plain, NULL), FV_OK);
    cr_assert_null(q.message.policy);
    cr_assert_eq(read_kind(FV_API_CHAT, body, "quality"), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "twice"));
    cr_assert_eq(read_kind(FV_API_CHAT, name, "quality"), FV_EINVAL);
    cr_assert_eq(read_kind(FV_API_CHAT, plain, "prune=magic"), FV_EINVAL);
    cr_assert_str_eq(param, "policy");
    cr_assert(strstr(fv_last_error(), "magic"));
}

Test(api_request, a_handle_comes_back_as_it_was_printed) {
    uint8_t bytes[37];
    for (size_t n = 1; n < sizeof bytes; n++) {
        char *text, body[256];
        for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(i * 83 + n);
        ProtobufCBinaryData handle = {n, bytes};
        cr_assert_eq(fv_api_handle_print(&handle, &arena, &text), FV_OK);
        snprintf(body, sizeof body, "{" HELLO ",\"conversation\":\"%s\"}", text);
        good(FV_API_CHAT, body);
        cr_assert_eq(q.message.conversation.len, n);
        cr_assert_eq(memcmp(q.message.conversation.data, bytes, n), 0);
    }
    bad(FV_API_CHAT, "{" HELLO ",\"conversation\":\"a*b\"}", "conversation", "not a conversation");
    bad(FV_API_CHAT, "{" HELLO ",\"conversation\":\"a\"}", "conversation", "not a conversation");
}

Test(api_request, each_mistake_names_its_field) {
    static const struct {
        const char *body, *field, *word;
    } cases[] = {
        {"", "", "not JSON"},
        {"[1]", "", "object"},
        {"{\"a\":null,\n  \"b\": nul }", "", "line 2, column 11"},
        {"{\"user\":\"\\ud800x\"}", "", "surrogate"},
        {"{\"user\":\"\xff\"}", "", "0xff is not UTF-8"},
        {"{\"user\":{\"a\":{\"b\":1,\"b\":1}}}", "", "same key twice"},
        {"{\"n\":1,\"n\":1}", "", "not JSON: line 1, column 10: an object has the same key twice"},
        {"{" HELLO ",\"tool_choice\":\"required\"}", "tool_choice", "no tools"},
        {"{" HELLO ",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice", "\"auto\""},
        {"{" HELLO ",\"function_call\":{\"name\":\"f\"}}", "function_call", "tool calls"},
        {"{" HELLO ",\"response_format\":{\"type\":\"xml\"}}", "response_format", "json_schema"},
        {"{" HELLO ",\"response_format\":{\"type\":\"json_schema\"}}", "response_format", "schema"},
        {"{" HELLO ",\"response_format\":\"text\"}", "response_format", "an object"},
        {"{" HELLO ",\"guided_choice\":[]}", "guided_choice", "1 to 4096"},
        {"{" HELLO ",\"guided_choice\":[\"\"]}", "guided_choice", "not empty"},
        {"{" HELLO ",\"guided_json\":1}", "guided_json", "an object"},
        {"{" HELLO ",\"guided_regex\":\"a\",\"guided_grammar\":\"b\"}", "guided_grammar", "twice"},
        {"{" HELLO ",\"structured_outputs\":{\"jsn\":{}}}", "structured_outputs", "jsn"},
        {"{" HELLO ",\"ebnf\":\"a\"}", "ebnf", "structured_outputs"},
        {"{" HELLO ",\"modalities\":[\"text\",\"audio\"]}", "modalities[1]", "text"},
        {"{" HELLO ",\"web_search_options\":{}}", "web_search_options", "web"},
        {"{" HELLO ",\"use_beam_search\":true}", "use_beam_search", "beam search"},
        {"{" HELLO ",\"use_beam_search\":1}", "use_beam_search", "true or false"},
        {"{" HELLO ",\"best_of\":3,\"n\":2}", "best_of", "exceed n"},
        {"{" HELLO ",\"temperature\":\"hot\"}", "temperature", "number"},
        {"{" HELLO ",\"temperature\":1e300}", "temperature", "out of range"},
        {"{" HELLO ",\"n\":0}", "n", "1 to 16"},
        {"{" HELLO ",\"n\":17}", "n", "1 to 16"},
        {"{" HELLO ",\"max_tokens\":1.5}", "max_tokens", "integer"},
        {"{" HELLO ",\"stream\":1}", "stream", "true or false"},
        {"{" HELLO ",\"stream_options\":{\"include_usage\":true}}", "stream_options", "stream"},
        {"{" HELLO ",\"top_logprobs\":2}", "top_logprobs", "logprobs"},
        {"{" HELLO ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", "0 to 20"},
        {"{" HELLO ",\"logprobs\":2}", "logprobs", "true or false"},
        {"{" HELLO ",\"logit_bias\":{\"x\":1}}", "logit_bias.x", "token id"},
        {"{" HELLO ",\"logit_bias\":{\"1\":\"x\"}}", "logit_bias.1", "number"},
        {"{" HELLO ",\"stop\":[1]}", "stop", "string"},
        {"{}", "messages", "required"},
        {"{\"messages\":[]}", "messages", "one or more"},
        {"{\"messages\":[1]}", "messages[0]", "object"},
        {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0]", "role"},
        {"{\"messages\":[{\"role\":\"\",\"content\":\"x\"}]}", "messages[0].role", "1..64 bytes"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":1}]}", "messages[0].content", "text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"audio\"}]}]}",
         "messages[0].content[0].type", "audio"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
         "{\"url\":\"ftp://x/\"}}]}]}",
         "messages[0].content[0].image_url.url", "data:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]}",
         "messages[0].content[0].text", "string"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", "messages[0].content",
         "\\u0000 in a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        bad(FV_API_CHAT, cases[i].body, cases[i].field, cases[i].word);
}

#define AT(url) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"

Test(api_request, http_urls_are_listed_with_the_place_of_their_bytes) {
    good(FV_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[" AT("http://a/b.png") "," AT(
                          "data:image/png;base64,AAEC") "," AT("HTTPS://c/d") "]}]}");
    cr_assert_eq(q.message.n_images, 3);
    cr_assert_eq(q.message.images[1]->data.len, 3);
    cr_assert_eq(q.n_url, 2);
    cr_assert_str_eq(q.urls[0].url, "http://a/b.png");
    cr_assert_str_eq(q.urls[1].param, "messages[0].content[2].image_url.url");
    cr_assert_eq(q.urls[0].bytes, &q.message.images[0]->data);
    cr_assert_eq(q.urls[1].bytes, &q.message.images[2]->data);
}

/* data: URLs are decoded as they arrive; a text is not, whatever it looks like. */
Test(api_request, data_urls_are_read_where_they_stand_however_they_are_written) {
    static const char *const urls[] = {"\"url\":\"" PNG "\"", "\"url\"\n\t : \"" PNG "\"",
                                       "\"u\\u0072l\":\"" PNG "\"",
                                       "\"url\":\"\\u0064ata:image/png;base64,iVBORw0K\"",
                                       "\"url\":\"data:image\\/png;base64,iVBORw0K\""};
    char body[1000];
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":[" AT(
                     "data:image/png;base64,AAEC") ",{\"type\":\"text\",\"text\":\"\\\\\"},"
                                                   "{\"type\":\"text\",\"text\":\"\\\"url\\\":"
                                                   "\\\"data:1\\\"\"},"
                                                   "{\"type\":\"image_url\",\"image_url\":{%s}}]}],"
                                                   "\"stop\":[\"url\",\"data:0\"]}",
                 urls[i]);
        good(FV_API_CHAT, body);
        cr_assert_eq(q.message.n_images, 2);
        cr_assert_eq(q.message.images[0]->data.len, 3);
        cr_assert_eq(memcmp(q.message.images[0]->data.data, "\0\1\2", 3), 0);
        cr_assert_eq(q.message.images[1]->data.len, 6);
        cr_assert_eq(memcmp(q.message.images[1]->data.data, "\x89PNG\r\n", 6), 0);
        const Fovea__Inference__V1__Turn *turn = q.message.prompt->chat->turns[0];
        cr_assert_str_eq(turn->parts[1]->text, "\\");
        cr_assert_str_eq(turn->parts[2]->text, "\"url\":\"data:1\"");
        cr_assert_str_eq(q.message.stop[1], "data:0");
    }
}

Test(api_request, nothing_a_client_writes_names_an_image_again) {
    static const char *const urls[] = {"data:0", "\\u0064ata:0", "data:1", "data:"};
    char body[1000];
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":[" AT(PNG) "," AT("%s") "]}]}",
                 urls[i]);
        bad(FV_API_CHAT, body, "messages[0].content[1].image_url.url", "base64");
    }
}

Test(api_request, so_many_http_urls_a_request_may_have) {
    char body[4096], *at = body + sprintf(body, "{\"messages\":[{\"role\":\"user\",\"content\":[");
    for (int i = 0; i <= FV_API_URLS_MAX; i++)
        at += sprintf(at, "%s%s", i ? "," : "", AT("http://a/"));
    strcpy(at, "]}]}");
    bad(FV_API_CHAT, body, "messages[0].content[16].image_url.url", "more than 16");
}

#define VIDEO(rest)                                                                                \
    "{\"type\":\"video_url\",\"video_url\":{\"url\":\"data:video/mp4;base64,AAEC\"" rest "}}"
#define USER(parts) "{\"messages\":[{\"role\":\"user\",\"content\":[" parts "]}]}"

Test(api_request, a_video_is_listed_with_its_place) {
    good(FV_API_CHAT, USER(AT(PNG) "," VIDEO(",\"num_frames\":3") "," VIDEO(",\"fps\":0.5")));
    cr_assert(q.n_video == 2 && q.message.n_images == 1);
    cr_assert(q.videos[0].frames == 3 && q.videos[0].rate == 0 && q.videos[0].file.len == 3);
    cr_assert(q.videos[0].part == 1 && q.videos[0].image == 1);
    cr_assert(q.videos[1].frames == 0 && q.videos[1].rate == 0.5 && q.videos[1].part == 2);
    cr_assert_str_eq(q.videos[1].param, "messages[0].content[2].video_url");
    good(FV_API_CHAT, USER("{\"type\":\"video_url\",\"video_url\":{\"url\":\"https://a/b\"}}"));
    cr_assert_eq(q.urls[0].bytes, &q.videos[0].file);
}

static fv_status put(const fv_api_frame *frame, size_t n, bool as_video) {
    const fv_api_frames frames = {frame, n, 2.5, as_video};
    return fv_api_put_frames(&q, &frames, &arena);
}

Test(api_request, frames_take_the_place_of_their_video) {
    static const fv_api_frame first[] = {{.png = {1, (uint8_t *)"a"}, .time = "<1>"},
                                         {.png = {1, (uint8_t *)"b"}, .time = "<2>"}},
                              second[] = {{.png = {1, (uint8_t *)"c"}, .time = "<3>"}};
    good(FV_API_CHAT,
         USER(VIDEO("") "," AT(PNG) "," VIDEO("") ",{\"type\":\"text\",\"text\":\"x\"}"));
    cr_assert_eq(put(second, 1, false), FV_OK);
    cr_assert_eq(put(first, 2, false), FV_OK);
    cr_assert(q.n_video == 0 && q.message.n_images == 4);
    const Fovea__Inference__V1__Turn *turn = q.message.prompt->chat->turns[0];
    static const char *const ahead[] = {"<1>", "<2>", "", "<3>"};
    cr_assert_eq(turn->n_parts, 5);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(turn->parts[i]->kind_case, FOVEA__INFERENCE__V1__PART__KIND_IMAGE);
        cr_assert_str_eq(turn->parts[i]->image->ahead, ahead[i]);
    }
    cr_assert_str_eq(turn->parts[4]->text, "x");
    static const char order[] = "ab\x89"
                                "c";
    for (int i = 0; i < 4; i++) cr_assert_eq(*q.message.images[i]->data.data, (uint8_t)order[i]);
}

Test(api_request, frames_are_a_video_of_a_model_that_reads_videos) {
    static const fv_api_frame first[] = {{.png = {1, (uint8_t *)"a"}, .seconds = 1},
                                         {.png = {1, (uint8_t *)"b"}, .seconds = 2.5}},
                              second[] = {{.png = {1, (uint8_t *)"c"}, .seconds = 3}};
    good(FV_API_CHAT,
         USER(VIDEO("") "," AT(PNG) "," VIDEO("") ",{\"type\":\"text\",\"text\":\"x\"}"));
    cr_assert_eq(put(second, 1, true), FV_OK);
    cr_assert_eq(put(first, 2, true), FV_OK);
    cr_assert(q.n_video == 0 && q.message.n_images == 4 && q.message.n_videos == 2);
    const Fovea__Inference__V1__Video *a = q.message.videos[0], *b = q.message.videos[1];
    cr_assert(a->first_image == 0 && a->n_frames == 2 && a->fps == 2.5 && a->n_seconds == 2);
    cr_assert(a->seconds[0] == 1 && a->seconds[1] == 2.5);
    cr_assert(b->first_image == 3 && b->n_frames == 1 && b->seconds[0] == 3);
    const Fovea__Inference__V1__Turn *turn = q.message.prompt->chat->turns[0];
    cr_assert_eq(turn->n_parts, 4);
    cr_assert_eq(turn->parts[0]->kind_case, FOVEA__INFERENCE__V1__PART__KIND_VIDEO);
    cr_assert_eq(turn->parts[1]->kind_case, FOVEA__INFERENCE__V1__PART__KIND_IMAGE);
    cr_assert_eq(turn->parts[2]->kind_case, FOVEA__INFERENCE__V1__PART__KIND_VIDEO);
}

Test(api_request, more_frames_than_a_request_may_have_images_are_refused) {
    static fv_api_frame frames[FV_API_IMAGES_MAX];
    good(FV_API_CHAT, USER(AT(PNG) "," VIDEO("")));
    cr_assert_eq(put(frames, FV_API_IMAGES_MAX, false), FV_EINVAL);
    cr_assert_eq(put(frames, FV_API_IMAGES_MAX - 1, false), FV_OK);
}

Test(api_request, what_is_wrong_with_a_video_is_named) {
    static const struct {
        const char *body, *field, *word;
    } cases[] = {
        {USER(VIDEO(",\"num_frames\":0")), "messages[0].content[0].video_url.num_frames",
         "1 to 256"},
        {USER(VIDEO(",\"fps\":-1")), "messages[0].content[0].video_url.fps", "per second"},
        {USER("{\"type\":\"video_url\",\"video_url\":{\"fps\":1}}"),
         "messages[0].content[0].video_url", "no url"},
        {USER("{\"type\":\"video_url\",\"video_url\":1}"), "messages[0].content[0].video_url",
         "object"},
        {USER(VIDEO("") "," VIDEO("") "," VIDEO("") "," VIDEO("") "," VIDEO("")),
         "messages[0].content[4].video_url", "more than 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        bad(FV_API_CHAT, cases[i].body, cases[i].field, cases[i].word);
    bad(FV_API_TOKENS, USER(VIDEO("")), "messages[0].content[0].video_url",
        "does not accept videos");
}

Test(api_request, tokens_are_asked_for_with_a_text_or_a_chat) {
    good(FV_API_TOKENS,
         "{\"prompt\":\"x\",\"add_special_tokens\":false,\"return_token_strs\":true}");
    cr_assert(q.message.special_case && !q.message.add_special_tokens && q.texts);
    good(FV_API_TOKENS, "{" HELLO "}");
    cr_assert(!q.message.special_case && !q.texts && q.message.prompt->chat);
    bad(FV_API_TOKENS, "{" HELLO ",\"prompt\":\"x\"}", "", "combined");
}

Test(api_request, ids_are_made_a_text_of) {
    good(FV_API_IDS, "{\"other\":[{\"x\":{}}],\"model\":\"na@no\",\"tokens\":[1,20]}");
    const Fovea__Inference__V1__TokenIds *ids = q.message.prompt->ids;
    cr_assert(ids->n_id == 2 && ids->id[1] == 20 && strcmp(q.message.model, "na@no") == 0);
    good(FV_API_IDS, "{\"tokens\":[]}");
    bad(FV_API_IDS, "{\"tokens\":1}", "tokens", "list of ids");
    bad(FV_API_IDS, "{}", "tokens", "list of ids");
    bad(FV_API_IDS, "{\"tokens\":null}", "tokens", "list of ids");
    bad(FV_API_IDS, "{\"tokens\":[1,-1]}", "tokens[1]", "integer");
    bad(FV_API_IDS, "{\"tokens\":[[1]]}", "tokens[0]", "integer");
    bad(FV_API_IDS, "{\"tokens\":[1],\"model\":1}", "model", "string");
}

Test(api_request, fields_come_in_any_order) {
    good(FV_API_CHAT,
         "{\"messages\":[{\"content\":[{\"image_url\":{\"detail\":{\"x\":[1]},\"url\":\"" PNG
         "\"},\"type\":\"image_url\"},{\"text\":\"x\",\"type\":\"text\"}],\"name\":null,"
         "\"role\":\"user\"}],\"user\":{\"a\":[{}]},\"unknown\":null}");
    cr_assert(q.message.n_images == 1 && q.message.images[0]->data.len == 6);
    const Fovea__Inference__V1__Turn *turn = q.message.prompt->chat->turns[0];
    cr_assert(turn->n_parts == 2 && strcmp(turn->parts[1]->text, "x") == 0);
}

Test(api_request, a_part_that_is_not_what_its_type_says_is_named) {
    static const struct {
        const char *part, *field, *word;
    } cases[] = {
        {"{}", "", "type"},
        {"{\"type\":1}", "", "type"},
        {"{\"text\":\"x\",\"image_url\":\"" PNG "\"}", "", "type"},
        {"1", "", "type"},
        {"{\"input_audio\":{\"data\":\"x\"},\"type\":\"input_audio\"}", ".type", "input_audio"},
        {"{\"type\":\"text\"}", ".text", "string"},
        {"{\"type\":\"image_url\"}", ".image_url", "URL or an object"},
        {"{\"type\":\"image_url\",\"image_url\":\"ftp://x\"}", ".image_url", "data:"},
        {"{\"type\":\"image_url\",\"image_url\":{}}", ".image_url.url", "must be a string"},
        {"{\"type\":\"image_url\",\"image_url\":{\"url\":1}}", ".image_url.url",
         "must be a string"},
        {"{\"type\":\"image_url\",\"image_url\":{\"x\":1}}", ".image_url.url", "must be a string"},
        {"{\"type\":\"text\",\"image_url\":{\"url\":\"" PNG "\"}}", ".text", "string"},
        {"{\"type\":\"text\",\"text\":\"x\",\"image_url\":\"" PNG "\"}", "", "one value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1000], field[100];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":[%s]}]}",
                 cases[i].part);
        snprintf(field, sizeof field, "messages[0].content[0]%s", cases[i].field);
        bad(FV_API_CHAT, body, field, cases[i].word);
    }
}

/* ---- limits ------------------------------------------------------------------------------ */

/* head, then n times the item with commas between, then tail. */
static char *repeat(const char *head, const char *item, size_t n, const char *tail) {
    char *body = malloc(strlen(head) + n * (strlen(item) + 1) + strlen(tail) + 1), *at = body;
    at = stpcpy(at, head);
    for (size_t i = 0; i < n; i++) {
        if (i) *at++ = ',';
        at = stpcpy(at, item);
    }
    strcpy(at, tail);
    return body;
}

Test(api_request, each_list_has_a_limit) {
    static const struct {
        fv_api_kind kind;
        const char *head, *item, *tail, *field;
        size_t most;
    } cases[] = {
        {FV_API_CHAT, "{\"messages\":[", "{\"role\":\"user\",\"content\":\"\"}", "]}", "messages",
         FV_API_TURNS_MAX},
        {FV_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[",
         "{\"type\":\"text\",\"text\":\"\"}", "]}]}", "messages[0].content[4096]",
         FV_API_PARTS_MAX},
        {FV_API_CHAT, "{" HELLO ",\"stop\":[", "\"\"", "]}", "stop", 16},
        {FV_API_TEXT, "{\"prompt\":[", "1", "]}", "prompt[1048576]", FV_API_IDS_MAX},
        {FV_API_IDS, "{\"tokens\":[", "1", "]}", "tokens[1048576]", FV_API_IDS_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t n = cases[i].most; n <= cases[i].most + 1; n++) {
            char *body = repeat(cases[i].head, cases[i].item, n, cases[i].tail);
            fv_status st = read_pieces(cases[i].kind, body, NULL, 1000);
            cr_assert_eq(st, n == cases[i].most ? FV_OK : FV_EINVAL, "%zu: %s", i, fv_last_error());
            if (st != FV_OK) cr_assert_str_eq(param, cases[i].field);
            free(body);
            fv_arena_fini(&arena);
        }
    }
}

Test(api_request, three_hundred_biases_are_the_most) {
    static char body[8192];
    for (int n = 300; n <= 301; n++) {
        char *at = stpcpy(body, "{" HELLO ",\"logit_bias\":{");
        for (int i = 0; i < n; i++) at += sprintf(at, "%s\"%d\":1", i ? "," : "", i);
        strcpy(at, "}}");
        if (n == 300)
            good(FV_API_CHAT, body);
        else
            bad(FV_API_CHAT, body, "logit_bias", "more than 300");
    }
}

/* Reading fails soon after the limit, however the body would continue. */
Test(api_request, json_has_a_limit_and_data_urls_do_not_count) {
    static const char *const heads[] = {
        "{\"user\":[{},", "{\"user\":{\"a\":\"", "{\"messages\":[{\"role\":\"user\",\"content\":\"",
        "{\"user\":",
        "{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:image/png;base64,"};
    static const char *const items[] = {"{},", "xxxx", "\\n", "   ", "AAAA"};
    for (int i = 0; i < 5; i++) {
        const fv_api_reader_options opt = {.kind = FV_API_CHAT, .json_max = 100000};
        fv_api_reader *r;
        fv_status st = FV_OK;
        size_t n = 0;
        cr_assert_eq(fv_api_reader_open(&opt, &arena, &q, &r), FV_OK);
        st = fv_api_reader_feed(r, heads[i], strlen(heads[i]));
        for (; st == FV_OK && n < 1000000; n += strlen(items[i]))
            st = fv_api_reader_feed(r, items[i], strlen(items[i]));
        cr_assert_eq(st, i == 4 ? FV_OK : FV_ENOMEM, "%d: %s", i, fv_last_error());
        if (i < 4) {
            cr_assert_lt(n, 100010);
            cr_assert_str_empty(fv_api_reader_param(r));
            cr_assert(strstr(fv_last_error(), "100000 bytes of JSON"), "%s", fv_last_error());
        }
        fv_api_reader_close(r);
    }
}

Test(api_request, images_of_tokenize_are_kept_for_their_sizes) {
    good(FV_API_TOKENS, "{\"messages\":[{\"role\":\"user\",\"content\":[" AT(PNG) "]}]}");
    cr_assert(q.message.n_images == 1 && q.message.images[0]->data.len == 6);
    bad(FV_API_TOKENS, "{\"messages\":[{\"role\":\"user\",\"content\":[" AT(PNG "=") "]}]}",
        "messages[0].content[0].image_url.url", "base64");
}

Test(api_request, a_long_http_url_is_refused) {
    static char body[2 * FV_API_URL_MAX];
    char *at =
        stpcpy(body, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                     "\"image_url\":{\"url\":\"https://a/");
    memset(at, 'x', FV_API_URL_MAX);
    strcpy(at + FV_API_URL_MAX, "\"}}]}]}");
    bad(FV_API_CHAT, body, "messages[0].content[0].image_url.url", "longer than 4096 bytes");
}
