/* The table of sharers: a list, most recently used first, so that the last sharer without requests is the one that
 * has been idle the longest. */
#include "router/accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/call.h"

enum { FORWARDED_MAX = 2048 };

struct fv_accounts {
    const fv_trusted *trusted;
    fv_account *first;
    int32_t n;
    uint64_t number;
};

fv_status fv_accounts_open(const fv_trusted *trusted, fv_accounts **out) {
    fv_accounts *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "no memory for the table of clients");
    s->trusted = trusted;
    *out = s;
    return FV_OK;
}

void fv_accounts_close(fv_accounts *s) {
    if (!s) return;
    while (s->first) {
        fv_account *x = s->first;
        s->first = x->next;
        free(x);
    }
    free(s);
}

static void to_front(fv_accounts *s, fv_account **at) {
    fv_account *x = *at;
    *at = x->next;
    x->next = s->first;
    s->first = x;
}

static fv_account **find(fv_accounts *s, const char *name) {
    fv_account **at = &s->first;
    while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
    return at;
}

/* Finds the sharer that has been idle the longest; points to NULL if all have requests. */
static fv_account **longest_idle(fv_accounts *s) {
    fv_account **idle = NULL, **at = &s->first;
    for (; *at; at = &(*at)->next)
        if ((*at)->n_request == 0) idle = at;
    return idle ? idle : at;
}

static fv_status add(fv_accounts *s, const char *name, fv_account **out) {
    fv_account *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "no memory for another client");
    snprintf(x->name, sizeof x->name, "%s", name);
    x->index = s->n++;
    x->number = ++s->number;
    x->next = s->first;
    s->first = x;
    *out = x;
    return FV_OK;
}

static fv_status by_name(fv_accounts *s, const char *name, fv_account **out) {
    fv_account **at = find(s, name);
    if (!*at && s->n < FV_SHARERS_MAX) return add(s, name, out);
    if (!*at) {
        at = longest_idle(s);
        if (!*at) at = &s->first; /* shares with the one that was used last */
        if ((*at)->n_request == 0) {
            snprintf((*at)->name, sizeof(*at)->name, "%s", name);
            (*at)->number = ++s->number;
        }
    }
    to_front(s, at);
    *out = s->first;
    return FV_OK;
}

static void name_address(const fv_accounts *s, fv_rpc_call *call,
                         char out[FV_SHARER_NAME_MAX + 1]) {
    char forwarded[FORWARDED_MAX], address[FV_CLIENT_ADDRESS_MAX];
    bool any = fv_rpc_call_metadata_joined(call, "x-forwarded-for", forwarded, sizeof forwarded);
    fv_client_address(s->trusted, fv_rpc_call_peer(call), any ? forwarded : NULL, address);
    snprintf(out, FV_SHARER_NAME_MAX + 1, "address %s", address);
}

fv_status fv_accounts_take(fv_accounts *s, const fv_tenant_use *tenant, fv_rpc_call *call,
                           fv_account **out) {
    char name[FV_SHARER_NAME_MAX + 1];
    if (*tenant->name)
        snprintf(name, sizeof name, "%s", tenant->name);
    else
        name_address(s, call, name);
    FV_TRY(by_name(s, name, out));
    (*out)->weight = tenant->limits ? tenant->limits->weight : 1;
    (*out)->n_request++;
    return FV_OK;
}

void fv_account_give(fv_account *x) { x->n_request--; }
