#include "gateway/access.h"

#include <string.h>

#include "common/clock.h"
#include "common/log.h"

fv_status fv_access_form_parse(const char *name, fv_access_form *out) {
    static const char *const names[] = {"none", "text", "json"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (fv_access_form)i;
            return FV_OK;
        }
    return FV_FAIL(FV_EINVAL, "--access-log %s: expected none, text or json", name);
}

#define BEGIN "client=%s tenant?=%s method=%s path=\"%.200s\" status=%u "
#define END "ms=%.1f error?=\"%.400s\""

void fv_access_log(fv_access_form form, const fv_http_request *r, const fv_access_facts *facts) {
    static const fv_access_facts none = {.tenant = ""};
    const fv_access_facts *f = facts ? facts : &none;
    const bool json = form == FV_ACCESS_JSON;
    const char *client = fv_http_client(r), *error = fv_http_error(r) ? fv_http_error(r) : "";
    const char *method = fv_http_method(r) ? fv_http_method(r) : "-";
    const char *path = fv_http_path(r) ? fv_http_path(r) : "-";
    const unsigned status = fv_http_status(r) ? fv_http_status(r) : FV_STATUS_LEFT;
    const double read_s = fv_http_read_s(r), ms = 1e3 * (fv_clock_s() - read_s);
    if (form == FV_ACCESS_NONE) return;
    if (f->first_s == 0)
        fv_log_record(json, "access", BEGIN END, client, f->tenant, method, path, status, ms,
                      error);
    else
        fv_log_record(json, "access", BEGIN "tokens_in=%llu tokens_out=%llu ttft_ms=%.1f " END,
                      client, f->tenant, method, path, status, (unsigned long long)f->n_prompt,
                      (unsigned long long)f->n_answer, 1e3 * (f->first_s - read_s), ms, error);
}
