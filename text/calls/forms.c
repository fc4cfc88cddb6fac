/* The forms, a row each. A template is searched for `known` in the order of the rows. */
#include <string.h>

#include "text/calls/internal.h"

const fv_calls_form fv_calls_forms[] = {
    {.name = "qwen3_xml", /* Qwen3-Coder, Qwen3.5 */
     .marks = {"<tool_call>", "<function="},
     .kept = "<function=",
     .after = {"</tool_call>"},
     .known = {"<function="},
     .tag = fv_tag_qwen3_xml,
     .scan = fv_scan_xml,
     .read = fv_read_xml},
    {.name = "hermes", /* Qwen2.5, Qwen2.5-VL, Qwen3, Qwen3-VL, Hermes */
     .marks = {"<tool_call>"},
     .after = {"</tool_call>"},
     .known = {"<tool_call>"},
     .tag = fv_tag_hermes,
     .scan = fv_scan_json_call,
     .read = fv_read_json_call},
    {.name = "mistral",
     .marks = {"[TOOL_CALLS]"},
     .known = {"[TOOL_CALLS]"},
     .special = true,
     .short_ids = true,
     .tag = fv_tag_mistral,
     .scan = fv_scan_mistral,
     .read = fv_read_mistral},
    {.name = "gemma", /* FunctionGemma, Gemma 4 */
     .marks = {"<start_function_call>", "<|tool_call>"},
     .after = {"<end_function_call>", "<tool_call|>"},
     .known = {"<start_function_call>", "<|tool_call>"},
     .special = true,
     .scan = fv_scan_gemma,
     .read = fv_read_gemma},
    {.name = "llama3_json", /* Llama 3.1, 3.2, 3.3 */
     .marks = {"<|python_tag|>"},
     .after = {";", "<|eom_id|>"},
     .known = {"<|python_tag|>", "\"parameters\": dictionary"},
     .at_start = true,
     .special = true,
     .tag = fv_tag_llama3_json,
     .scan = fv_scan_json_call,
     .read = fv_read_json_call},
};

const int32_t fv_n_calls_form = sizeof fv_calls_forms / sizeof *fv_calls_forms;

const fv_calls_form *fv_calls_form_named(const char *name) {
    for (int32_t i = 0; i < fv_n_calls_form; i++)
        if (strcmp(fv_calls_forms[i].name, name) == 0) return &fv_calls_forms[i];
    return NULL;
}

const fv_calls_form *fv_calls_form_of_template(const char *program) {
    for (int32_t i = 0; i < fv_n_calls_form; i++)
        for (int32_t k = 0; k < FV_CALLS_MARKS && fv_calls_forms[i].known[k]; k++)
            if (strstr(program, fv_calls_forms[i].known[k])) return &fv_calls_forms[i];
    return NULL;
}

const fv_calls_form *fv_calls_form_forced(bool named) {
    static const fv_calls_form call = {
        .name = "call", .at_start = true, .scan = fv_scan_json_call, .read = fv_read_json_call};
    static const fv_calls_form arguments = {
        .name = "arguments", .at_start = true, .scan = fv_scan_json, .read = fv_read_arguments};
    return named ? &arguments : &call;
}

const char *fv_calls_form_name(const fv_calls_form *f) { return f->name; }

bool fv_calls_form_is_special(const fv_calls_form *f) { return f->special; }

bool fv_calls_form_has_short_ids(const fv_calls_form *f) { return f->short_ids; }

const char *fv_calls_form_names(void) { return "qwen3_xml, hermes, mistral, gemma, llama3_json"; }
