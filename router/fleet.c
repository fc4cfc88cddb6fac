/* Fleets: which workers belong together, and which fleet a model's name stands for. Loop thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/log.h"
#include "common/random.h"
#include "router/accounts.h"
#include "router/admit.h"
#include "router/registry_internal.h"

enum { NAMES_MAX = 400 };

/* ---- opening and closing ---------------------------------------------------------------- */

static void fleet_free(fv_fleet *f) {
    free(f->at);
    free(f->model);
    free(f->fingerprint);
    free(f->share);
    free(f);
}

static fv_status compat_of(const fv_introduction *in, fv_compat *out) {
    if (strlen(in->compat) >= sizeof out->text)
        return FV_FAIL(FV_EINVAL, "Introduction.compat is longer than %zu bytes",
                       sizeof out->text - 1);
    out->hash = in->compat_hash;
    strcpy(out->text, in->compat);
    return FV_OK;
}

static fv_status fleet_open(fv_registry *m, const fv_model_message *model, const fv_compat *compat,
                            fv_fleet **out) {
    fv_fleet *f = calloc(1, sizeof *f), **at = &m->fleets;
    if (f) f->model = strdup(model->name);
    if (f) f->fingerprint = strdup(model->fingerprint);
    if (!f || !f->model || !f->fingerprint) {
        if (f) fleet_free(f);
        return FV_FAIL(FV_ENOMEM, "no memory for another fleet");
    }
    f->compat = *compat;
    while (*at) at = &(*at)->next;
    *at = *out = f;
    return FV_OK;
}

/* Warns about a new fleet of a known model: a worker that was started with other options by mistake would wait
 * forever for partners. */
static void log_difference(const fv_registry *m, const fv_introduction *in,
                           const fv_compat *compat) {
    for (const fv_fleet *f = m->fleets; f; f = f->next)
        if (f->first && (strcmp(f->model, in->model->name) == 0 ||
                         strcmp(f->fingerprint, in->model->fingerprint) == 0))
            FV_LOG(WARN, ROUTER,
                   "worker=%s event=another-fleet model=%s other_model=%s reason=\"%s\"", in->name,
                   in->model->name, f->model,
                   fv_compat_check(&f->compat, compat) == FV_OK ? "its model has another name"
                                                                : fv_last_error());
}

fv_status fv_fleet_find_or_open(fv_registry *m, const fv_introduction *in, fv_fleet **out) {
    fv_compat compat;
    FV_TRY(compat_of(in, &compat));
    for (fv_fleet *f = m->fleets; f; f = f->next) {
        if (strcmp(f->model, in->model->name) != 0 || f->compat.hash != compat.hash ||
            strcmp(f->compat.text, compat.text) != 0)
            continue;
        *out = f;
        return FV_OK;
    }
    log_difference(m, in, &compat);
    return fleet_open(m, in->model, &compat, out);
}

void fv_fleet_index(fv_fleet *f) {
    int32_t n = 0;
    for (const fv_registered_worker *w = f->first; w; w = w->next) n++;
    free(f->at);
    f->at = malloc(((size_t)n + 1) * sizeof(fv_registered_worker *));
    f->n_at = 0;
    for (fv_registered_worker *w = f->at ? f->first : NULL; w; w = w->next) f->at[f->n_at++] = w;
}

void fv_fleets_tick(fv_registry *m) {
    for (fv_fleet **at = &m->fleets; *at;) {
        fv_fleet *f = *at;
        if (f->first || f->n_request > 0) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        fleet_free(f);
    }
}

void fv_fleets_close(fv_registry *m) {
    while (m->fleets) {
        fv_fleet *f = m->fleets;
        m->fleets = f->next;
        fleet_free(f);
    }
}

/* ---- what a fleet serves ----------------------------------------------------------------- */

fv_fleet *fv_registry_fleets(const fv_registry *m) { return m->fleets; }

static fv_registered_worker *first_from(const fv_fleet *f) {
    while (f && !f->first) f = f->next;
    return f ? f->first : NULL;
}

fv_registered_worker *fv_registry_first(const fv_registry *m) { return first_from(m->fleets); }

fv_registered_worker *fv_registry_next(const fv_registered_worker *w) {
    return w->next ? w->next : first_from(w->fleet->next);
}

int32_t fv_fleet_ready(const fv_fleet *f, Fovea__Inference__V1__Role role) {
    int32_t n = 0;
    for (const fv_registered_worker *w = f->first; w; w = w->next)
        n += w->state == FV_WORKER_READY && w->role == role;
    return n;
}

int32_t fv_fleet_pairs(const fv_fleet *f) {
    int32_t p = fv_fleet_ready(f, FV_WORKER_PREFILL), d = fv_fleet_ready(f, FV_WORKER_DECODE);
    return p < d ? p : d;
}

const fv_model_message *fv_fleet_model(const fv_fleet *f) {
    const fv_model_message *lost = NULL;
    for (const fv_registered_worker *w = f->first; w; w = w->next) {
        if (w->role != FV_WORKER_PREFILL) continue;
        if (w->state != FV_WORKER_LOST) return w->intro->model;
        lost = w->intro->model;
    }
    return lost;
}

static uint32_t least_keep_ms(const fv_fleet *f, bool lost, bool *any) {
    uint32_t least = UINT32_MAX;
    for (const fv_registered_worker *w = f->first; w; w = w->next) {
        if (w->role != FV_WORKER_DECODE || (w->state == FV_WORKER_LOST) != lost) continue;
        uint32_t ms = w->intro->model->limits ? w->intro->model->limits->keep_ms_max : 0;
        if (ms < least) least = ms;
        *any = true;
    }
    return least;
}

/* Without a connected decode worker, lost ones count: they are expected back. */
uint32_t fv_fleet_keep_ms_max(const fv_fleet *f) {
    bool any = false;
    uint32_t ms = least_keep_ms(f, false, &any);
    return any ? ms : least_keep_ms(f, true, &any);
}

fv_fleet_share *fv_fleet_share_of(fv_fleet *f, const fv_account *x) {
    size_t n = f->n_share, need = (size_t)x->index + 1;
    if (fv_grow(&f->share, &f->cap_share, need, sizeof *f->share) != FV_OK) return NULL;
    for (; n < need; n++) f->share[n] = (fv_fleet_share){0};
    f->n_share = n;
    fv_fleet_share *share = &f->share[x->index];
    if (share->number != x->number) *share = (fv_fleet_share){.number = x->number};
    return share;
}

/* ---- by a model's name ------------------------------------------------------------------- */

static bool lives(const fv_fleet *f) {
    const fv_registered_worker *w = f->first;
    while (w && w->state == FV_WORKER_LOST) w = w->next;
    return w != NULL;
}

static bool is_named(const fv_fleet *f, const char *model) {
    const fv_model_message *said = fv_fleet_model(f);
    if (said) return fv_model_is_named(said, model);
    return !*model || strcmp(f->model, model) == 0 || strcmp(f->fingerprint, model) == 0;
}

/* Whether the name is that of the fleet's model, and not of an adapter. */
static bool is_model_named(const fv_fleet *f, const char *model) {
    const fv_model_message *said = fv_fleet_model(f);
    return f->first && is_named(f, model) && !(said && fv_model_adapter(said, model));
}

/* A model's name goes before an adapter's of another model: drawing among both would answer with either. */
static bool names_model(const fv_registry *m, const char *model) {
    for (const fv_fleet *f = m->fleets; f; f = f->next)
        if (is_model_named(f, model)) return true;
    return false;
}

/* Appends to text[*n] as far as it fits. */
static void add_text(char text[NAMES_MAX], size_t *n, const char *a, const char *b, const char *c) {
    int more = *n < NAMES_MAX ? snprintf(text + *n, NAMES_MAX - *n, "%s%s%s", a, b, c) : 0;
    *n += more > 0 ? (size_t)more : 0;
}

/* Appends "a or alias (0123)". */
static void add_names(const fv_fleet *f, char text[NAMES_MAX], size_t *n) {
    const fv_model_message *said = fv_fleet_model(f);
    add_text(text, n, *n ? ", " : "", f->model, "");
    for (size_t i = 0; said && i < said->n_aliases; i++)
        add_text(text, n, " or ", said->aliases[i], "");
    for (size_t i = 0; said && i < said->n_adapters; i++)
        add_text(text, n, ", its adapter ", said->adapters[i]->name, "");
    add_text(text, n, " (", f->fingerprint, ")");
}

static fv_status cannot_tell(const fv_registry *m, const char *model) {
    char names[NAMES_MAX] = ""; /* "a (0123), b or c (4567)" */
    size_t n = 0;
    for (const fv_fleet *f = m->fleets; f && n < NAMES_MAX; f = f->next)
        if (f->first) add_names(f, names, &n);
    return *model ? FV_FAIL(FV_ENOTFOUND, "unknown model '%s'; there are %s", model, names)
                  : FV_FAIL(FV_EINVAL, "there are several models; the request must name one: %s",
                            names);
}

/* Whether fleets with connected workers have more than one model name. */
static bool ambiguous(const fv_registry *m) {
    const char *name = NULL;
    for (const fv_fleet *f = m->fleets; f; f = f->next) {
        if (!lives(f)) continue;
        if (name && strcmp(name, f->model) != 0) return true;
        name = f->model;
    }
    return false;
}

/* Returns true with probability n / of. Without random numbers from the system it is always true: the last fleet is
 * taken, which is fine, too. */
static bool draw(int32_t n, int32_t of) {
    uint64_t x = 0;
    (void)fv_random_bytes(&x, sizeof x);
    return x % (uint64_t)of < (uint64_t)n;
}

/* Workers that know TokenRules say so with the version of their grammars; older ones would ignore them. */
fv_status fv_fleet_check_rules(const fv_fleet *f) {
    if (strstr(f->compat.text, "\ngrammar=")) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "the workers of this model are of a version that knows no token rules and holds "
                   "answers to no form: upgrade them, or leave these fields out");
}

fv_status fv_registry_choose_fleet(const fv_registry *m, const char *model, fv_fleet **out) {
    return fv_registry_choose_fleet_for(m, model, false, out);
}

fv_status fv_registry_choose_fleet_for(const fv_registry *m, const char *model, bool rules,
                                       fv_fleet **out) {
    fv_fleet *drawn = NULL, *living = NULL, *any = NULL;
    fv_status old = FV_OK;
    int32_t n_pair = 0;
    const bool of_models = names_model(m, model);
    if (!*model && ambiguous(m)) return cannot_tell(m, model);
    for (fv_fleet *f = m->fleets; f; f = f->next) {
        if (!f->first || !(of_models ? is_model_named(f, model) : is_named(f, model))) continue;
        fv_status st = rules ? fv_fleet_check_rules(f) : FV_OK;
        if (st != FV_OK) {
            old = st;
            continue;
        }
        int32_t pairs = fv_fleet_pairs(f);
        n_pair += pairs;
        if (pairs && draw(pairs, n_pair)) drawn = f;
        if (lives(f) && (!living || !fv_fleet_model(living))) living = f;
        any = f;
    }
    if (!any && old != FV_OK) return old;
    if (!any && *model && fv_registry_first(m)) return cannot_tell(m, model);
    fv_fleet *f = drawn ? drawn : living ? living : any;
    if (!f || !fv_fleet_model(f))
        return FV_FAIL(FV_EIO, "no prefill worker has joined the fleet; try again later");
    *out = f;
    return FV_OK;
}
