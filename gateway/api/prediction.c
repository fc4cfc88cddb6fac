/* Reads what an answer is drafted from: "speculate", and OpenAI's "prediction",
 *
 *     {"type": "content", "content": TEXT or [{"type": "text", "text": TEXT}, ...]}
 *
 * whose parts are joined. */
#include <string.h>

#include "gateway/api/reader.h"

enum { PREDICTION_MAX = 1 << 16 }; /* bytes, as GenerateRequest.prediction */

fv_status fv_api_speculate(fv_api_reader *r, const fv_json_event *e) {
    bool speculates;
    FV_TRY(fv_api_bool(e, &speculates));
    r->out->message.speculation_case =
        FOVEA__INFERENCE__V1__GENERATE_REQUEST__SPECULATION_SPECULATE;
    r->out->message.speculate = speculates;
    return FV_OK;
}

/* Appends a part to a buffer that is taken once, so that many small parts cost no more than a large one. */
static fv_status append(fv_api_reader *r, const fv_json_event *e) {
    char *to = r->out->message.prediction;
    if (e->type != FV_JSON_STRING) return FV_FAIL(FV_EINVAL, "it must be a string");
    if (e->n > PREDICTION_MAX - r->n_prediction)
        return FV_FAIL(FV_EINVAL, "it has more than %d bytes", PREDICTION_MAX);
    if (memchr(e->text, 0, e->n)) return FV_FAIL(FV_EINVAL, "it has a NUL character");
    if (e->n == 0) return FV_OK;
    if (r->n_prediction == 0) { /* zeroed, so it is always terminated */
        FV_TRY(FV_ARENA_NEW(r->arena, PREDICTION_MAX + 1, to));
        r->out->message.prediction = to;
    }
    memcpy(to + r->n_prediction, e->text, e->n);
    r->n_prediction += e->n;
    return FV_OK;
}

static bool is_text(const fv_json_event *e, const char *text) {
    return e->type == FV_JSON_STRING && strcmp(e->text, text) == 0;
}

static fv_status read_part_member(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (strcmp(key, "text") == 0) return append(r, e);
    if (strcmp(key, "type") != 0) return fv_api_skip(r, e);
    return is_text(e, "text") ? FV_OK : FV_FAIL(FV_EINVAL, "it must be \"text\"");
}

static const fv_api_shape part = {.member = read_part_member};

static fv_status read_part(fv_api_reader *r, const char *key, const fv_json_event *e) {
    (void)key;
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_enter(r, &part);
}

static const fv_api_shape parts = {.member = read_part};

static fv_status read_member(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (strcmp(key, "type") == 0)
        return is_text(e, "content") ? FV_OK : FV_FAIL(FV_EINVAL, "it must be \"content\"");
    if (strcmp(key, "content") != 0) return fv_api_skip(r, e);
    return e->type == FV_JSON_ARRAY ? fv_api_enter(r, &parts) : append(r, e);
}

static const fv_api_shape prediction = {.member = read_member};

fv_status fv_api_prediction(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_enter(r, &prediction);
}
