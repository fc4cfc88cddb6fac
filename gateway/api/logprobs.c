/* Log-probabilities in the shapes of OpenAI's reference and of vLLM's server. */
#include "gateway/api/logprobs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "gateway/api/answer.h"
#include "gateway/api/message_json.h"

typedef Fovea__Inference__V1__Token token_message;
typedef Fovea__Inference__V1__PromptTokens prompt_message;

static const char *const chat_lists[] = {"content"};
static const char *const text_lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

static int32_t lists_of(const fv_api_logprobs *l, const char *const **names) {
    *names = l->kind == FV_API_TEXT ? text_lists : chat_lists;
    return l->kind == FV_API_TEXT ? 4 : 1;
}

static fv_status out_of_memory(void) {
    return FV_FAIL(FV_ENOMEM, "out of memory for log-probabilities");
}

/* ---- names ------------------------------------------------------------------------------ */

static double finite_or_least(float logprob) {
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

static json_t *text_of(const ProtobufCBinaryData *text) {
    return fv_json_text((const char *)text->data, text->len);
}

static json_t *id_name(uint32_t id) {
    char name[32];
    snprintf(name, sizeof name, "token_id:%" PRIu32, id);
    return json_string(name);
}

/* "bytes:\xc3\xa4" */
static json_t *bytes_name(const ProtobufCBinaryData *text) {
    static const char prefix[] = "bytes:";
    char *name = malloc(sizeof prefix + 4 * text->len), *at = name;
    if (!name) return NULL;
    at = stpcpy(at, prefix);
    for (size_t i = 0; i < text->len; i++) at += sprintf(at, "\\x%02x", text->data[i]);
    json_t *out = json_string(name);
    free(name);
    return out;
}

static json_t *chat_name(const fv_api_logprobs *l, uint32_t id, const ProtobufCBinaryData *text) {
    return l->as_ids ? id_name(id) : text_of(text);
}

static json_t *key_name(const fv_api_logprobs *l, uint32_t id, const ProtobufCBinaryData *text) {
    if (l->as_ids) return id_name(id);
    const char *bytes = (const char *)text->data;
    json_t *plain = text->len && memchr(bytes, 0, text->len)
                        ? NULL
                        : json_stringn(text->len ? bytes : "", text->len); /* NULL: no UTF-8 */
    return plain ? plain : bytes_name(text);
}

/* ---- one token --------------------------------------------------------------------------- */

static json_t *bytes_of(const ProtobufCBinaryData *text) {
    json_t *list = json_array();
    for (size_t i = 0; i < text->len; i++) json_array_append_new(list, json_integer(text->data[i]));
    return list;
}

static json_t *entry(const fv_api_logprobs *l, uint32_t id, const ProtobufCBinaryData *text,
                     float logprob) {
    return json_pack("{s:o, s:f, s:o}", "token", chat_name(l, id, text), "logprob",
                     finite_or_least(logprob), "bytes", bytes_of(text));
}

static bool add_chat(fv_api_logprobs *l, const token_message *t) {
    json_t *one = entry(l, t->id, &t->text, t->logprob), *top = json_array();
    for (size_t i = 0; i < t->n_alternatives; i++)
        json_array_append_new(top, entry(l, t->alternatives[i]->id, &t->alternatives[i]->text,
                                         t->alternatives[i]->logprob));
    const bool bad = json_object_set_new(one, "top_logprobs", top) != 0;
    return json_array_append_new(l->held[0], one) == 0 && !bad;
}

/* Adds an alternative to a completion's object. A text that is there already becomes the id. */
static bool add_alternative(const fv_api_logprobs *l, json_t *top, uint32_t id,
                            const ProtobufCBinaryData *text, float logprob) {
    json_t *name = key_name(l, id, text);
    if (name && json_object_getn(top, json_string_value(name), json_string_length(name))) {
        json_decref(name);
        name = id_name(id);
    }
    const bool good =
        name && json_object_setn_new(top, json_string_value(name), json_string_length(name),
                                     json_real(finite_or_least(logprob))) == 0;
    json_decref(name);
    return good;
}

/* known: the token has a log-probability. */
static bool add_text(fv_api_logprobs *l, const token_message *t, bool known, uint32_t offset) {
    json_t *top = known ? json_object() : json_null();
    bool good = true, among = false;
    for (size_t i = 0; known && i < t->n_alternatives; i++) {
        among |= t->alternatives[i]->id == t->id;
        good &= add_alternative(l, top, t->alternatives[i]->id, &t->alternatives[i]->text,
                                t->alternatives[i]->logprob);
    }
    if (known && !among) good &= add_alternative(l, top, t->id, &t->text, t->logprob);
    json_t *const values[] = {key_name(l, t->id, &t->text),
                              known ? json_real(finite_or_least(t->logprob)) : json_null(), top,
                              json_integer(offset)};
    for (int32_t i = 0; i < 4; i++) good &= json_array_append_new(l->held[i], values[i]) == 0;
    return good;
}

static fv_status add(fv_api_logprobs *l, const token_message *t, bool known, uint32_t base) {
    const char *const *names;
    const int32_t n = lists_of(l, &names);
    const uint32_t offset = base + t->text_offset;
    for (int32_t i = 0; i < n; i++)
        if (!l->held[i] && !(l->held[i] = json_array())) return out_of_memory();
    FV_TRY(fv_grow(&l->offset, &l->cap_held, l->n_held + 1, sizeof *l->offset));
    const bool good = l->kind == FV_API_TEXT ? add_text(l, t, known, offset) : add_chat(l, t);
    if (!good) return out_of_memory();
    l->offset[l->n_held++] = offset;
    return FV_OK;
}

fv_status fv_api_logprobs_add(fv_api_logprobs *l, const Fovea__Inference__V1__Tokens *t) {
    for (size_t i = 0; i < t->n_tokens; i++) FV_TRY(add(l, t->tokens[i], true, l->base));
    return FV_OK;
}

fv_status fv_api_logprobs_add_prompt(fv_api_logprobs *l, const prompt_message *t) {
    for (size_t i = 0; i < t->n_tokens; i++)
        if (t->tokens[i]->token) FV_TRY(add(l, t->tokens[i]->token, t->tokens[i]->rank > 0, 0));
    return FV_OK;
}

/* ---- giving out -------------------------------------------------------------------------- */

static size_t count_ready(const fv_api_logprobs *l, uint32_t n_char) {
    size_t n = 0;
    while (n < l->n_held && (n_char == UINT32_MAX || l->offset[n] < n_char)) n++;
    return n;
}

/* Moves the first n values of a list into a new one. */
static json_t *take_first(json_t *list, size_t n) {
    json_t *out = json_array();
    for (size_t i = 0; i < n && out; i++)
        if (json_array_append(out, json_array_get(list, i)) != 0) {
            json_decref(out);
            return NULL;
        }
    for (size_t left = json_array_size(list), i = n; out && i < left; i++)
        json_array_set(list, i - n, json_array_get(list, i));
    for (size_t i = 0; i < n && out; i++) json_array_remove(list, json_array_size(list) - 1);
    return out;
}

static void forget_first(fv_api_logprobs *l, size_t n) {
    l->n_held -= n;
    memmove(l->offset, l->offset + n, l->n_held * sizeof *l->offset);
}

fv_status fv_api_logprobs_take(fv_api_logprobs *l, uint32_t n_char, json_t **out) {
    const char *const *names;
    const int32_t n = lists_of(l, &names);
    const size_t ready = count_ready(l, n_char);
    *out = NULL;
    if (ready == 0) return FV_OK;
    json_t *o = json_object();
    bool good = o != NULL;
    for (int32_t i = 0; i < n; i++)
        good &= json_object_set_new(o, names[i], take_first(l->held[i], ready)) == 0;
    forget_first(l, ready);
    if (!good) {
        json_decref(o);
        return out_of_memory();
    }
    *out = o;
    return FV_OK;
}

fv_status fv_api_list_add(fv_api_list *list, const json_t *array) {
    char *text = json_dumps(array, FV_API_JSON_FLAGS);
    if (!text) return out_of_memory();
    const size_t n = strlen(text) - 2, before = list->n;
    const bool comma = before > 0 && n > 0;
    fv_status st = fv_grow(&list->text, &list->cap, before + comma + n, 1);
    if (st == FV_OK) {
        if (comma) list->text[before] = ',';
        memcpy(list->text + before + comma, text + 1, n);
        list->n += comma + n;
    }
    free(text);
    return st;
}

fv_status fv_api_logprobs_keep(fv_api_logprobs *l, uint32_t n_char) {
    const char *const *names;
    const int32_t n = lists_of(l, &names);
    json_t *o;
    FV_TRY(fv_api_logprobs_take(l, n_char, &o));
    fv_status st = FV_OK;
    for (int32_t i = 0; o && i < n && st == FV_OK; i++)
        st = fv_api_list_add(&l->list[i], json_object_get(o, names[i]));
    json_decref(o);
    return st;
}

void fv_api_logprobs_free(fv_api_logprobs *l) {
    for (int32_t i = 0; i < FV_API_LOGPROBS_LISTS; i++) {
        free(l->list[i].text);
        json_decref(l->held[i]);
    }
    free(l->offset);
    *l = (fv_api_logprobs){.kind = l->kind};
}

/* ---- of a prompt ------------------------------------------------------------------------- */

static bool add_ranked(json_t *to, uint32_t id, const ProtobufCBinaryData *text, float logprob,
                       uint32_t rank) {
    char key[16];
    snprintf(key, sizeof key, "%" PRIu32, id);
    return json_object_set_new(to, key,
                               json_pack("{s:f, s:I, s:o}", "logprob", finite_or_least(logprob),
                                         "rank", (json_int_t)rank, "decoded_token",
                                         text_of(text))) == 0;
}

/* The token itself comes first, then the others from the likeliest down. */
static json_t *ranked(const Fovea__Inference__V1__PromptToken *p) {
    const token_message *t = p->token;
    if (!t || p->rank == 0) return json_null();
    json_t *o = json_object();
    bool good = o && add_ranked(o, t->id, &t->text, t->logprob, p->rank);
    for (size_t i = 0; i < t->n_alternatives; i++)
        if (t->alternatives[i]->id != t->id)
            good &= add_ranked(o, t->alternatives[i]->id, &t->alternatives[i]->text,
                               t->alternatives[i]->logprob, (uint32_t)i + 1);
    if (good) return o;
    json_decref(o);
    return NULL;
}

fv_status fv_api_prompt_logprobs_add(const prompt_message *t, fv_api_list *list) {
    json_t *all = json_array();
    bool good = all != NULL;
    for (size_t i = 0; i < t->n_tokens; i++)
        good &= json_array_append_new(all, ranked(t->tokens[i])) == 0;
    fv_status st = good ? fv_api_list_add(list, all) : out_of_memory();
    json_decref(all);
    return st;
}

/* ---- as text ----------------------------------------------------------------------------- */

/* Size of {"a":[...],"b":[...]}. */
size_t fv_api_logprobs_size(const fv_api_logprobs *l) {
    const char *const *names;
    const int32_t n = lists_of(l, &names);
    size_t bytes = 2;
    for (int32_t i = 0; i < n; i++) bytes += strlen(names[i]) + l->list[i].n + 6;
    return bytes;
}

char *fv_api_logprobs_write(const fv_api_logprobs *l, char *out) {
    const char *const *names;
    const int32_t n = lists_of(l, &names);
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
