/* serving/policy_message.c: a message means what its text form means, and nothing in it reaches into the text form of
 * another stage. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "common/arena.h"
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__Policy policy_message;
typedef Fovea__Inference__V1__StagePolicy stage_message;
typedef Fovea__Inference__V1__Param param_message;

static policy_message m;
static stage_message stage[2], *stages[2] = {&stage[0], &stage[1]};
static param_message param[FV_MAX_PARAMS + 1], *params[FV_MAX_PARAMS + 1];

/* One stage with n parameters, which the test names. */
static void begin(const char *name, const char *method, size_t n) {
    fovea__inference__v1__policy__init(&m);
    for (size_t i = 0; i < 2; i++) {
        fovea__inference__v1__stage_policy__init(&stage[i]);
        stage[i].stage = (char *)name;
        stage[i].method = (char *)method;
    }
    for (size_t i = 0; i < n; i++) {
        fovea__inference__v1__param__init(&param[i]);
        params[i] = &param[i];
    }
    stage[0].params = params;
    stage[0].n_params = n;
    m.stages = stages;
    m.n_stages = 1;
}

static void means(const char *text) {
    fv_policy by_message, by_text;
    char a[FV_POLICY_TEXT_MAX], b[FV_POLICY_TEXT_MAX];
    cr_assert_eq(fv_policy_from_message(&m, &by_message), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_policy_parse(text, &by_text), FV_OK, "%s", fv_last_error());
    fv_policy_print(&by_message, a);
    fv_policy_print(&by_text, b);
    cr_assert_str_eq(a, b);
}

static void refused(const char *why) {
    fv_policy p;
    cr_assert_eq(fv_policy_from_message(&m, &p), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), why), "%s", fv_last_error());
}

static void number(size_t i, const char *name, double value) {
    param[i].name = (char *)name;
    param[i].value = value;
}

static void text(size_t i, const char *name, const char *value) {
    param[i].name = (char *)name;
    param[i].text = (char *)value;
}

Test(policy_message, numbers_words_and_layers_mean_what_the_text_form_means) {
    begin("prune", "fastv", 2);
    number(0, "layer", 2);
    number(1, "keep", 0.1);
    means("prune=fastv,layer=2,keep=0.1");
    text(0, "layer", "2/32+");
    means("prune=fastv,layer=2/32+,keep=0.1");
    begin("prune", "visipruner", 1);
    number(0, "filter", 7); /* a text that is a number */
    means("prune=visipruner,filter=7");
}

Test(policy_message, a_preset_comes_first_and_stages_replace_its_own) {
    begin("prune", "none", 0);
    m.preset = (char *)"paper-vtw";
    means("preset=paper-vtw;prune=none");
    m.preset = (char *)"paper-vwt";
    refused("did you mean 'paper-vtw'?");
}

Test(policy_message, mistakes_are_named) {
    begin("prune", "fastv", 1);
    number(0, "layer", 2.5);
    refused("fastv.layer is a whole number");
    number(0, "keep", (double)NAN);
    refused("fastv.keep is nan");
    number(0, "kept", 1);
    refused("has no parameter 'kept'");
    m.n_stages = 2;
    number(0, "keep", 0.5);
    refused("prune is given twice");
    begin("prune", "none", 1);
    number(0, "keep", 0.5);
    refused("takes no parameters");
    begin("prune", "fastv", FV_MAX_PARAMS + 1);
    for (size_t i = 0; i <= FV_MAX_PARAMS; i++) number(i, "keep", 0.5);
    refused("no method has more");
}

Test(policy_message, a_text_cannot_hold_another_clause) {
    begin("prune", "visipruner", 1);
    text(0, "filter", "auto;select=h2o");
    refused("printable characters");
    text(0, "filter", "auto,keep=1");
    refused("printable characters");
    stage[0].method = (char *)"fastv;select=h2o";
    refused("has no method 'fastv;select=h2o'");
}

Test(policy_message, what_is_sent_reads_back_as_the_same_policy) {
    static const char *const texts[] = {"",
                                        "prune=vtw",
                                        "prune=random,layer=3,keep=0.3",
                                        "prune=vtw,layer=9/32",
                                        "pack=svd",
                                        "pack=svd,compress_text=keys,recompress=64",
                                        "preset=paper-vtw;select=streaming,sink=3"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fv_arena arena = {0};
        fv_policy a, b;
        policy_message *sent;
        char x[FV_POLICY_TEXT_MAX], y[FV_POLICY_TEXT_MAX];
        cr_assert_eq(fv_policy_parse(texts[i], &a), FV_OK, "%s", fv_last_error());
        cr_assert_eq(fv_policy_to_message(&a, &arena, &sent), FV_OK);
        cr_assert_eq(sent == NULL, fv_policy_is_exact(&a));
        cr_assert_eq(fv_policy_from_message(sent, &b), FV_OK, "%s", fv_last_error());
        fv_policy_print(&a, x);
        fv_policy_print(&b, y);
        cr_assert_str_eq(x, y);
        for (int st = 0; st < FV_N_STAGE; st++)
            for (int32_t j = 0; a.stage[st].method && j < a.stage[st].method->n_param; j++)
                if (fv_param_is_layer(a.stage[st].method->param[j].type))
                    cr_assert_eq(a.stage[st].given[j], b.stage[st].given[j], "%s", texts[i]);
        fv_arena_fini(&arena);
    }
}
