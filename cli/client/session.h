#ifndef FOVEA_CLI_CLIENT_SESSION_H
#define FOVEA_CLI_CLIENT_SESSION_H

/* TALK: questions to a fleet, one after the other, in one conversation.
 *
 *   first question   images, system turn, policy: all that the options say
 *   the others       only what is new, to where the conversation is kept; when it is not kept (any
 *                    more), the whole conversation with its images again
 *
 * One thread. */
#include "cli/client/report.h"
#include "common/options.h"

typedef struct fv_session fv_session; /* opaque; borrows the options */

/* Reads the images, connects to the fleet that --to names. */
fv_status fv_session_open(const fv_options *o, fv_session **out);
void fv_session_close(fv_session *t); /* NULL is fine */

/* Sends the question and waits for the whole answer, which the hooks text and token receive as it
 * comes. more: another question follows. The question must stay until close; *source borrows from
 * the session until its next question. */
fv_status fv_session_ask(fv_session *t, const char *question, bool more, const fv_ask_hooks *hooks,
                         fv_report_source *source, fv_report *report);

#endif
