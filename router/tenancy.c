/* Finds the tenant of a credential, and keeps token buckets per tenant. A bucket holds what a second brings, of
 * calls at least one. */
#include "router/tenancy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"

enum { POLL_S = 1, BUSY_RETRY_MS = 1000 };

struct fv_tenancy {
    char *path; /* NULL: no tenants */
    fv_tenants *tenants;
    fv_file_stamp stamp, keys_stamp;
    double polled_s;
    fv_tenant_use *uses, anybody;
    fv_audit audit;
};

/* ---- the file --------------------------------------------------------------------------- */

static fv_tenant_use *find_use(const fv_tenancy *t, const char *name) {
    fv_tenant_use *u = t->uses;
    while (u && strcmp(u->name, name) != 0) u = u->next;
    return u;
}

/* Takes a new file: adds its new tenants, and points every tenant to its limits there (NULL: it is gone). */
static fv_status adopt_file(fv_tenancy *t, fv_tenants *fresh) {
    const fv_tenant *all;
    int32_t n = fv_tenants_all(fresh, &all);
    for (int32_t i = 0; i < n; i++) {
        if (find_use(t, all[i].name)) continue;
        fv_tenant_use *u = calloc(1, sizeof *u);
        if (!u) return FV_FAIL(FV_ENOMEM, "no memory for a tenant");
        strcpy(u->name, all[i].name);
        for (int kind = 0; kind < FV_N_TENANT_CALL; kind++)
            u->calls[kind].credit = HUGE_VAL; /* full, whatever its size */
        u->pixels = HUGE_VAL;
        u->next = t->uses;
        t->uses = u;
    }
    for (fv_tenant_use *u = t->uses; u; u = u->next) {
        u->limits = NULL;
        for (int32_t i = 0; i < n; i++)
            if (strcmp(all[i].name, u->name) == 0) u->limits = &all[i];
    }
    fv_tenants_free(t->tenants);
    t->tenants = fresh;
    return FV_OK;
}

/* Checks the tenants' policies, which the layer that reads the file does not know. */
static fv_status check_policies(const fv_tenants *tenants) {
    const fv_tenant *all;
    int32_t n = fv_tenants_all(tenants, &all);
    fv_policy policy;
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < all[i].n_policy; j++) {
            fv_status st = fv_policy_parse(all[i].policies[j], &policy);
            if (st != FV_OK) return fv_fail_prefix(st, "tenant '%s'", all[i].name);
        }
    return FV_OK;
}

static const char *keys_path(const fv_tenancy *t) {
    return t->tenants ? fv_tenants_keys_path(t->tenants) : NULL;
}

/* Reads the file if it or its keys have changed. Takes the stamps before the contents, so that no change is
 * missed. */
static fv_status reload_if_changed(fv_tenancy *t) {
    fv_file_stamp stamp = fv_file_stamp_of(t->path), keys = fv_file_stamp_of(keys_path(t));
    t->polled_s = fv_clock_s();
    if (t->tenants && fv_file_stamp_equal(&stamp, &t->stamp) &&
        fv_file_stamp_equal(&keys, &t->keys_stamp))
        return FV_OK;
    fv_tenants *fresh;
    t->stamp = stamp;
    t->keys_stamp = keys;
    FV_TRY(fv_tenants_read(t->path, &fresh));
    fv_status st = check_policies(fresh);
    if (st == FV_OK) st = adopt_file(t, fresh);
    if (st != FV_OK) {
        fv_tenants_free(fresh);
        return st;
    }
    FV_LOG(INFO, ROUTER, "event=tenants-loaded file=%s", t->path);
    return FV_OK;
}

static void poll_file(fv_tenancy *t) {
    if (fv_clock_s() - t->polled_s < POLL_S || reload_if_changed(t) == FV_OK) return;
    FV_LOG(WARN, ROUTER, "event=tenants-kept reason=\"%s\"", fv_last_error());
}

fv_status fv_tenancy_open(const char *path, fv_tenancy **out) {
    fv_tenancy *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "no memory for tenants");
    fv_status st = FV_OK;
    if (path && !(t->path = strdup(path))) st = FV_FAIL(FV_ENOMEM, "no memory for tenants");
    if (st == FV_OK && path && reload_if_changed(t) != FV_OK) {
        fv_fail_prefix(FV_EINVAL, "--tenants");
        st = FV_EINVAL;
    }
    if (st != FV_OK) {
        fv_tenancy_close(t);
        return st;
    }
    *out = t;
    return FV_OK;
}

void fv_tenancy_close(fv_tenancy *t) {
    if (!t) return;
    while (t->uses) {
        fv_tenant_use *u = t->uses;
        t->uses = u->next;
        free(u);
    }
    fv_tenants_free(t->tenants);
    free(t->path);
    free(t);
}

/* ---- who calls -------------------------------------------------------------------------- */

static fv_status find_caller(const fv_tenancy *t, const fv_rpc_call *call, fv_tenant_use **out,
                             double *valid_s) {
    static const char scheme[] = "Bearer ";
    enum { N_SCHEME = sizeof scheme - 1 };
    const char *value;
    size_t n;
    const fv_tenant *tenant;
    if (!fv_rpc_call_metadata(call, "authorization", &value, &n))
        return FV_FAIL(FV_EAUTH,
                       "this fleet requires a credential: send an API key or a JWT in the "
                       "header (with gRPC: the metadata) authorization: Bearer ..., "
                       "which is fovea's --api-key-file");
    if (n <= N_SCHEME || strncasecmp(value, scheme, N_SCHEME) != 0)
        return FV_FAIL(FV_EAUTH, "authorization must be 'Bearer KEY', with an API key or a JWT");
    const double now_s = fv_clock_unix_s();
    double until_s;
    FV_TRY(fv_tenants_find(t->tenants, value + N_SCHEME, n - N_SCHEME, now_s, &tenant, &until_s));
    *out = find_use(t, tenant->name);
    *valid_s = fmax(until_s - now_s, 0);
    return FV_OK;
}

fv_status fv_tenancy_caller(fv_tenancy *t, fv_rpc_call *call, fv_tenant_use **out) {
    double valid_s;
    return fv_tenancy_caller_until(t, call, out, &valid_s);
}

fv_status fv_tenancy_caller_until(fv_tenancy *t, fv_rpc_call *call, fv_tenant_use **out,
                                  double *valid_s) {
    if (!t->path) {
        *out = &t->anybody;
        *valid_s = HUGE_VAL;
        return FV_OK;
    }
    poll_file(t);
    fv_status st = find_caller(t, call, out, valid_s);
    if (st != FV_OK) fv_audit_refused(&t->audit, call, fv_last_error());
    return st;
}

/* ---- what a tenant may do ---------------------------------------------------------------- */

fv_status fv_tenancy_check(fv_tenant_use *u, fv_tenant_call kind, fv_rpc_call *call) {
    static const char *const names[] = {"requests", "calls of Tokenize and Detokenize"};
    const double now = fv_clock_s();
    fv_tenant_calls *c = &u->calls[kind];
    if (!u->limits) return FV_OK;
    int32_t most = kind == FV_TENANT_REQUEST ? u->limits->concurrent : FV_TOKENIZE_TENANT_MAX;
    if (most > 0 && c->n >= most) {
        fv_rpc_call_retry_after(call, BUSY_RETRY_MS);
        return FV_FAIL(
            FV_EBUSY, "this tenant may have %d %s at a time on this router: wait for one to finish",
            most, names[kind]);
    }
    const double rate = u->limits->requests_per_s;
    if (rate == 0) return FV_OK;
    c->credit = fmin(c->credit + rate * (now - c->credit_s), fmax(rate, 1));
    c->credit_s = now;
    if (c->credit >= 1) return FV_OK;
    fv_rpc_call_retry_after(call, (int64_t)ceil(1e3 * (1 - c->credit) / rate));
    return FV_FAIL(FV_EBUSY, "this tenant may start %.3g %s per second on this router", rate,
                   names[kind]);
}

fv_status fv_tenancy_begin(fv_tenant_use *u, fv_tenant_call kind, fv_rpc_call *call) {
    FV_TRY(fv_tenancy_check(u, kind, call));
    u->calls[kind].credit -= 1;
    u->calls[kind].n++;
    return FV_OK;
}

void fv_tenancy_end(fv_tenant_use *u, fv_tenant_call kind) { u->calls[kind].n--; }

fv_status fv_tenancy_take_pixels(fv_tenant_use *u, uint64_t pixels, fv_rpc_call *call) {
    double rate = u->limits ? 1e6 * u->limits->megapixels_per_s : 0, now = fv_clock_s();
    if (rate == 0 || pixels == 0) return FV_OK;
    u->pixels = fmin(u->pixels + rate * (now - u->pixels_s), rate);
    u->pixels_s = now;
    if (u->pixels > 0) {
        u->pixels -= (double)pixels;
        return FV_OK;
    }
    fv_rpc_call_retry_after(call, (int64_t)ceil(1e3 * (1 - u->pixels) / rate));
    return FV_FAIL(FV_EBUSY,
                   "this tenant may send images of %.3g megapixels per second on this router: send "
                   "smaller ones, or try again later",
                   1e-6 * rate);
}

uint64_t fv_tenancy_kv_bytes(const fv_tenant_use *u) { return u->limits ? u->limits->kv_bytes : 0; }

fv_status fv_tenancy_policy(const fv_tenant_use *u, const fv_policy *policy) {
    char text[FV_POLICY_TEXT_MAX], allowed[FV_POLICY_TEXT_MAX];
    fv_policy p;
    if (!u->limits || !u->limits->policies) return FV_OK;
    fv_policy_print(policy, text);
    for (int32_t i = 0; i < u->limits->n_policy; i++) {
        FV_TRY(fv_policy_parse(u->limits->policies[i], &p));
        fv_policy_print(&p, allowed);
        if (strcmp(text, allowed) == 0) return FV_OK;
    }
    return FV_FAIL(FV_EDENIED, "this tenant may not use the policy '%s'", text);
}
