/* Programs of others, unmodified, as they come from PyPI, and our own package as it would go there: each asks about an
 * image through the gateway, and the answer is the right one. clients/ has a script and its versions for each. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/fleet.h"

static fleet f;

static void end(void) { fleet_close(&f); }

/* Runs the program's script on a fleet of the checkpoint in f.dir. */
static void run_script(const char *name) {
    char address[64];
    fleet_start(&f, "--http 127.0.0.1:0 --threads 1");
    fleet_gateway(&f, address);
    command_run(&fleet_said,
                "python=" FOVEA_TEST_DATA "/../build/clients/%s-venv/bin/python; "
                "[ -x $python ] || { echo 'skip: ./dev test --long could not install %s, or not "
                "without FOVEA_TEST_LARGE=1'; exit 77; }; "
                "cd %s && TMPDIR=$PWD $python -B " FOVEA_TEST_DATA
                "/long/clients/with_%s.py %s " FOVEA_TEST_DATA
                "/../checkpoints/nano/picture.png %s 2>&1",
                name, name, f.dir, name, address, f.address);
    FLEET_MAY_SKIP(end, "%.1000s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

static void asks(const char *name) {
    fleet_open(&f, name);
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    run_script(name);
}

/* On random weights, with room for prompts of thousands of tokens, which nano does not have. */
static void asks_at_length(const char *name) {
    fleet_open(&f, name);
    fleet_synth(&f, "tiny");
    command_run(
        &fleet_said,
        "sed -i 's/\\(\"\\(max_position_embeddings\\|model_max_length\\)\": \\)1024/\\18192/' "
        "%s/ck/config.json %s/ck/tokenizer_config.json",
        f.dir, f.dir);
    run_script(name);
}

TestSuite(clients, .fini = end, .timeout = 1200);

Test(clients, fovea_client) { asks("fovea-client"); }

Test(clients, gradio) { asks("gradio"); }

Test(clients, guidellm) { asks("guidellm"); }

Test(clients, instructor) { asks("instructor"); }

Test(clients, langchain) { asks("langchain"); }

Test(clients, litellm) { asks("litellm"); }

Test(clients, lmms_eval) { asks("lmms-eval"); }

Test(clients, openai_agents) { asks("openai-agents"); }

Test(clients, open_webui) { asks("open-webui"); }

Test(clients, outlines) { asks("outlines"); }

Test(clients, pydantic_ai) { asks("pydantic-ai"); }

Test(clients, smolagents) { asks_at_length("smolagents"); }
