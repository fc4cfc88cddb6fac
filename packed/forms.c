/* The table of forms, and what all forms have in common. */
#include "packed/forms.h"

static const fv_packed_format *const formats[FV_N_PACKED_FORM] = {
    [FV_PACKED_LOWRANK] = &fv_format_lowrank,
    [FV_PACKED_QUANTIZED] = &fv_format_codes,
    [FV_PACKED_MERGED] = &fv_format_merged,
    [FV_PACKED_LATENT] = &fv_format_latent,
};

const fv_packed_format *fv_packed_format_of(fv_packed_form form) { return formats[form]; }

size_t fv_packed_bytes(const fv_packed_shape *s) { return formats[s->form]->bytes(s); }

size_t fv_packed_sent_bytes(const fv_packed_shape *s) { return formats[s->form]->sent_bytes(s); }

fv_status fv_packed_check(const fv_packed_shape *s) {
    if ((unsigned)s->form >= FV_N_PACKED_FORM)
        return FV_FAIL(FV_EINVAL, "packed rows of form %d", (int)s->form);
    return formats[s->form]->check(s);
}

fv_packed_shape fv_packed_kept(const fv_packed_part *src, const int32_t *idx, int32_t n) {
    return formats[src->shape.form]->kept(src, idx, n);
}

void fv_packed_keep(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst) {
    formats[src->shape.form]->keep(src, idx, dst);
}

fv_packed_shape fv_packed_with_rows(const fv_packed_shape *s, int32_t n) {
    fv_packed_shape to = *s;
    to.n = n;
    return to;
}

bool fv_packed_same_rows(const fv_packed_shape *base, const fv_packed_shape *s) {
    return base->n == s->n;
}

fv_status fv_packed_check_common(const fv_packed_shape *s, const char *what) {
    enum { MOST_ROWS = 1 << 24, MOST = 1024 };
    if ((unsigned)s->dtype >= FV_N_DTYPE || (unsigned)s->kind > FV_PACKED_V)
        return FV_FAIL(FV_EINVAL, "%s of type %d, kind %d", what, (int)s->dtype, (int)s->kind);
    if (s->n < 0 || s->n > MOST_ROWS)
        return FV_FAIL(FV_EINVAL, "%s of %d rows: at most %d", what, s->n, MOST_ROWS);
    if (s->n_kv < 1 || s->n_kv > MOST || s->d_head < 1 || s->d_head > MOST)
        return FV_FAIL(FV_EINVAL, "%s of %d heads of %d: 1 to %d each", what, s->n_kv, s->d_head,
                       MOST);
    return FV_OK;
}
