/* The table of forms: each is complete, and the numbers of a shape lead back to it. */
#include "packed/forms.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "policy/policy.h"

static const fv_packed_shape shapes[] = {
    {.form = FV_PACKED_LOWRANK, .lowrank = {.rank = 5, .rank2 = 3, .bits = 8}},
    {.form = FV_PACKED_LOWRANK, .kind = FV_PACKED_V, .lowrank = {.bits = 16}},
    {.form = FV_PACKED_QUANTIZED, .codes = {.n_outlier = 7, .bits = 4}},
    {.form = FV_PACKED_QUANTIZED, .kind = FV_PACKED_V, .codes = {.bits = 16}},
    {.form = FV_PACKED_MERGED, .merged = {.n_exact = 9}},
    {.form = FV_PACKED_LATENT, .latent = {.row_bits = 99, .n_low = 4, .n_own = 2, .exact = true}},
    {.form = FV_PACKED_LATENT, .latent = {.row_bits = 32, .each_bits = 8}},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Shape i with its sizes. */
static fv_packed_shape sized(int i) {
    fv_packed_shape s = shapes[i];
    s.n = 20;
    s.n_kv = 2;
    s.d_head = 8;
    s.dtype = FV_BF16;
    return s;
}

/* The shape that numbers make, with the sizes of s. */
static fv_packed_shape made_of(const fv_packed_shape *s, const fv_packed_numbers *x) {
    fv_packed_shape to = {.form = s->form,
                          .kind = s->kind,
                          .n = s->n,
                          .n_kv = s->n_kv,
                          .d_head = s->d_head,
                          .dtype = s->dtype,
                          .borrows = s->borrows};
    fv_packed_format_of(s->form)->take_numbers(x, &to);
    return to;
}

Test(forms, each_table_is_complete_and_named_after_its_method) {
    for (int f = 0; f < FV_N_PACKED_FORM; f++) {
        const fv_packed_format *x = fv_packed_format_of((fv_packed_form)f);
        char text[64];
        fv_policy policy;
        snprintf(text, sizeof text, "pack=%s", x->name);
        cr_expect_eq(fv_policy_parse(text, &policy), FV_OK, "%s", fv_last_error());
        cr_expect(x->bytes && x->sent_bytes && x->check && x->fits && x->smallest && x->kept &&
                      x->keep && x->put_numbers && x->take_numbers,
                  "%s", x->name);
        cr_expect_eq(x->own_keys, x->lent_bytes != NULL, "%s: who lends says how much", x->name);
    }
}

Test(forms, numbers_lead_back_to_the_shape) {
    for (int i = 0; i < SHAPES; i++) {
        fv_packed_shape s = sized(i), back;
        fv_packed_numbers x, y;
        const fv_packed_format *format = fv_packed_format_of(s.form);
        format->put_numbers(&s, &x);
        back = made_of(&s, &x);
        format->put_numbers(&back, &y);
        cr_expect_eq(fv_packed_check(&back), FV_OK, "shape %d: %s", i, fv_last_error());
        cr_expect_eq(fv_packed_bytes(&s), fv_packed_bytes(&back), "shape %d", i);
        cr_expect(x.rank == y.rank && x.rank2 == y.rank2 && x.bits == y.bits &&
                      x.n_outlier == y.n_outlier && x.exact == y.exact,
                  "shape %d", i);
    }
}

Test(forms, numbers_that_no_shape_has_are_refused) {
    for (int i = 0; i < SHAPES; i++) {
        fv_packed_shape s = sized(i);
        fv_packed_numbers x;
        fv_packed_format_of(s.form)->put_numbers(&s, &x);
        uint32_t *each[] = {&x.rank, &x.rank2, &x.bits, &x.n_outlier};
        for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
            static const uint32_t bad[] = {UINT32_MAX, (uint32_t)INT32_MAX + 1, INT32_MAX};
            uint32_t was = *each[k];
            for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
                *each[k] = bad[b];
                fv_packed_shape made = made_of(&s, &x);
                cr_expect_eq(fv_packed_check(&made), FV_EINVAL, "shape %d, number %zu", i, k);
            }
            *each[k] = was;
        }
    }
}

Test(forms, bits_of_another_form_are_refused) {
    static const uint32_t bits[SHAPES] = {5, 8, 3, 12, 8, 9, 0};
    for (int i = 0; i < SHAPES; i++) {
        fv_packed_shape s = sized(i);
        fv_packed_numbers x;
        fv_packed_format_of(s.form)->put_numbers(&s, &x);
        x.bits = bits[i];
        fv_packed_shape made = made_of(&s, &x);
        cr_expect_eq(fv_packed_check(&made), FV_EINVAL, "shape %d with %u bits", i, bits[i]);
    }
}
