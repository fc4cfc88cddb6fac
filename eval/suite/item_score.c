/* Converts scores to JSON and back. */
#include "eval/suite/item_score.h"

#include <stdlib.h>
#include <string.h>

#include "text/json.h"

void fv_item_score_free(fv_item_score *m) {
    for (int32_t i = 0; i < FV_ITEM_TURNS; i++) free(m->said[i]);
    free(m->note);
    *m = (fv_item_score){0};
}

double fv_item_score_mean(const fv_item_score *m) {
    double sum = 0;
    for (int32_t i = 0; i < m->n_turn; i++) sum += m->score[i];
    return m->n_turn ? sum / m->n_turn : 0;
}

json_t *fv_item_score_json(const fv_item_score *m, const fv_suite *suite) {
    json_t *said = json_array(), *score = json_array();
    for (int32_t i = 0; i < m->n_turn; i++) {
        json_array_append_new(said, json_string(m->said[i]));
        json_array_append_new(score, json_real(m->score[i]));
    }
    return json_pack("{s:i, s:i, s:s, s:o, s:o, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:s*}",
                     "policy", m->policy, "item", m->item, "task",
                     fv_suite_task_name(suite, fv_suite_task_of(suite, m->item)), "answers", said,
                     "scores", score, "prompt", m->n_prompt, "visual", m->n_visual, "tokens",
                     m->n_token, "bytes_exact", m->bytes_exact, "bytes_visual", m->bytes_visual,
                     "bytes_visual_end", m->bytes_visual_end, "bytes_sent", m->bytes_sent, "ttft_s",
                     m->ttft_s, "tpot_s", m->tpot_s, "note", m->note);
}

static fv_status read_turns(const json_t *json, int32_t n, const char *where, fv_item_score *m) {
    const json_t *said = json_object_get(json, "answers"), *score = json_object_get(json, "scores");
    if (json_array_size(said) != (size_t)n || json_array_size(score) != (size_t)n)
        return FV_FAIL(FV_EDATA, "%s: an item of %d turns has %zu answers and %zu scores", where, n,
                       json_array_size(said), json_array_size(score));
    for (; m->n_turn < n; m->n_turn++) {
        const json_t *text = json_array_get(said, (size_t)m->n_turn);
        const json_t *points = json_array_get(score, (size_t)m->n_turn);
        double value = json_number_value(points);
        if (!json_is_string(text) || !json_is_number(points) || !(value >= 0 && value <= 1))
            return FV_FAIL(FV_EDATA, "%s: answers are texts, scores are 0 to 1", where);
        m->score[m->n_turn] = value;
        m->said[m->n_turn] = strdup(json_string_value(text));
        if (!m->said[m->n_turn]) return FV_FAIL(FV_ENOMEM, "out of memory for answers");
    }
    return FV_OK;
}

static fv_status read_sizes(const json_t *json, const char *where, fv_item_score *m) {
    const char *note = NULL;
    FV_TRY(fv_json_i32(json, "prompt", where, 0, INT32_MAX, &m->n_prompt));
    FV_TRY(fv_json_i32(json, "visual", where, 0, INT32_MAX, &m->n_visual));
    FV_TRY(fv_json_i32(json, "tokens", where, 0, INT32_MAX, &m->n_token));
    FV_TRY(fv_json_f64(json, "bytes_exact", where, &m->bytes_exact));
    FV_TRY(fv_json_f64(json, "bytes_visual", where, &m->bytes_visual));
    FV_TRY(fv_json_f64(json, "bytes_visual_end", where, &m->bytes_visual_end));
    FV_TRY(fv_json_f64(json, "bytes_sent", where, &m->bytes_sent));
    FV_TRY(fv_json_f64(json, "ttft_s", where, &m->ttft_s));
    FV_TRY(fv_json_f64(json, "tpot_s", where, &m->tpot_s));
    FV_TRY(fv_json_str(json, "note", where, &note));
    if (note) m->note = strdup(note);
    return !note || m->note ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a note");
}

fv_status fv_item_score_read(const json_t *json, const fv_suite *suite, int32_t n_policy,
                             const char *where, fv_item_score *out) {
    fv_item_score m = {.policy = -1, .item = -1};
    fv_status st;
    FV_TRY(fv_json_i32(json, "policy", where, 0, n_policy - 1, &m.policy));
    FV_TRY(fv_json_i32(json, "item", where, 0, suite->n_item - 1, &m.item));
    if (m.policy < 0 || m.item < 0)
        return FV_FAIL(FV_EDATA, "%s: keys 'policy' and 'item' are needed", where);
    FV_TRY_GOTO(read_turns(json, fv_suite_turns(suite, m.item), where, &m), st, fail);
    FV_TRY_GOTO(read_sizes(json, where, &m), st, fail);
    *out = m;
    return FV_OK;
fail:
    fv_item_score_free(&m);
    return st;
}
