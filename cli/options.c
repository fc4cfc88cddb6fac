/* fovea options: prints the options of all programs as a page, a man page or completions. The build installs the
 * last two; docs/OPTIONS.md is the page. */
#include "options/pages.h"

#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "cli/client/output.h"

/* Prints the man page called `name`, such as fovea-ask for `fovea ask`. */
static fv_status print_man(const char *name) {
    if (strcmp(name, "fovea") == 0) {
        fv_options_man(stdout, NULL);
        return fv_output_flush();
    }
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        const fv_program *p = &fv_programs[i];
        char page[64];
        snprintf(page, sizeof page, "%s", p->name);
        if (fv_program_is_command(p)) page[strlen("fovea")] = '-';
        if (strcmp(page, name) != 0) continue;
        fv_options_man(stdout, p);
        return fv_output_flush();
    }
    return FV_FAIL(
        FV_EINVAL,
        "--man: there is no page %s; the pages are fovea, fovea-COMMAND and the daemons'", name);
}

static fv_status print(const fv_options *o) {
    const char *const *extra, *man = fv_options_string(o, "man");
    bool markdown = fv_options_flag(o, "markdown"), bash = fv_options_flag(o, "bash");
    bool zsh = fv_options_flag(o, "zsh");
    if (fv_options_positional(o, &extra))
        return FV_FAIL(FV_EINVAL, "'%s' is not an option; see fovea options --help", extra[0]);
    if (markdown + bash + zsh + (man != NULL) != 1)
        return FV_FAIL(FV_EINVAL, "give one of --markdown, --man PROGRAM, --bash and --zsh");
    if (man) return print_man(man);
    if (markdown) fv_options_markdown(stdout);
    if (bash) fv_options_bash(stdout);
    if (zsh) fv_options_zsh(stdout);
    return fv_output_flush();
}

static int run(const fv_options *o) { return fv_cli_end(&fv_cli_options, print(o)); }

const fv_command fv_cli_options = {.program = FV_PROGRAM_OPTIONS, .run = run};
