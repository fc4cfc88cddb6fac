/* The table of programs, and their command lines. */
#include "options/programs.h"

#include <assert.h>
#include <string.h>

#include "common/limits.h"
#include "options/rows.h"

const fv_program fv_programs[FV_N_PROGRAM] = {
    {FV_PROGRAM_ROUTER, "fovea-router", "accept requests and choose workers for them",
     "fovea-router --fleet-token-file FILE [--listen HOST:PORT] [--fleet-listen HOST:PORT]",
     "Accepts requests from clients, chooses a prefill and a decode worker for each, and returns "
     "the answer. Workers join at the address of --fleet-listen."},
    {FV_PROGRAM_PREFILL, "fovea-prefill", "prefill requests",
     "fovea-prefill --checkpoint MODEL --fleet-token-file FILE --router HOST:PORT [options]",
     "Prefills requests: computes the first token from images and prompt, and sends the KV to a "
     "decode worker."},
    {FV_PROGRAM_DECODE, "fovea-decode", "generate answers",
     "fovea-decode --checkpoint MODEL --fleet-token-file FILE --router HOST:PORT [options]",
     "Receives prefilled requests from prefill workers and generates their answers."},
    {FV_PROGRAM_GATEWAY, "fovea-gateway", "serve OpenAI's HTTP API",
     "fovea-gateway --router HOST:PORT [--listen HOST:PORT]",
     "Serves OpenAI's HTTP API, answered by the router at --router. docs/HTTP.md describes it."},
    {FV_PROGRAM_ASK, "fovea ask", "answer a question about images or a video",
     "fovea ask (--checkpoint MODEL | --to HOST:PORT) [--image FILE]... [--video FILE] "
     "\"QUESTION\" [--then \"QUESTION\"]...",
     "Answers a question about images or a video, in this process or on a fleet. The answer is "
     "streamed to stdout, the report goes to stderr."},
    {FV_PROGRAM_TRACE, "fovea trace", "the same, and save intermediate results as .npy files",
     "fovea trace (--checkpoint MODEL | --to HOST:PORT) [--image FILE]... --prompt TEXT --out DIR",
     "Runs one request and saves the results of each stage: ids, pixels, features, kept "
     "positions, attention on visual tokens, logits, tokens and the report. With --to only the "
     "answer, the tokens and the report."},
    {FV_PROGRAM_UP, "fovea up", "start a fleet on this machine: a router and workers",
     "fovea up MODEL [--prefill N] [--decode N] [--http HOST:PORT]",
     "Starts a router and workers on this machine and keeps them running. Ctrl-C lets running "
     "requests end; a second one does not wait. Each process gets the options that it takes."},
    {FV_PROGRAM_EVAL, "fovea eval", "evaluate compression policies on a checkpoint",
     "fovea eval --checkpoint DIR [--to HOST:PORT] [--policy POLICY]... [options]",
     "Asks questions about generated scenes, or your own, and scores the answers, per task and "
     "policy, with 95 % intervals, on the same items. An interrupted evaluation resumes when the "
     "same command is repeated."},
    {FV_PROGRAM_CALIBRATE, "fovea calibrate",
     "measure what some policies need to know about a checkpoint",
     "fovea calibrate --checkpoint DIR [--items N] [options]",
     "Measures what some policies need to know about a checkpoint, and writes calibration.json "
     "beside the weights: layers that attend alike (lazy=vla,map=calibrated), thresholds at which "
     "prune=visipruner behaves as on LLaVA-1.5, the first layer that needs no image "
     "(prune=vtw,from=calibrated), and schedules of prune=fitprune. It uses training images, none "
     "of fovea eval. With --latent it measures the directions on which pack=latent stores visual "
     "KV, and writes latent.bin; these hold for one --kv-dtype and --compute."},
    {FV_PROGRAM_BENCH, "fovea bench", "benchmark a fleet: latency, throughput, bytes",
     "fovea bench --to HOST:PORT [--concurrency 1,4,16] [options]",
     "Measures a fleet: TTFT (request due to first token), TPOT (later tokens, mean per answer), "
     "ITL (gap between tokens), E2E, what was refused (RESOURCE_EXHAUSTED), was late "
     "(DEADLINE_EXCEEDED) or failed, KV bytes, the stages of the hand-off, and what the load cost "
     "this process. Exits with 1 when a request failed, was late without --deadline-ms, or when "
     "none was answered."},
    {FV_PROGRAM_POLICIES, "fovea policies",
     "list compression methods, their parameters, and presets", "fovea policies [--json]",
     "Lists what a policy can contain: methods by stage, their parameters with default and range, "
     "presets, and incompatible combinations."},
    {FV_PROGRAM_PLAN, "fovea plan", "count what policies cost, without running anything",
     "fovea plan [--shape NAME | --config FILE] [--visual N] [--text N] [--answer N] "
     "[--policy POLICY]...",
     "Shows what policies cost on a network: the FLOPs of the text model's prefill, the KV cache "
     "after it in 16 bits, and the visual tokens in the first and the last layer. Everything is "
     "counted, nothing runs. Where the method decides by the data, <= marks an upper bound. "
     "--flops executed counts 2 for a multiply-add, tokens that attend to those before them, and "
     "the logits of one token; square counts attention as a full square and the logits of every "
     "token that is left; visual counts 1 for a multiply-add, and visual tokens alone."},
    {FV_PROGRAM_SYNTH, "fovea synth", "write a checkpoint with random weights",
     "fovea synth (--shape NAME | --config FILE) --out DIR [options]",
     "Writes a checkpoint with random weights, which fovea and transformers load like a real one. "
     "The same seed gives the same weights for any tensor naming, dtype (rounded) and shard "
     "count."},
    {FV_PROGRAM_QUANTIZE, "fovea quantize", "write a checkpoint with weights in 8 or 4 bits",
     "fovea quantize --checkpoint DIR --out DIR [--weights TYPE] [options]",
     "Quantizes the linear layers of the text model, and its output head to 8 bits, and writes a "
     "directory in the format of compressed-tensors (W8A8 or W4A8), which fovea maps without "
     "further work. The weights are those of --weights TYPE while loading, to the bit."},
    {FV_PROGRAM_INSPECT, "fovea inspect", "say what a checkpoint is and whether it can be served",
     "fovea inspect MODEL [--context N] [--json]",
     "Reads the configs of a checkpoint (a directory, a GGUF file, or ORG/NAME in the Hugging Face "
     "cache) and the headers of its weight files, and prints family, sizes, and the memory that "
     "weights and KV cache take. Every fault is listed with its file and what to do about it. "
     "Nothing is loaded. Exits with 0 if the checkpoint can be served, 1 if not, 2 if the command "
     "is wrong."},
    {FV_PROGRAM_OPTIONS, "fovea options", "print all options as a page, man page or completions",
     "fovea options --markdown | --man PROGRAM | --bash | --zsh",
     "Prints the options of all programs in one of these forms."},
};

const fv_program *fv_program_of(unsigned bit) {
    int i = 0;
    while (i < FV_N_PROGRAM - 1 && fv_programs[i].bit != bit) i++;
    assert(fv_programs[i].bit == bit);
    return &fv_programs[i];
}

const char *fv_program_word(const fv_program *p) {
    const char *space = strchr(p->name, ' ');
    return space ? space + 1 : p->name;
}

/* Checks the sizes that were given against the memory that there is. Those of KV are for the worker to check,
 * which knows whether a GPU's memory holds them. */
static fv_status check_sizes(unsigned program, const fv_options *o) {
    for (int s = 0; s < FV_N_SUBJECT; s++)
        for (int i = 0; i < fv_subjects[s].n; i++) {
            const fv_option_row *row = &fv_subjects[s].rows[i];
            const char *unit = row->option.value, *name = row->option.name;
            if (!fv_row_is_of(row, program) || (row->programs & FV_ROW_KV) || !unit) continue;
            if (strcmp(unit, "BYTES") != 0 || !fv_options_given(o, name)) continue;
            int64_t bytes = fv_options_int(o, name); /* below 0: the program decides */
            if (bytes > 0) FV_TRY(fv_memory_check(name, (size_t)bytes));
        }
    return FV_OK;
}

fv_status fv_program_parse(unsigned program, int argc, char **argv, fv_options **out) {
    fv_option table[FV_ROWS_MAX];
    fv_options *o;
    FV_TRY(fv_options_parse(table, fv_rows_of(program, table), argc, argv, &o));
    fv_status st = fv_options_help_wanted(o) ? FV_OK : check_sizes(program, o);
    if (st == FV_OK)
        *out = o;
    else
        fv_options_free(o);
    return st;
}

/* Prints a row. Where children of `up` differ in what a name means to them, it says whose row it is. */
static void print_row(FILE *f, const fv_option_row *row, unsigned program, bool all) {
    char help[512];
    fv_option o = row->option;
    unsigned children = row->programs & FV_PROGRAM_CHILDREN;
    const fv_option_row *other = fv_row_find(FV_PROGRAM_CHILDREN & ~children, row->option.name);
    if (program == FV_PROGRAM_UP && children && other && !(other->programs & FV_ROW_NOT_UP)) {
        int first = 0; /* such rows are of one program each */
        while (!(fv_programs[first].bit & children)) first++;
        snprintf(help, sizeof help, "%s: %s", fv_programs[first].name, o.help);
        o.help = help;
    }
    fv_option_print(f, &o, all);
}

void fv_program_print_help(FILE *f, unsigned program, bool all) {
    const fv_program *p = fv_program_of(program);
    fputs("usage: ", f);
    fv_print_wrapped(f, p->usage, 7, 11);
    fputc('\n', f);
    fv_print_wrapped(f, p->about, 0, 0);
    if (!all) fputs("\n", f);
    for (int s = 0; s < FV_N_SUBJECT; s++) {
        bool first = true;
        for (int i = 0; i < fv_subjects[s].n; i++) {
            const fv_option_row *row = &fv_subjects[s].rows[i];
            if (!fv_row_is_of(row, program) || (!all && !(row->programs & FV_ROW_FIRST))) continue;
            if (all && first) fprintf(f, "\n%s:\n", fv_subjects[s].title);
            first = false;
            print_row(f, row, program, all);
        }
    }
    if (all) return;
    fprintf(f, "  %-24s %s\n  %-24s %s\n", "--help", "print this text", "--help-all",
            "print all options, with ranges and variables");
}
