/* Log-probabilities in the shapes of OpenAI's reference. */
#include "gateway/api/logprobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "gateway/api/answer.h"
#include "gateway/api/message_json.h"

typedef Fovea__Inference__V1__Token token_message;
typedef Fovea__Inference__V1__Alternative alternative_message;

static const char *const chat_lists[] = {"content"};
static const char *const text_lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

static int32_t lists_of(fv_api_kind kind, const char *const **names) {
    *names = kind == FV_API_CHAT ? chat_lists : text_lists;
    return kind == FV_API_CHAT ? 1 : 4;
}

/* ---- as a tree --------------------------------------------------------------------------- */

static double finite_or_least(float logprob) {
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

static json_t *bytes_of(const ProtobufCBinaryData *text) {
    json_t *list = json_array();
    for (size_t i = 0; i < text->len; i++) json_array_append_new(list, json_integer(text->data[i]));
    return list;
}

static json_t *text_of(const ProtobufCBinaryData *text) {
    return fv_json_text((const char *)text->data, text->len);
}

static json_t *entry(const ProtobufCBinaryData *text, float logprob) {
    return json_pack("{s:o, s:f, s:o}", "token", text_of(text), "logprob", finite_or_least(logprob),
                     "bytes", bytes_of(text));
}

static fv_status out_of_memory(void) {
    return FV_FAIL(FV_ENOMEM, "out of memory for log-probabilities");
}

static bool add_chat(const token_message *t, json_t *to) {
    json_t *one = entry(&t->text, t->logprob), *top = json_array();
    for (size_t i = 0; i < t->n_alternatives; i++)
        json_array_append_new(top, entry(&t->alternatives[i]->text, t->alternatives[i]->logprob));
    const bool bad = json_object_set_new(one, "top_logprobs", top) != 0;
    return json_array_append_new(json_object_get(to, "content"), one) == 0 && !bad;
}

static bool add_text(const token_message *t, json_t *to, size_t *offset) {
    json_t *top = json_object();
    for (size_t i = 0; i < t->n_alternatives; i++) {
        const alternative_message *a = t->alternatives[i];
        json_t *name = text_of(&a->text);
        if (name)
            json_object_set_new(top, json_string_value(name),
                                json_real(finite_or_least(a->logprob)));
        json_decref(name);
    }
    json_t *const values[] = {text_of(&t->text), json_real(finite_or_least(t->logprob)), top,
                              json_integer((json_int_t)*offset)};
    bool good = true;
    for (int32_t i = 0; i < 4; i++)
        good &= json_array_append_new(json_object_get(to, text_lists[i]), values[i]) == 0;
    *offset += t->text.len;
    return good;
}

fv_status fv_api_logprobs_json(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t,
                               size_t *offset, json_t **out) {
    const char *const *names;
    const int32_t n = lists_of(kind, &names);
    json_t *o = json_object();
    bool good = o != NULL;
    for (int32_t i = 0; i < n; i++) good &= json_object_set_new(o, names[i], json_array()) == 0;
    for (size_t i = 0; i < t->n_tokens && good; i++)
        good = kind == FV_API_CHAT ? add_chat(t->tokens[i], o) : add_text(t->tokens[i], o, offset);
    if (!good) {
        json_decref(o);
        return out_of_memory();
    }
    *out = o;
    return FV_OK;
}

/* ---- as text ----------------------------------------------------------------------------- */

/* Appends the values of an array, printed without its brackets. */
static fv_status add_values(const json_t *array, fv_api_logprobs *to, int32_t list) {
    char *text = json_dumps(array, FV_API_JSON_FLAGS), **all = &to->list[list].text;
    if (!text) return out_of_memory();
    const size_t n = strlen(text) - 2, before = to->list[list].n;
    const bool comma = before > 0 && n > 0;
    fv_status st = fv_grow(all, &to->list[list].cap, before + comma + n, 1);
    if (st == FV_OK) {
        if (comma) (*all)[before] = ',';
        memcpy(*all + before + comma, text + 1, n);
        to->list[list].n += comma + n;
    }
    free(text);
    return st;
}

fv_status fv_api_logprobs_add(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t,
                              size_t *offset, fv_api_logprobs *to) {
    const char *const *names;
    const int32_t n = lists_of(kind, &names);
    json_t *o;
    FV_TRY(fv_api_logprobs_json(kind, t, offset, &o));
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n && st == FV_OK; i++)
        st = add_values(json_object_get(o, names[i]), to, i);
    json_decref(o);
    return st;
}

void fv_api_logprobs_free(fv_api_logprobs *l) {
    for (int32_t i = 0; i < FV_API_LOGPROBS_LISTS; i++) free(l->list[i].text);
    *l = (fv_api_logprobs){0};
}

/* Size of {"a":[...],"b":[...]}. */
size_t fv_api_logprobs_size(fv_api_kind kind, const fv_api_logprobs *l) {
    const char *const *names;
    const int32_t n = lists_of(kind, &names);
    size_t bytes = 2;
    for (int32_t i = 0; i < n; i++) bytes += strlen(names[i]) + l->list[i].n + 6;
    return bytes;
}

char *fv_api_logprobs_write(fv_api_kind kind, const fv_api_logprobs *l, char *out) {
    const char *const *names;
    const int32_t n = lists_of(kind, &names);
    *out++ = '{';
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) *out++ = ',';
        *out++ = '"';
        out = stpcpy(out, names[i]);
        out = stpcpy(out, "\":[");
        if (l->list[i].n) memcpy(out, l->list[i].text, l->list[i].n);
        out += l->list[i].n;
        *out++ = ']';
    }
    *out++ = '}';
    return out;
}
