/* Cuts a message and hashes its parts, in the order of the prompt. Pure functions. */
#include "router/parts.h"

#include <string.h>

#include "kv/cache/digest.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Turn turn_message;

enum { MARKS_MAX = 20, TEXTS_MAX = FV_PARTS_MAX - MARKS_MAX - 1, TOKEN_BYTES = 4 };

/* Ends of one kind: those whose number is a multiple of `step`. */
typedef struct thinned {
    int32_t n, most;
    uint32_t number, step; /* of the last end; a power of two */
    uint32_t number_of[MARKS_MAX];
    fv_part_end end[MARKS_MAX];
} thinned;

typedef struct cutter {
    const fv_parts_of *of;
    fv_digest digest; /* of what follows the last name */
    uint8_t name[FV_DIGEST_BYTES];
    fv_status st; /* the first failure */
    uint32_t items, text;
    size_t image, video; /* the next of each */
    thinned marks, texts;
} cutter;

static void begin(cutter *c) {
    fv_digest_begin(&c->digest, "fovea prompt part v1");
    fv_digest_bytes(&c->digest, c->name, sizeof c->name);
}

static fv_part_end end_of(const cutter *c) {
    fv_part_end e = {.items = c->items, .text = c->text};
    memcpy(&e.name, c->name, sizeof e.name);
    if (e.name == 0) e.name = 1;
    return e;
}

/* Names all of the prompt up to here. */
static void name(cutter *c) {
    fv_status st = fv_digest_end(&c->digest, c->name);
    if (c->st == FV_OK) c->st = st;
    begin(c);
}

static void thin_out(thinned *t) {
    int32_t n = 0;
    t->step *= 2;
    for (int32_t i = 0; i < t->n; i++) {
        if (t->number_of[i] % t->step) continue;
        t->number_of[n] = t->number_of[i];
        t->end[n++] = t->end[i];
    }
    t->n = n;
}

static void cut(cutter *c, thinned *t) {
    name(c);
    t->number++;
    if (t->n == t->most && t->number % t->step == 0) thin_out(t);
    if (t->number % t->step) return;
    t->number_of[t->n] = t->number;
    t->end[t->n++] = end_of(c);
}

/* ---- parts --------------------------------------------------------------------------------- */

static void add_text(cutter *c, const void *text, size_t n) {
    const uint8_t *p = text;
    while (n > 0) {
        size_t left = FV_PARTS_TEXT - c->text % FV_PARTS_TEXT, piece = n < left ? n : left;
        fv_digest_bytes(&c->digest, p, piece);
        c->text += (uint32_t)piece;
        p += piece;
        n -= piece;
        if (piece == left) cut(c, &c->texts);
    }
}

static void add_string(cutter *c, const char *s) { add_text(c, s, strlen(s)); }

static void hash_image(cutter *c, size_t i) {
    const request_message *m = c->of->msg;
    if (i < m->n_images)
        fv_digest_bytes(&c->digest, m->images[i]->data.data, m->images[i]->data.len);
}

/* The next image that is no frame of a video. */
static void add_image(cutter *c) {
    const request_message *m = c->of->msg;
    for (size_t i = 0; i < m->n_videos; i++)
        if (m->videos[i]->first_image == c->image) c->image += m->videos[i]->n_frames;
    fv_digest_text(&c->digest, "image");
    hash_image(c, c->image++);
    c->items++;
    cut(c, &c->marks);
}

static void add_video(cutter *c) {
    const request_message *m = c->of->msg;
    fv_digest_text(&c->digest, "video");
    if (c->video < m->n_videos) {
        const Fovea__Inference__V1__Video *v = m->videos[c->video++];
        fv_digest_bytes(&c->digest, &v->fps, sizeof v->fps);
        fv_digest_number(&c->digest, v->n_frames);
        for (uint32_t i = 0; i < v->n_frames && i < m->n_images; i++)
            hash_image(c, (size_t)v->first_image + i);
    }
    c->items++;
    cut(c, &c->marks);
}

/* ---- the forms of a prompt ------------------------------------------------------------------- */

static void add_turn(cutter *c, const turn_message *t) {
    fv_digest_text(&c->digest, "turn");
    fv_digest_text(&c->digest, t->role);
    for (uint32_t i = 0; i < t->n_images && i < c->of->msg->n_images; i++) add_image(c);
    add_string(c, t->text);
    for (size_t i = 0; i < t->n_parts; i++) {
        const Fovea__Inference__V1__Part *p = t->parts[i];
        if (p->kind_case == FOVEA__INFERENCE__V1__PART__KIND_TEXT) {
            fv_digest_text(&c->digest, "text");
            add_string(c, p->text);
        } else if (p->kind_case == FOVEA__INFERENCE__V1__PART__KIND_IMAGE) {
            add_string(c, p->image->ahead);
            add_image(c);
        } else {
            add_video(c);
        }
    }
    fv_digest_text(&c->digest, "members");
    add_string(c, t->members);
    cut(c, &c->marks);
}

/* Finds the first of the words in a text; *word: which. NULL: none. */
static const char *find_word(const cutter *c, const char *text, int *word) {
    const char *first = NULL;
    for (int i = 0; i < 2; i++) {
        const char *w = c->of->word[i], *at = w && *w ? strstr(text, w) : NULL;
        if (!at || (first && at >= first)) continue;
        first = at;
        *word = i;
    }
    return first;
}

static void add_plain(cutter *c, const char *text) {
    int word = 0;
    for (const char *at; c->of->msg->n_images > 0 && (at = find_word(c, text, &word));) {
        add_text(c, text, (size_t)(at - text));
        if (word == 0)
            add_image(c);
        else
            add_video(c);
        text = at + strlen(c->of->word[word]);
    }
    add_string(c, text);
}

static void add_ids(cutter *c, const Fovea__Inference__V1__TokenIds *ids) {
    size_t first = 0;
    for (size_t i = 0; c->of->msg->n_images > 0 && i < ids->n_id; i++) {
        const bool image = ids->id[i] == c->of->image_token;
        if (!image && !(c->of->video_token && ids->id[i] == c->of->video_token)) continue;
        add_text(c, ids->id + first, (i - first) * TOKEN_BYTES);
        first = i + 1;
        if (image)
            add_image(c);
        else
            add_video(c);
    }
    add_text(c, ids->id + first, (ids->n_id - first) * TOKEN_BYTES);
}

static void add_prompt(cutter *c) {
    const Fovea__Inference__V1__Prompt *p = c->of->msg->prompt;
    if (p && p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT)
        for (size_t i = 0; i < p->chat->n_turns; i++) add_turn(c, p->chat->turns[i]);
    else if (p && p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT)
        add_plain(c, p->text);
    else if (p && p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_IDS)
        add_ids(c, p->ids);
}

/* ---- all of it --------------------------------------------------------------------------------- */

/* Hashes what shapes all of the prompt. */
static void add_base(cutter *c) {
    const request_message *m = c->of->msg;
    const Fovea__Inference__V1__Prompt *p = m->prompt;
    const bool chats = p && p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    fv_digest_begin(&c->digest, "fovea prompt base v1");
    fv_digest_bytes(&c->digest, c->of->secret->bytes, sizeof c->of->secret->bytes);
    fv_digest_text(&c->digest, c->of->tenant);
    fv_digest_text(&c->digest, m->cache_salt);
    fv_digest_text(&c->digest, c->of->adapter);
    fv_digest_number(&c->digest, p ? (int64_t)p->form_case : 0);
    fv_digest_text(&c->digest, chats ? p->chat->template_ : "");
    fv_digest_text(&c->digest, chats ? p->chat->variables : "");
    fv_digest_number(&c->digest, m->image_bounds ? (int64_t)m->image_bounds->pixels_min : -1);
    fv_digest_number(&c->digest, m->image_bounds ? (int64_t)m->image_bounds->pixels_max : -1);
    fv_digest_number(&c->digest, m->truncate_case ? (int64_t)m->truncate_prompt_tokens : -1);
    fv_digest_number(&c->digest, m->special_case ? m->add_special_tokens : -1);
    name(c);
}

static bool is_there(const fv_parts *out, const fv_part_end *e) {
    const fv_part_end *last = out->n ? &out->end[out->n - 1] : NULL;
    return last && last->items == e->items && last->text == e->text;
}

/* Both lists in the order of their ends, and the prompt's end. */
static void merge(const cutter *c, fv_parts *out) {
    const thinned *a = &c->marks, *b = &c->texts;
    for (int32_t i = 0, k = 0; i < a->n || k < b->n;) {
        const fv_part_end *x = &a->end[i], *y = &b->end[k];
        bool first =
            k >= b->n ||
            (i < a->n && (x->items < y->items || (x->items == y->items && x->text <= y->text)));
        out->end[out->n++] = first ? a->end[i++] : b->end[k++];
    }
    fv_part_end last = end_of(c);
    if (!is_there(out, &last)) out->end[out->n++] = last;
}

fv_status fv_parts_name(const fv_parts_of *of, fv_parts *out) {
    cutter c = {
        .of = of, .marks = {.most = MARKS_MAX, .step = 1}, .texts = {.most = TEXTS_MAX, .step = 1}};
    *out = (fv_parts){0};
    add_base(&c);
    add_prompt(&c);
    name(&c);
    uint8_t unused[FV_DIGEST_BYTES];
    fv_status st = fv_digest_end(&c.digest, unused);
    FV_TRY(c.st);
    FV_TRY(st);
    merge(&c, out);
    return FV_OK;
}

size_t fv_parts_bytes(const request_message *m) {
    size_t n = protobuf_c_message_get_packed_size(&m->prompt->base);
    for (size_t i = 0; i < m->n_images; i++) n += m->images[i]->data.len;
    return n;
}
