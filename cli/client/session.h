#ifndef FOVEA_CLI_CLIENT_SESSION_H
#define FOVEA_CLI_CLIENT_SESSION_H

/* SESSION: questions to a fleet in one conversation, one after another.
 *
 *   first question   images, system turn, policy: everything from the options
 *   the others       only the new turn, to the worker that keeps the conversation; if it is not
 *                    kept, the whole conversation with its images again
 *
 * One thread. */
#include "cli/client/report.h"
#include "common/options.h"

typedef struct fv_session fv_session; /* opaque; borrows the options */

/* Reads the images and connects to the fleet of --to. */
fv_status fv_session_open(const fv_options *o, fv_session **out);
void fv_session_close(fv_session *t); /* NULL is fine */

/* Sends the question and waits for the whole answer, which the hooks text and token receive as it
 * arrives. more: another question follows. `question` must stay valid until close; *source borrows
 * from the session until its next question. */
fv_status fv_session_ask(fv_session *t, const char *question, bool more, const fv_ask_hooks *hooks,
                         fv_report_source *source, fv_report *report);

#endif
