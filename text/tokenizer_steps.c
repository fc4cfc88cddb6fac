/* The steps of a tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder.
 *
 * In: the parsed file. Each section is a component or a Sequence of components; Sequences are
 * unrolled into a flat list of steps, so that running a tokenizer needs no tree. An unsupported
 * component is refused here, by name: ids that are almost right would only
 * show as a model that answers strangely. Runs once per file. */
#include <stdlib.h>
#include <string.h>

#include "text/base64.h"
#include "text/json.h"
#include "text/tokenizer_internal.h"

fv_status fv_tok_string_member(fv_tok_loader *l, const json_t *obj, const char *key,
                               fv_tok_str *out) {
    const json_t *v = json_object_get(obj, key);
    if (!json_is_string(v)) return FV_FAIL(FV_EDATA, "%s: a string '%s' is missing", l->where, key);
    char *copy;
    out->n = json_string_length(v);
    FV_TRY(fv_arena_strndup(&l->tok->arena, json_string_value(v), out->n, &copy));
    out->s = copy;
    return FV_OK;
}

static bool is_char(fv_tok_str t) {
    int32_t cp;
    size_t len;
    return t.n && fv_utf8_next(t.s, t.n, &cp, &len) == FV_UTF8_OK && len == t.n;
}

static fv_status char_at(fv_tok_loader *l, const json_t *obj, const char *key, fv_tok_str *out) {
    FV_TRY(fv_tok_string_member(l, obj, key, out));
    if (is_char(*out)) return FV_OK;
    return FV_FAIL(FV_EDATA, "%s: '%s' is '%.40s'; it must be one character", l->where, key,
                   out->s);
}

/* Reads {"String": literal} or {"Regex": literal}; *kind: which it is. */
static fv_status pattern_at(fv_tok_loader *l, const json_t *obj, fv_tok_str *literal,
                            const char **kind) {
    const json_t *p = json_object_get(obj, "pattern");
    *kind = json_object_get(p, "Regex") ? "Regex" : "String";
    if (!json_is_object(p))
        return FV_FAIL(FV_EDATA, "%s: a pattern must be {\"String\": ...} or {\"Regex\": ...}",
                       l->where);
    return fv_tok_string_member(l, p, *kind, literal);
}

fv_status fv_tok_unsupported(const fv_tok_loader *l, const char *section, const char *type,
                             const char *known) {
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: %s '%.60s' is not supported; fovea supports %s. Use a checkpoint whose "
                   "tokenizer is Unigram, or BPE of the Llama-2, GPT-2, Llama-3 or Qwen2 form",
                   l->where, section, type, known);
}

/* ---- sections and their steps ---- */

typedef struct section {
    const char *name, *list; /* the key in the file; the key of a Sequence's list */
    fv_status (*step)(fv_tok_loader *l, const json_t *step, const char *type);
} section;

static fv_status load_steps(fv_tok_loader *l, const section *sec, const json_t *node, int depth) {
    const char *type = json_string_value(json_object_get(node, "type"));
    if (!type) return FV_FAIL(FV_EDATA, "%s: a %s has no type", l->where, sec->name);
    if (strcmp(type, "Sequence") != 0) return sec->step(l, node, type);
    const json_t *list = json_object_get(node, sec->list), *item;
    if (!json_is_array(list))
        return FV_FAIL(FV_EDATA, "%s: %s Sequence without a list '%s'", l->where, sec->name,
                       sec->list);
    if (depth == FV_TOK_NESTING_MAX)
        return FV_FAIL(FV_EDATA, "%s: %s nests Sequences more than %d deep", l->where, sec->name,
                       FV_TOK_NESTING_MAX);
    size_t i;
    json_array_foreach(list, i, item) FV_TRY(load_steps(l, sec, item, depth + 1));
    return FV_OK;
}

static fv_status load_section(fv_tok_loader *l, const section *sec, const json_t *root) {
    const json_t *node = json_object_get(root, sec->name);
    return !node || json_is_null(node) ? FV_OK : load_steps(l, sec, node, 0);
}

static fv_status check_step_count(const fv_tok_loader *l, const char *what, int32_t n) {
    if (n < FV_TOK_STEPS_MAX) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: %s has more than %d steps", l->where, what,
                   FV_TOK_STEPS_MAX);
}

static fv_status check_literal(const fv_tok_loader *l, fv_tok_str t) {
    if (t.n <= FV_TOK_LITERAL_BYTES_MAX) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: a string of %zu bytes to insert or replace; at most %d",
                   l->where, t.n, FV_TOK_LITERAL_BYTES_MAX);
}

static fv_status literal_replace(fv_tok_loader *l, const json_t *step, const char *what,
                                 fv_tok_str *a, fv_tok_str *b) {
    const char *kind;
    FV_TRY(pattern_at(l, step, a, &kind));
    FV_TRY(fv_tok_string_member(l, step, "content", b));
    FV_TRY(check_literal(l, *a));
    FV_TRY(check_literal(l, *b));
    if (strcmp(kind, "String") == 0 && a->n) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: %s Replace of the pattern '%.200s' (%s) is not supported; this engine "
                   "replaces literal strings that are not empty",
                   l->where, what, a->s, kind);
}

static fv_status norm_prepend(fv_tok_loader *l, const json_t *step, fv_tok_norm *p) {
    fv_tok_str a;
    FV_TRY(fv_tok_string_member(l, step, "prepend", &a));
    p->a = a.s;
    p->n_a = a.n;
    return check_literal(l, a);
}

/* Replaces a literal, or, as another kind of step, the matches of an expression. */
static fv_status norm_replace(fv_tok_loader *l, const json_t *step, fv_tok_norm *p) {
    fv_tok_str a, b;
    const char *kind;
    FV_TRY(pattern_at(l, step, &a, &kind));
    if (strcmp(kind, "Regex") != 0) {
        FV_TRY(literal_replace(l, step, "the normalizer's", &a, &b));
        p->a = a.s;
        p->n_a = a.n;
    } else {
        FV_TRY(fv_tok_string_member(l, step, "content", &b));
        FV_TRY(check_literal(l, b));
        FV_TRY(fv_tok_regex_open(a.s, a.n, l->where, &p->regex));
        p->kind = FV_TOK_NORM_REGEX;
    }
    p->b = b.s;
    p->n_b = b.n;
    return FV_OK;
}

static fv_status norm_form(fv_tok_loader *l, const json_t *step, fv_tok_norm *p) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = json_string_value(json_object_get(step, "type"));
    (void)l;
    while (strcmp(type, forms[p->form]) != 0) p->form++;
    return FV_OK;
}

static fv_status norm_strip(fv_tok_loader *l, const json_t *step, fv_tok_norm *p) {
    p->left = p->right = true;
    FV_TRY(fv_json_bool(step, "strip_left", l->where, &p->left));
    return fv_json_bool(step, "strip_right", l->where, &p->right);
}

static fv_status norm_charsmap(fv_tok_loader *l, const json_t *step, fv_tok_norm *p) {
    const json_t *text = json_object_get(step, "precompiled_charsmap");
    const size_t n = json_string_length(text);
    size_t bytes;
    unsigned char *map = malloc(FV_TEXT_BASE64_BYTES(n) + 1);
    if (!map) return FV_FAIL(FV_ENOMEM, "%s: no memory for precompiled_charsmap", l->where);
    fv_status st =
        json_is_string(text) && fv_text_base64_read(json_string_value(text), n, map, &bytes)
            ? FV_OK
            : FV_FAIL(FV_EDATA, "%s: precompiled_charsmap must be in base64", l->where);
    if (st == FV_OK) st = FV_ARENA_NEW(&l->tok->arena, 1, p->spiece.map);
    if (st == FV_OK) st = fv_charsmap_read(map, bytes, l->where, &l->tok->arena, p->spiece.map);
    free(map);
    return st;
}

static fv_status norm_keep(fv_tok_loader *l, const json_t *list, fv_tok_spiece *p) {
    const json_t *item;
    size_t i;
    FV_TRY(FV_ARENA_NEW(&l->tok->arena, 1, p->keep));
    FV_TRY(FV_ARENA_NEW(&l->tok->arena, json_array_size(list), p->keep->tokens));
    json_array_foreach(list, i, item) {
        fv_tok_added *a = &p->keep->tokens[p->keep->n++];
        char *copy;
        *a = (fv_tok_added){.id = (int32_t)i, .n = json_string_length(item)};
        FV_TRY(fv_arena_strndup(&l->tok->arena, a->n ? json_string_value(item) : "", a->n, &copy));
        a->text = copy;
    }
    return fv_tok_added_init(p->keep, l->where);
}

/* A type of our own: trees that are made of a tokenizer.model have it. */
static fv_status norm_spiece(fv_tok_loader *l, const json_t *step, fv_tok_norm *p) {
    fv_tok_spiece *s = &p->spiece;
    s->escapes = true;
    FV_TRY(fv_json_bool(step, "prefix", l->where, &s->prefix));
    FV_TRY(fv_json_bool(step, "first_only", l->where, &s->first_only));
    FV_TRY(fv_json_bool(step, "suffix", l->where, &s->suffix));
    FV_TRY(fv_json_bool(step, "trims", l->where, &s->trims));
    FV_TRY(fv_json_bool(step, "escapes", l->where, &s->escapes));
    const json_t *keep = json_object_get(step, "keep");
    if (keep) FV_TRY(norm_keep(l, keep, s));
    return json_object_get(step, "precompiled_charsmap") ? norm_charsmap(l, step, p) : FV_OK;
}

static const struct norm_type {
    const char *name;
    fv_tok_norm_kind kind;
    fv_status (*load)(fv_tok_loader *l, const json_t *step, fv_tok_norm *p);
} norm_types[] = {
    {"Prepend", FV_TOK_NORM_PREPEND, norm_prepend},
    {"Replace", FV_TOK_NORM_REPLACE, norm_replace},
    {"NFC", FV_TOK_NORM_FORM, norm_form},
    {"NFD", FV_TOK_NORM_FORM, norm_form},
    {"NFKC", FV_TOK_NORM_FORM, norm_form},
    {"NFKD", FV_TOK_NORM_FORM, norm_form},
    {"Strip", FV_TOK_NORM_STRIP, norm_strip},
    {"Precompiled", FV_TOK_NORM_CHARSMAP, norm_charsmap},
    {"SentencePiece", FV_TOK_NORM_SPIECE, norm_spiece},
};

static fv_status norm_step(fv_tok_loader *l, const json_t *step, const char *type) {
    fv_tokenizer *tok = l->tok;
    FV_TRY(check_step_count(l, "the normalizer", tok->n_norm));
    for (size_t i = 0; i < sizeof norm_types / sizeof *norm_types; i++) {
        if (strcmp(type, norm_types[i].name) != 0) continue;
        tok->norm[tok->n_norm].kind = norm_types[i].kind;
        FV_TRY(norm_types[i].load(l, step, &tok->norm[tok->n_norm]));
        tok->n_norm++;
        return FV_OK;
    }
    return fv_tok_unsupported(
        l, "normalizer", type,
        "Prepend, Replace, NFC, NFD, NFKC, NFKD, Strip, Precompiled and Sequence");
}

static fv_status add_pre(fv_tok_loader *l, fv_tok_pre step) {
    FV_TRY(check_step_count(l, "the pre_tokenizer", l->tok->n_pre));
    l->tok->pre[l->tok->n_pre++] = step;
    return FV_OK;
}

/* Reads Metaspace's scheme; older files have add_prefix_space instead of prepend_scheme. */
static fv_status scheme_of(fv_tok_loader *l, const json_t *step, fv_tok_scheme *out) {
    static const char *const names[] = {"always", "first", "never"};
    bool prefix = true;
    const char *name = NULL;
    FV_TRY(fv_json_bool(step, "add_prefix_space", l->where, &prefix));
    FV_TRY(fv_json_str(step, "prepend_scheme", l->where, &name));
    if (!name) name = prefix ? "always" : "never";
    int s = 0;
    while (s < 3 && strcmp(name, names[s]) != 0) s++;
    if (s == 3 || (!prefix && s != FV_TOK_PREPEND_NEVER))
        return FV_FAIL(FV_EDATA, "%s: Metaspace with prepend_scheme '%.40s'%s", l->where, name,
                       prefix ? "; it must be always, first or never" : " but no prefix space");
    *out = (fv_tok_scheme)s;
    return FV_OK;
}

static fv_status pre_metaspace(fv_tok_loader *l, const json_t *step) {
    fv_tok_pre p = {.kind = FV_TOK_PRE_METASPACE};
    fv_tok_str mark;
    bool cut = true;
    FV_TRY(char_at(l, step, "replacement", &mark));
    FV_TRY(scheme_of(l, step, &p.scheme));
    FV_TRY(fv_json_bool(step, "split", l->where, &cut));
    const bool after_words = l->tok->n_pre == 1 && l->tok->pre[0].kind == FV_TOK_PRE_WORDS &&
                             p.scheme != FV_TOK_PREPEND_FIRST;
    if (l->tok->n_pre && !after_words)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: Metaspace is supported as the first pre_tokenizer only, or after "
                       "WhitespaceSplit if its prepend_scheme is not first",
                       l->where);
    p.mark = mark.s;
    p.n_mark = mark.n;
    FV_TRY(add_pre(l, p));
    p.kind = FV_TOK_PRE_CUT;
    return cut ? add_pre(l, p) : FV_OK;
}

/* Whether the normalizer's last step replaces every `s`, so that no text contains it. */
static bool is_replaced(const fv_tokenizer *tok, fv_tok_str s) {
    const fv_tok_norm *p = tok->n_norm ? &tok->norm[tok->n_norm - 1] : NULL;
    return p && p->kind == FV_TOK_NORM_REPLACE && p->n_a == s.n && memcmp(p->a, s.s, s.n) == 0 &&
           !memchr(p->b, s.s[0], p->n_b);
}

static fv_status pre_split(fv_tok_loader *l, const json_t *step) {
    fv_tok_str regex;
    const char *kind, *behavior = "";
    bool invert = false;
    FV_TRY(pattern_at(l, step, &regex, &kind));
    FV_TRY(fv_json_str(step, "behavior", l->where, &behavior));
    FV_TRY(fv_json_bool(step, "invert", l->where, &invert));
    bool literal = strcmp(kind, "Regex") != 0;
    if (literal && regex.n && !invert && is_replaced(l->tok, regex)) return FV_OK; /* Gemma */
    if (literal)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: pre_tokenizer Split by %s '%.400s' is not supported; by Regex is, and "
                       "by what the normalizer has replaced",
                       l->where, kind, regex.s);
    bool removed = strcmp(behavior, "Removed") == 0;
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: pre_tokenizer Split with behavior '%.40s' is not supported; fovea "
                       "supports Isolated and Removed",
                       l->where, behavior);
    bool by_hand = strlen(regex.s) == regex.n;
    fv_tok_pattern pattern = by_hand ? fv_tok_pattern_of(regex.s) : FV_TOK_N_PATTERN;
    if (pattern == FV_TOK_N_PATTERN) {
        fv_tok_pre p = {.kind = FV_TOK_PRE_REGEX,
                        .keep_matches = !removed || invert,
                        .keep_gaps = !removed || !invert};
        FV_TRY(fv_tok_regex_open(regex.s, regex.n, l->where, &p.regex));
        fv_status st = add_pre(l, p);
        if (st != FV_OK) fv_tok_regex_free(p.regex);
        return st;
    }
    /* The matches leave no gap, so Removed keeps all (inverted) or nothing. */
    bool drop = removed && !invert;
    return add_pre(
        l, (fv_tok_pre){.kind = drop ? FV_TOK_PRE_DROP : FV_TOK_PRE_SPLIT, .pattern = pattern});
}

static fv_status pre_byte_level(fv_tok_loader *l, const json_t *step) {
    bool prefix = true, regex = true;
    FV_TRY(fv_json_bool(step, "add_prefix_space", l->where, &prefix));
    FV_TRY(fv_json_bool(step, "use_regex", l->where, &regex));
    for (int32_t i = 0; i < l->tok->n_pre; i++)
        if (l->tok->pre[i].kind == FV_TOK_PRE_BYTE_LEVEL)
            return FV_FAIL(FV_EUNSUPPORTED, "%s: ByteLevel is supported once per pre_tokenizer",
                           l->where);
    if (prefix) FV_TRY(add_pre(l, (fv_tok_pre){.kind = FV_TOK_PRE_SPACE}));
    if (regex) FV_TRY(add_pre(l, (fv_tok_pre){.kind = FV_TOK_PRE_SPLIT, .pattern = FV_TOK_GPT2}));
    return add_pre(l, (fv_tok_pre){.kind = FV_TOK_PRE_BYTE_LEVEL});
}

static fv_status pre_step(fv_tok_loader *l, const json_t *step, const char *type) {
    if (strcmp(type, "Metaspace") == 0) return pre_metaspace(l, step);
    if (strcmp(type, "Split") == 0) return pre_split(l, step);
    if (strcmp(type, "ByteLevel") == 0) return pre_byte_level(l, step);
    if (strcmp(type, "Digits") == 0) {
        fv_tok_pre p = {.kind = FV_TOK_PRE_DIGITS};
        FV_TRY(fv_json_bool(step, "individual_digits", l->where, &p.individual));
        return add_pre(l, p);
    }
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_pre(l, (fv_tok_pre){.kind = FV_TOK_PRE_WORDS});
    return fv_tok_unsupported(l, "pre_tokenizer", type,
                              "Metaspace, Split, ByteLevel, Digits, WhitespaceSplit and Sequence");
}

/* Refuses a stage that needs whole tokens after one that passes on fragments. */
static fv_status check_whole(const fv_tok_loader *l, const char *type) {
    for (int32_t i = 0; i < l->tok->n_dec; i++) {
        fv_tok_dec_kind k = l->tok->dec[i].kind;
        if (k == FV_TOK_DEC_FUSE || k == FV_TOK_DEC_BYTE_LEVEL || k == FV_TOK_DEC_STRIP)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: decoder %s is not supported after Fuse, ByteLevel or Strip",
                           l->where, type);
    }
    return FV_OK;
}

static fv_status dec_step(fv_tok_loader *l, const json_t *step, const char *type) {
    fv_tok_dec p = {0};
    fv_tok_str a = {0}, b = {0};
    if (strcmp(type, "Replace") == 0) {
        p.kind = FV_TOK_DEC_REPLACE;
        FV_TRY(check_whole(l, type));
        FV_TRY(literal_replace(l, step, "the decoder's", &a, &b));
    } else if (strcmp(type, "ByteFallback") == 0) {
        p.kind = FV_TOK_DEC_BYTE_FALLBACK;
        FV_TRY(check_whole(l, type));
    } else if (strcmp(type, "Fuse") == 0) {
        p.kind = FV_TOK_DEC_FUSE;
    } else if (strcmp(type, "ByteLevel") == 0) {
        p.kind = FV_TOK_DEC_BYTE_LEVEL;
        FV_TRY(check_whole(l, type));
    } else if (strcmp(type, "Strip") == 0) {
        p.kind = FV_TOK_DEC_STRIP;
        FV_TRY(char_at(l, step, "content", &a));
        FV_TRY(fv_json_i32(step, "start", l->where, 0, INT32_MAX, &p.start));
        FV_TRY(fv_json_i32(step, "stop", l->where, 0, INT32_MAX, &p.stop));
    } else if (strcmp(type, "Metaspace") == 0) {
        fv_tok_scheme scheme;
        p.kind = FV_TOK_DEC_METASPACE;
        FV_TRY(char_at(l, step, "replacement", &a));
        FV_TRY(scheme_of(l, step, &scheme));
        p.keep_first = scheme == FV_TOK_PREPEND_NEVER;
    } else {
        return fv_tok_unsupported(
            l, "decoder", type,
            "Replace, ByteFallback, Fuse, Strip, ByteLevel, Metaspace and Sequence");
    }
    p.a = a.s;
    p.n_a = a.n;
    p.b = b.s;
    p.n_b = b.n;
    FV_TRY(check_step_count(l, "the decoder", l->tok->n_dec));
    l->tok->dec[l->tok->n_dec++] = p;
    return FV_OK;
}

/* ---- post-processor ---- */

/* Appends the ids of one piece of a template; NULL: counts them only. */
static fv_status template_piece(fv_tok_loader *l, const json_t *step, const json_t *piece,
                                int32_t *post, int32_t *n) {
    const json_t *seq = json_object_get(piece, "Sequence"), *item;
    const json_t *special = json_object_get(piece, "SpecialToken");
    const char *id = json_string_value(json_object_get(seq ? seq : special, "id"));
    if (!id) return FV_FAIL(FV_EDATA, "%s: TemplateProcessing with a piece of no kind", l->where);
    if (seq) {
        if (strcmp(id, "A") != 0)
            return FV_FAIL(FV_EDATA,
                           "%s: TemplateProcessing's single template asks for sequence "
                           "'%.40s'",
                           l->where, id);
        if (post) post[*n] = -1;
        ++*n;
        return FV_OK;
    }
    const json_t *token = json_object_get(json_object_get(step, "special_tokens"), id);
    const json_t *ids = json_object_get(token, "ids");
    if (!json_is_array(ids))
        return FV_FAIL(FV_EDATA, "%s: TemplateProcessing has no ids for '%.60s'", l->where, id);
    size_t i;
    json_array_foreach(ids, i, item) {
        json_int_t v = json_is_integer(item) ? json_integer_value(item) : -1;
        if (v < 0 || v >= l->tok->vocab.n || !(l->tok->vocab.tokens[v].flags & FV_TOK_USED))
            return FV_FAIL(FV_EDATA, "%s: TemplateProcessing gives '%.60s' an id that no token has",
                           l->where, id);
        if (post) post[*n] = (int32_t)v;
        ++*n;
    }
    return FV_OK;
}

static fv_status post_step(fv_tok_loader *l, const json_t *step, const char *type) {
    if (strcmp(type, "ByteLevel") == 0) return FV_OK; /* offsets only */
    if (strcmp(type, "TemplateProcessing") != 0)
        return fv_tok_unsupported(l, "post_processor", type,
                                  "TemplateProcessing, ByteLevel and Sequence");
    if (l->has_template)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: two TemplateProcessing are not supported", l->where);
    l->has_template = true;
    const json_t *single = json_object_get(step, "single"), *piece;
    if (!json_is_array(single))
        return FV_FAIL(FV_EDATA, "%s: TemplateProcessing without a list 'single'", l->where);
    size_t i;
    int32_t n = 0, texts = 0;
    json_array_foreach(single, i, piece) FV_TRY(template_piece(l, step, piece, NULL, &n));
    FV_TRY(FV_ARENA_NEW(&l->tok->arena, n, l->tok->post));
    l->tok->n_post = 0;
    json_array_foreach(single, i, piece)
        FV_TRY(template_piece(l, step, piece, l->tok->post, &l->tok->n_post));
    for (int32_t k = 0; k < n; k++) texts += l->tok->post[k] < 0;
    if (texts != 1)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: TemplateProcessing has the text %d times, not once",
                       l->where, texts);
    return FV_OK;
}

/* Refuses the scheme "first" after steps that may insert or delete at the front: whether a piece starts where
 * the text did then depends on how the reference aligns the two. */
static fv_status check_first(const fv_tok_loader *l) {
    const fv_tokenizer *tok = l->tok;
    if (!tok->n_pre || tok->pre[0].scheme != FV_TOK_PREPEND_FIRST) return FV_OK;
    for (int32_t i = 0; i < tok->n_norm; i++) {
        const fv_tok_norm *p = &tok->norm[i];
        bool plain = p->kind == FV_TOK_NORM_REPLACE && is_char((fv_tok_str){p->a, p->n_a}) &&
                     is_char((fv_tok_str){p->b, p->n_b});
        if (!plain && !(p->kind == FV_TOK_NORM_FORM && p->form == FV_UNI_NFC))
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: Metaspace with prepend_scheme 'first' is supported after NFC and "
                           "Replace of one character by one; other normalizers need 'always'",
                           l->where);
    }
    return FV_OK;
}

fv_status fv_tok_load_normalizer(fv_tok_loader *l, const json_t *root) {
    static const section norm = {"normalizer", "normalizers", norm_step};
    return load_section(l, &norm, root);
}

fv_status fv_tok_load_steps(fv_tok_loader *l, const json_t *root) {
    static const section pre = {"pre_tokenizer", "pretokenizers", pre_step};
    static const section post = {"post_processor", "processors", post_step};
    static const section dec = {"decoder", "decoders", dec_step};
    FV_TRY(load_section(l, &pre, root));
    FV_TRY(check_first(l));
    FV_TRY(load_section(l, &post, root));
    const json_t *decoder = json_object_get(root, dec.name);
    if (!decoder || json_is_null(decoder)) l->tok->dec[l->tok->n_dec++].kind = FV_TOK_DEC_JOIN;
    return load_section(l, &dec, root);
}
