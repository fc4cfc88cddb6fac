/* Starts and ends commands. */
#include <stdio.h>

#include "cli/client/command.h"
#include "common/log.h"
#include "options/rows.h"
#include "serving/worker/checkpoint.h"

int fv_cli_end(const fv_command *c, fv_status st) {
    if (st == FV_OK) return 0;
    fprintf(stderr, "%s: %s\n", fv_program_of(c->program)->name, fv_last_error());
    FV_LOG(DEBUG, GENERAL, "born=%s status=%s", fv_last_error_where(), fv_status_grpc_name(st));
    return st == FV_EINVAL ? 2 : 1;
}

/* Takes the checkpoint from the words after the options. */
static fv_status take_word(const fv_command *c, fv_options *o) {
    const char *const *words;
    int n = fv_options_positional(o, &words), taken = !fv_options_typed(o, "checkpoint");
    if (n > taken)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option; see %s --help", words[taken],
                       fv_program_of(c->program)->name);
    return n ? fv_options_set(o, "checkpoint", words[0]) : FV_OK;
}

/* Replaces --checkpoint by what it stands for. With --to, a fleet has the model. */
static fv_status find_checkpoint(const fv_command *c, fv_options *o) {
    char path[FV_HUB_PATH_MAX];
    if (c->takes_checkpoint) FV_TRY(take_word(c, o));
    if (!fv_row_find(c->program, "checkpoint") || !fv_options_string(o, "checkpoint")) return FV_OK;
    if (fv_row_find(c->program, "to") && fv_options_string(o, "to")) return FV_OK;
    bool pair = fv_row_find(c->program, "mmproj") != NULL;
    FV_TRY(pair ? fv_checkpoint_find_pair(o, path) : fv_checkpoint_find(o, path));
    return fv_options_set(o, "checkpoint", path);
}

int fv_cli_run(const fv_command *c, int argc, char **argv) {
    fv_options *o;
    fv_status st;
    int rc = 0;
    if (fv_program_parse(c->program, argc, argv, &o) != FV_OK) {
        fprintf(stderr, "%s: %s\n", fv_program_of(c->program)->name, fv_last_error());
        return 2;
    }
    if (fv_options_help_wanted(o))
        fv_program_print_help(stdout, c->program, fv_options_help_all_wanted(o));
    else if ((st = find_checkpoint(c, o)) == FV_OK)
        rc = c->run(o);
    else
        rc = fv_cli_end(c, st);
    fv_options_free(o);
    return rc;
}
