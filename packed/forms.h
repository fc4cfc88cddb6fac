#ifndef FOVEA_PACKED_FORMS_H
#define FOVEA_PACKED_FORMS_H

/* THE FORMS OF PACKED PARTS, a table each: whoever holds, sends or receives parts asks the table and
 * does not tell forms apart. A form's file defines its table: lowrank.c, codes.c, merged.c, latent.c.
 *
 * A new form takes a row in fv_packed_form and a member in fv_packed_shape (part.h), a file with its
 * table, its place in forms.c, and an operation that attends to it (kernels/ops.h).
 *
 * Pure functions; any thread. */
#include "packed/part.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers by which a hand-off describes a shape (handoff/kv_sections.h). */
typedef struct fv_packed_numbers {
    uint32_t rank, rank2, bits, n_outlier;
    bool exact;
} fv_packed_numbers;

typedef struct fv_packed_format {
    const char *name; /* of the pack method that makes such parts */
    bool tiled;       /* angles are token by token, in tiles; otherwise block by block */
    bool nested;   /* a layer that borrows has the first rows of its source layer, maybe not all */
    bool turned;   /* keys are packed before rotation, and have no anchors */
    bool own_keys; /* a layer that borrows has, all the same, a part of keys of its own */
    bool scored;   /* attention writes scores of its rows (fv_packed_seq, kernels/ops.h) */
    size_t (*bytes)(const fv_packed_shape *s);      /* of a part in memory */
    size_t (*sent_bytes)(const fv_packed_shape *s); /* of a part on the wire; they come first */
    size_t (*lent_bytes)(
        const fv_packed_shape *s); /* of the base that a part of this shape reads; NULL: none
                                                     * borrows */
    /* FV_EINVAL with a message if no part has this shape, or its size overflows; for untrusted shapes. */
    fv_status (*check)(const fv_packed_shape *s);
    /* FV_EINVAL with a message if no part has these bytes, on the host; for untrusted bytes. NULL: any bits
     * are valid. */
    fv_status (*check_data)(const fv_packed_part *p);
    /* Whether a part of shape s, of another layer or kind, can read what a part of shape `base` holds. */
    bool (*fits)(const fv_packed_shape *base, const fv_packed_shape *s);
    /* The smallest shape for n rows of such a part: how many are stored exactly depends on the rows. */
    fv_packed_shape (*smallest)(const fv_packed_shape *s, int32_t n);
    /* The shape of rows idx[0 .. n); and copies these rows to dst, which has that shape: every row keeps its
     * bits. */
    fv_packed_shape (*kept)(const fv_packed_part *src, const int32_t *idx, int32_t n);
    void (*keep)(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst);
    /* Decodes rows [row0, row0 + n) to m [n, Hkv * D]. NULL: rows are products of factors. */
    void (*read)(const fv_packed_part *p, int32_t row0, int32_t n, float *m);
    /* Writes the shape's numbers; reads them into s, whose other fields are set. Numbers that no shape has
     * make a shape that `check` refuses. */
    void (*put_numbers)(const fv_packed_shape *s, fv_packed_numbers *out);
    void (*take_numbers)(const fv_packed_numbers *in, fv_packed_shape *s);
} fv_packed_format;

extern const fv_packed_format fv_format_lowrank, fv_format_codes, fv_format_merged,
    fv_format_latent;

/* The table of a form below FV_N_PACKED_FORM. */
const fv_packed_format *fv_packed_format_of(fv_packed_form form);

/* The tables' functions for a shape or part of any form. */
size_t fv_packed_bytes(const fv_packed_shape *s);
size_t fv_packed_sent_bytes(const fv_packed_shape *s);
fv_status fv_packed_check(const fv_packed_shape *s); /* an unknown form is FV_EINVAL */
fv_packed_shape fv_packed_kept(const fv_packed_part *src, const int32_t *idx, int32_t n);
void fv_packed_keep(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst);

/* Checks what the shapes of all forms have in common; `what` names the form in the message. */
fv_status fv_packed_check_common(const fv_packed_shape *s, const char *what);

/* fv_packed_format.smallest of forms without outliers. */
fv_packed_shape fv_packed_with_rows(const fv_packed_shape *s, int32_t n);

/* fv_packed_format.fits of forms whose parts share rows one for one. */
bool fv_packed_same_rows(const fv_packed_shape *base, const fv_packed_shape *s);

/* A number of a hand-off as an int32_t; -1 if it is none, which every check refuses. */
static inline int32_t fv_packed_count(uint32_t x) { return x > INT32_MAX ? -1 : (int32_t)x; }

#ifdef __cplusplus
}
#endif
#endif
