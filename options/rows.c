/* The rows of all options, from the files of the subjects. */
#include "options/rows.h"

#include <assert.h>
#include <string.h>

#define INT(name, env, unit, fallback, min, max, programs, help)                                   \
    {{name, env, FV_OPTION_INT, unit, fallback, help, min, max}, programs},
#define FLOAT(name, env, unit, fallback, min, max, programs, help)                                 \
    {{name, env, FV_OPTION_FLOAT, unit, fallback, help, min, max}, programs},
#define TEXT(name, env, value, fallback, programs, help)                                           \
    {{name, env, FV_OPTION_STRING, value, fallback, help, 0, 0}, programs},
#define LIST(name, env, value, programs, help)                                                     \
    {{name, env, FV_OPTION_LIST, value, NULL, help, 0, 0}, programs},
#define FLAG(name, env, programs, help)                                                            \
    {{name, env, FV_OPTION_FLAG, NULL, NULL, help, 0, 0}, programs},

/* A default: a quarter of the deadline, not less than 5 s and not more than `most`. */
#define OF_DEADLINE(most) "--deadline-ms / 4, within 5000.." most

enum {
    ROUTER = FV_PROGRAM_ROUTER,
    PREFILL = FV_PROGRAM_PREFILL,
    DECODE = FV_PROGRAM_DECODE,
    GATEWAY = FV_PROGRAM_GATEWAY,
    UP = FV_PROGRAM_UP,
    ASK = FV_PROGRAM_ASK,
    TRACE = FV_PROGRAM_TRACE,
    EVAL = FV_PROGRAM_EVAL,
    BENCH = FV_PROGRAM_BENCH,
    CALIBRATE = FV_PROGRAM_CALIBRATE,
    POLICIES = FV_PROGRAM_POLICIES,
    PLAN = FV_PROGRAM_PLAN,
    SYNTH = FV_PROGRAM_SYNTH,
    QUANTIZE = FV_PROGRAM_QUANTIZE,
    OPTIONS = FV_PROGRAM_OPTIONS,
    INSPECT = FV_PROGRAM_INSPECT,
    WORKERS = PREFILL | DECODE,
    MEMBERS = ROUTER | WORKERS, /* of a fleet */
    DAEMONS = MEMBERS | GATEWAY,
    REQUESTS = ASK | TRACE,
    CLIENTS = REQUESTS | EVAL | BENCH,   /* of a fleet */
    LOCAL = REQUESTS | EVAL | CALIBRATE, /* have an engine in their own process */
    ENGINES = WORKERS | LOCAL,
    KV = FV_ROW_KV,
    FIRST = FV_ROW_FIRST,
    NOT_UP = FV_ROW_NOT_UP,
    HIDDEN = FV_ROW_HIDDEN,
};

static const fv_option_row addresses[] = {
#include "options/addresses.def"
};
static const fv_option_row model[] = {
#include "options/model.def"
};
static const fv_option_row request[] = {
#include "options/request.def"
};
static const fv_option_row sampling[] = {
#include "options/sampling.def"
};
static const fv_option_row access_rows[] = {
#include "options/access.def"
};
static const fv_option_row limits[] = {
#include "options/limits.def"
};
static const fv_option_row times[] = {
#include "options/times.def"
};
static const fv_option_row measure[] = {
#include "options/measure.def"
};
static const fv_option_row checkpoints[] = {
#include "options/checkpoints.def"
};
static const fv_option_row output[] = {
#include "options/observe.def"
#include "options/output.def"
};

#define SUBJECT(title, rows)                                                                       \
    { (title), (rows), sizeof(rows) / sizeof *(rows) }
const fv_subject fv_subjects[FV_N_SUBJECT] = {
    SUBJECT("Model and computation", model),
    SUBJECT("Addresses", addresses),
    SUBJECT("Request", request),
    SUBJECT("Sampling", sampling),
    SUBJECT("Evaluating, benchmarking, planning", measure),
    SUBJECT("Making and calibrating checkpoints", checkpoints),
    SUBJECT("TLS and access", access_rows),
    SUBJECT("Limits", limits),
    SUBJECT("Deadlines, leases and timeouts", times),
    SUBJECT("Output, logs, metrics and traces", output),
};

bool fv_row_is_of(const fv_option_row *row, unsigned program) {
    if (row->programs & program) return true;
    return program == FV_PROGRAM_UP && (row->programs & FV_PROGRAM_CHILDREN) &&
           !(row->programs & FV_ROW_NOT_UP);
}

const fv_option_row *fv_row_find(unsigned programs, const char *name) {
    for (int s = 0; s < FV_N_SUBJECT; s++)
        for (int i = 0; i < fv_subjects[s].n; i++) {
            const fv_option_row *row = &fv_subjects[s].rows[i];
            if (fv_row_is_of(row, programs) && strcmp(row->option.name, name) == 0) return row;
        }
    return NULL;
}

int fv_rows_of(unsigned program, fv_option out[FV_ROWS_MAX]) {
    int n = 0;
    for (int s = 0; s < FV_N_SUBJECT; s++)
        for (int i = 0; i < fv_subjects[s].n; i++)
            if (fv_row_is_of(&fv_subjects[s].rows[i], program)) {
                assert(n < FV_ROWS_MAX);
                out[n++] = fv_subjects[s].rows[i].option;
            }
    return n;
}
