/* model/config: generation_config.json, whose values are the defaults of requests. */
#include "tests/unit/model/config_rig.h"

static fv_generation_config generation(const char *json, fv_model_config *cfg) {
    fv_generation_config g;
    cr_assert_eq(fv_generation_parse(json, strlen(json), "gen.json", cfg, &g), FV_OK, "%s",
                 fv_last_error());
    return g;
}

Test(generation_config, without_generation_config_answers_are_greedy) {
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    fv_generation_config g = generation("", &cfg);
    cr_assert_not(g.do_sample);
    cr_assert_eq(g.temperature, 1.0F);
    cr_assert_eq(g.top_p, 1.0F);
    cr_assert_eq(g.top_k, 50);
    cr_assert_eq(g.repetition_penalty, 1.0F);
    cr_assert(cfg.n_eos == 1 && cfg.eos[0] == 2);
}

Test(generation_config, sampling_defaults_are_read) {
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    fv_generation_config g = generation("{\"do_sample\":true,\"temperature\":0.2,\"top_p\":0.7,"
                                        "\"top_k\":0,\"repetition_penalty\":1.1}",
                                        &cfg);
    cr_assert(g.do_sample);
    cr_assert_eq(g.temperature, 0.2F);
    cr_assert_eq(g.top_p, 0.7F);
    cr_assert_eq(g.top_k, 0);
    cr_assert_eq(g.repetition_penalty, 1.1F);
}

Test(generation_config, generation_adds_its_eos_ids) {
    fv_model_config cfg = parse(TOP("\"eos_token_id\":7"));
    generation("{\"eos_token_id\":[7,9]}", &cfg);
    cr_assert(cfg.n_eos == 2 && cfg.eos[0] == 7 && cfg.eos[1] == 9);
}

Test(generation_config, generation_replaces_an_eos_that_was_only_a_default) {
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    generation("{\"eos_token_id\":[128001,128009]}", &cfg);
    cr_assert(cfg.n_eos == 2 && cfg.eos[0] == 128001 && cfg.eos[1] == 128009);
    cfg = parse("{\"model_type\":\"llama\"}");
    generation("{\"eos_token_id\":null}", &cfg);
    cr_assert(cfg.n_eos == 1 && cfg.eos[0] == 2);
}

Test(generation_config, invalid_generation_values_are_named) {
    static const wrong list[] = {
        {"{", FV_EDATA, "not valid JSON"},
        {"{\"do_sample\":1}", FV_EDATA, "key 'do_sample' must be true or false"},
        {"{\"do_sample\":true,\"temperature\":0}", FV_EDATA, "key 'temperature' is 0"},
        {"{\"temperature\":-1}", FV_EDATA, "key 'temperature' is -1"},
        {"{\"top_p\":0}", FV_EDATA, "key 'top_p' is 0"},
        {"{\"top_p\":1.5}", FV_EDATA, "key 'top_p' is 1.5"},
        {"{\"top_k\":-1}", FV_EDATA, "key 'top_k' is -1"},
        {"{\"repetition_penalty\":0}", FV_EDATA, "key 'repetition_penalty' is 0"},
        {"{\"eos_token_id\":\"x\"}", FV_EDATA, "key 'eos_token_id'"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
        fv_generation_config g = {.top_k = -7};
        cr_assert_eq(fv_generation_parse(list[i].json, strlen(list[i].json), "gen.json", &cfg, &g),
                     list[i].st, "%s", list[i].json);
        cr_assert_not_null(strstr(fv_last_error(), list[i].words), "%s", fv_last_error());
        cr_assert_not_null(strstr(fv_last_error(), "gen.json: "));
        cr_assert_eq(g.top_k, -7);
        cr_assert(cfg.n_eos == 1 && cfg.eos[0] == 2, "the config was touched");
    }
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    cr_assert_eq(generation("{\"temperature\":0}", &cfg).temperature, 0.0F,
                 "0 with greedy is fine");
}
