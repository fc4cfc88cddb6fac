/* Every preset and every method over a fleet, on a checkpoint deep and wide enough for each to take
 * effect: the same bits as one process, under presets other bits than under exact, and the same
 * while other requests run. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/answer.h"
#include "tests/support/fleet.h"
#include "tests/support/latent.h"
#include "tests/support/policies.h"
#include "tests/support/tensor_file.h"

#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

static fleet f;

static void open_fleet(void) { fleet_open(&f, "policies"); }
static void close_fleet(void) { fleet_close(&f); }

TestSuite(fleet_policies, .init = open_fleet, .fini = close_fleet, .timeout = 600);

/* 256 tokens of an image; factors of rank 64 take half their memory. */
enum { LAYERS = 12, KV_HEADS = 2, HEAD = 96, VISUAL = 256 };
static const char config[] =
    "{\"model_type\": \"llava\", \"image_token_index\": 480, \"image_seq_length\": 256,"
    " \"vision_feature_layer\": -2, \"vision_feature_select_strategy\": \"default\","
    " \"text_config\": {\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64,"
    " \"intermediate_size\": 80, \"num_hidden_layers\": 12, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"head_dim\": 96, \"max_position_embeddings\": 1024,"
    " \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"eos_token_id\": 2, \"bos_token_id\": 1},"
    " \"vision_config\": {\"model_type\": \"clip_vision_model\", \"hidden_size\": 32,"
    " \"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
    " \"image_size\": 224, \"patch_size\": 14, \"hidden_act\": \"quick_gelu\","
    " \"layer_norm_eps\": 1e-5, \"projection_dim\": 32}}";

static void make_checkpoint(void) {
    static command_result r;
    char dir[600];
    write_text(f.dir, "config.json", config);
    command_run(&r,
                FOVEA_BIN "/fovea synth --config %s/config.json --dtype f32 --seed 5 --out %s/ck",
                f.dir, f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(dir, sizeof dir, "%s/ck", f.dir);
    latent_write(dir);
}

static json_t *ask(const char *where, const char *preset) {
    char args[300];
    snprintf(args, sizeof args,
             "--policy preset=%s --image " IMAGE " --ignore-eos --max-tokens 4 'what is it?'",
             preset);
    return answer_ask(where, args);
}

/* Gives the digests of an answer as text. */
static void digests_of(const json_t *answer, char *text, size_t cap) {
    char *all = json_dumps(answer_report(answer, "digests"), JSON_COMPACT);
    snprintf(text, cap, "%s", all);
    free(all);
}

static void says_how_it_was_mapped(const json_t *answer) {
    char *text = json_dumps(answer_report(answer, "mapped"), JSON_COMPACT);
    cr_assert_str_eq(text, "[{\"stage\":\"prune\",\"parameter\":\"layer\",\"written\":\"2/32+\","
                           "\"layer\":2,\"mapping\":\"published\"}]");
    free(text);
}

Test(fleet_policies, presets_give_the_bits_of_one_process_and_other_bits_than_exact) {
    char here[500], there[100], exact[200], digests[200];
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    make_checkpoint();
    fleet_start(&f, "");
    snprintf(here, sizeof here, "--checkpoint %s/ck", f.dir);
    snprintf(there, sizeof there, "--to %s", f.address);
    json_t *first = ask(here, "exact");
    digests_of(first, exact, sizeof exact);
    json_decref(first);
    for (int32_t i = 0; i < n; i++) {
        const char *name = preset[i].name;
        json_t *one = ask(here, name), *fleet_answer = ask(there, name);
        digests_of(one, digests, sizeof digests);
        cr_expect_eq(strcmp(digests, exact) == 0, strcmp(name, "exact") == 0, "%s: %s", name,
                     digests);
        json_t *end = json_object_get(answer_report(one, "bytes"), "resident_end");
        bool packed = answer_report(one, "packed") != NULL;
        cr_expect_eq(json_integer_value(json_object_get(end, "tables")) > 0, packed, "%s", name);
        if (strcmp(name, "paper-fastv") == 0) says_how_it_was_mapped(fleet_answer);
        answer_assert_same(one, fleet_answer, true, name);
    }
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

static void assert_same_under(const policies *list) {
    for (int32_t i = 0; i < list->n; i++) {
        char args[POLICIES_TEXT + 200];
        snprintf(args, sizeof args,
                 "--policy '%s' --image " IMAGE " --ignore-eos --max-tokens 6 hello",
                 list->text[i]);
        answer_assert_one_process(f.dir, f.address, args);
    }
}

static const fv_plan_shape shape = {.n_layer = LAYERS,
                                    .n_kv = KV_HEADS,
                                    .d_head = HEAD,
                                    .bytes_value = 4,
                                    .n_visual = VISUAL,
                                    .n_text = 8,
                                    .latent_layers = LATENT_LAYERS,
                                    .latent_rank = LATENT_RANK};

Test(fleet_policies, methods_give_the_bits_of_one_process_alone_and_together) {
    static policies list;
    static const char *const coded[] = {
        "pack=latent,budget=1/64,keys=codes",
        "prune=fastv,layer=6,keep=0.5;pack=latent,budget=1/64,keys=codes,first=packed,"
        "compress_text=all,bits_text=4;evict=vta,tau=5"};
    policies_add_methods(&list, &shape, true);
    policies_add_together(&list, &shape, true);
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
        snprintf(list.text[list.n++], POLICIES_TEXT, "%s", coded[i]);
    make_checkpoint();
    fleet_start(&f, "");
    assert_same_under(&list);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

/* Sixteen clients that keep asking while the answers are compared. */
Test(fleet_policies, presets_give_the_bits_of_one_process_also_among_sixteen_others) {
    static policies list;
    static command_result r;
    int pid = 0;
    policies_add_presets(&list, true);
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r,
                FOVEA_BIN "/fovea bench --to %s --concurrency 16 --requests 1000000 --warmup 0 "
                          "--image " IMAGE " --ignore-eos --max-tokens 24 --json >/dev/null "
                          "2>%s/bench.err & echo $!",
                f.address, f.dir);
    cr_assert_eq(sscanf(r.out, "%d", &pid), 1);
    bool running = false;
    for (int i = 0; i < 600 && !(running = fleet_count(&f).n_running >= 16); i++) usleep(50000);
    cr_assert(running, "the others do not run");
    assert_same_under(&list);
    command_run(&r, "kill -0 %d", pid);
    cr_assert_eq(r.status, 0, "the others ended before the comparison did");
    kill(pid, SIGTERM);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}
