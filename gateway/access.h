#ifndef FOVEA_GATEWAY_ACCESS_H
#define FOVEA_GATEWAY_ACCESS_H

/* ACCESS: the access log, a line on stderr for each request that has ended. It has what was asked
 * and how that went, and nothing of a prompt or an answer; values are escaped (common/logfmt.h). */
#include "gateway/http/http.h"

/* nginx's status of a request whose client has left before the answer began. */
enum { FV_STATUS_LEFT = 499 };

typedef enum fv_access_form { FV_ACCESS_NONE, FV_ACCESS_TEXT, FV_ACCESS_JSON } fv_access_form;

/* Facts of a log line that only the answer knows; {0}: none. */
typedef struct fv_access_facts {
    char tenant[40];             /* "": unknown */
    uint64_t n_prompt, n_answer; /* tokens */
    double first_s;              /* time of the first token, by fv_clock_s; 0: none */
} fv_access_facts;

/* "none", "text" or "json"; FV_EINVAL for other names. */
fv_status fv_access_form_parse(const char *name, fv_access_form *out);

/* Logs a request that has ended. facts: NULL: nothing. */
void fv_access_log(fv_access_form form, const fv_http_request *r, const fv_access_facts *facts);

#endif
