/* handoff/kv_packet.c and handoff/kv_sections.c: streams of sections, whole, cut, damaged, unknown.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c_join.h"
#include "handoff/crc32c.h"
#include "handoff/kv_packet.h"
#include "handoff/kv_sections.h"

enum { MANY = 700, SKIP_MAX = 64 };

/* ---- a stream in memory, and what a reader makes of it ---------------------------------- */

typedef struct stream {
    uint8_t *bytes;
    size_t n, n_frame, frame_max;
} stream;

static fv_status keep_frame(void *user, const fv_piece *piece, int32_t n, size_t bytes) {
    stream *s = user;
    size_t sum = 0;
    cr_assert(n > 0 && n <= FV_FRAME_PIECES);
    s->bytes = realloc(s->bytes, s->n + bytes);
    for (int32_t i = 0; i < n; i++) {
        memcpy(s->bytes + s->n + sum, piece[i].data, piece[i].bytes);
        sum += piece[i].bytes;
    }
    cr_assert_eq(sum, bytes);
    cr_assert(bytes > 0 && bytes <= s->frame_max, "%zu bytes in a frame", bytes);
    s->n += bytes;
    s->n_frame++;
    return FV_OK;
}

typedef struct seen {
    int n_begin, n_end, n_finish;
    fv_section section[16];
    uint8_t payload[16][MANY * 4];
    bool refuse_begin;
} seen;

static fv_status on_begin(void *user, const fv_section *s) {
    seen *w = user;
    cr_assert_lt(w->n_begin, 16);
    cr_assert_leq(s->length, sizeof w->payload[0]);
    w->section[w->n_begin++] = *s;
    return w->refuse_begin ? FV_REFUSE(OVER_BUDGET, "too much") : FV_OK;
}

static fv_status on_bytes(void *user, const fv_section *s, uint64_t offset, const void *p,
                          size_t n) {
    seen *w = user;
    cr_assert_leq(offset + n, s->length);
    memcpy(w->payload[w->n_begin - 1] + offset, p, n);
    return FV_OK;
}

static fv_status on_end(void *user, const fv_section *s) {
    seen *w = user;
    (void)s;
    w->n_end++;
    return FV_OK;
}

static fv_status on_finish(void *user, const fv_packet_totals *totals) {
    seen *w = user;
    w->n_finish++;
    return totals->rows == 77 ? FV_REFUSED_NONE : FV_REFUSE(MALFORMED, "rows");
}

static void reader_init(fv_packet_reader *r, seen *w) {
    fv_packet_hooks hooks = {
        .user = w, .begin = on_begin, .bytes = on_bytes, .end = on_end, .finish = on_finish};
    memset(w, 0, sizeof *w);
    fv_packet_reader_init(r, &hooks, SKIP_MAX);
}

/* Reads a stream in parts of `cut` bytes, each in its own heap block. */
static fv_status read_cut(fv_packet_reader *r, const uint8_t *bytes, size_t n, size_t cut) {
    fv_status st = FV_OK;
    for (size_t at = 0; at < n && st == FV_OK; at += cut) {
        size_t part = n - at < cut ? n - at : cut;
        uint8_t *own = malloc(part);
        memcpy(own, bytes + at, part);
        st = fv_packet_read(r, own, part);
        free(own);
    }
    return st;
}

static const uint8_t *numbers(void) {
    static uint8_t bytes[MANY * 4];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    return bytes;
}

/* A prompt in one piece, tokens in many pieces, an empty section, END. */
static stream make_stream(size_t frame_max, uint32_t extra_type, bool extra_critical) {
    stream s = {.frame_max = frame_max ? frame_max : FV_FRAME_MAX};
    fv_packet_writer w;
    fv_packet_writer_init(&w, frame_max, keep_frame, &s);
    const uint8_t *p = numbers();
    fv_piece many[MANY];
    for (int i = 0; i < MANY; i++) many[i] = (fv_piece){p + (size_t)i * 4, 4};
    fv_section prompt = {.type = FV_SECTION_PROMPT, .critical = true, .dims = {1, 2, 3, 4}};
    fv_section data = {.type = FV_SECTION_DATA,
                       .layer0 = 3,
                       .layer1 = 4,
                       .part0 = 5,
                       .part1 = 60000,
                       .segment = 1,
                       .dtype = FV_WIRE_BF16};
    cr_assert_eq(fv_packet_write(&w, prompt, &(fv_piece){p, 13}, 1), FV_OK);
    if (extra_type) {
        fv_section extra = {.type = extra_type, .critical = extra_critical};
        cr_assert_eq(fv_packet_write(&w, extra, &(fv_piece){p, 40}, 1), FV_OK);
    }
    cr_assert_eq(fv_packet_write(&w, data, many, MANY), FV_OK);
    cr_assert_eq(fv_packet_write(&w, (fv_section){.type = FV_SECTION_ROWS}, NULL, 0), FV_OK);
    cr_assert_eq(fv_packet_end(&w, 77), FV_OK);
    cr_assert_eq(w.totals.bytes, s.n);
    fv_packet_writer_fini(&w);
    return s;
}

/* A packet of a few hundred bytes, for exhaustive tests. */
static stream make_small(void) {
    stream s = {.frame_max = FV_FRAME_MAX};
    fv_packet_writer w;
    fv_packet_writer_init(&w, 0, keep_frame, &s);
    fv_section prompt = {.type = FV_SECTION_PROMPT, .critical = true};
    fv_section extra = {.type = FV_FOURCC('N', 'O', 'T', 'E')};
    cr_assert_eq(fv_packet_write(&w, prompt, &(fv_piece){"some bytes", 10}, 1), FV_OK);
    cr_assert_eq(fv_packet_write(&w, extra, &(fv_piece){"skipped", 7}, 1), FV_OK);
    cr_assert_eq(fv_packet_end(&w, 77), FV_OK);
    fv_packet_writer_fini(&w);
    return s;
}

/* ---- whole streams --------------------------------------------------------------------- */

Test(kv_packet, crc32c_has_the_known_values) {
    cr_assert_eq(fv_crc32c(0, "", 0), 0);
    cr_assert_eq(fv_crc32c(0, "123456789", 9), 0xe3069283u);
    uint8_t zero[32] = {0};
    cr_assert_eq(fv_crc32c(0, zero, 32), 0x8a9136aau, "RFC 3720, B.4");
    static const char digits[] = "123456789";
    for (size_t cut = 0; cut <= 9; cut++)
        cr_assert_eq(fv_crc32c(fv_crc32c(0, digits, cut), digits + cut, 9 - cut), 0xe3069283u);
}

Test(kv_packet, sections_come_back_however_the_stream_is_cut) {
    static const size_t cuts[] = {1, 7, 55, 56, 57, 1 << 20};
    static const size_t frames[] = {1, 7, 100, 0};
    static seen w;
    fv_packet_reader r;
    for (size_t f = 0; f < 4; f++) {
        stream s = make_stream(frames[f], 0, false);
        for (size_t c = 0; c < 6; c++) {
            reader_init(&r, &w);
            cr_assert_eq(read_cut(&r, s.bytes, s.n, cuts[c]), FV_OK, "%s", fv_last_error());
            cr_assert(r.done);
            cr_assert_eq(r.totals.sections, 4);
            cr_assert_eq(r.totals.bytes, s.n);
            cr_assert(w.n_begin == 3 && w.n_end == 3 && w.n_finish == 1);
            cr_assert_eq(w.section[0].type, FV_SECTION_PROMPT);
            cr_assert(w.section[0].critical && !w.section[1].critical);
            for (uint32_t i = 0; i < 4; i++) cr_assert_eq(w.section[0].dims[i], i + 1);
            cr_assert_eq(w.section[0].length, 13);
            cr_assert_eq(memcmp(w.payload[0], numbers(), 13), 0);
            const fv_section *d = &w.section[1];
            cr_assert(d->layer0 == 3 && d->layer1 == 4 && d->part0 == 5 && d->part1 == 60000);
            cr_assert(d->segment == 1 && d->dtype == FV_WIRE_BF16 && d->index == 1);
            cr_assert_eq(d->length, MANY * 4);
            cr_assert_eq(memcmp(w.payload[1], numbers(), MANY * 4), 0);
            cr_assert_eq(w.section[2].length, 0);
        }
        free(s.bytes);
    }
}

Test(kv_packet, frames_are_full_up_to_their_size_or_their_pieces) {
    stream one = make_stream(1, 0, false), whole = make_stream(0, 0, false);
    cr_assert_eq(one.n_frame, one.n, "a byte each");
    cr_assert_eq(one.n, whole.n);
    cr_assert_eq(memcmp(one.bytes, whole.bytes, one.n), 0, "the cut changes no byte");
    cr_assert_eq(whole.n_frame, 1 + MANY / FV_FRAME_PIECES);
    free(one.bytes);
    free(whole.bytes);
}

static fv_status full(void *user, const fv_piece *piece, int32_t n, size_t bytes) {
    (void)user;
    (void)piece;
    (void)n;
    (void)bytes;
    return FV_FAIL(FV_EIO, "the pipe broke");
}

Test(kv_packet, what_the_transport_says_reaches_the_writer) {
    fv_packet_writer w;
    fv_packet_writer_init(&w, 16, full, NULL);
    fv_section s = {.type = FV_SECTION_PROMPT};
    cr_assert_eq(fv_packet_write(&w, s, &(fv_piece){"x", 1}, 1), FV_EIO);
    fv_packet_writer_fini(&w);
}

/* ---- unknown sections ------------------------------------------------------------------ */

Test(kv_packet, an_unknown_optional_section_is_skipped) {
    static seen w;
    fv_packet_reader r;
    stream s = make_stream(0, FV_FOURCC('S', 'V', 'D', '2'), false);
    for (size_t cut = 1; cut < 200; cut += 9) {
        reader_init(&r, &w);
        cr_assert_eq(read_cut(&r, s.bytes, s.n, cut), FV_OK, "%s", fv_last_error());
        cr_assert(r.done && w.n_begin == 3);
    }
    free(s.bytes);
}

Test(kv_packet, an_unknown_critical_section_is_refused_by_name) {
    static seen w;
    fv_packet_reader r;
    stream s = make_stream(0, FV_FOURCC('S', 'V', 'D', '2'), true);
    reader_init(&r, &w);
    cr_assert_eq(fv_refusal_of(read_cut(&r, s.bytes, s.n, 10)), FV_REFUSED_UNKNOWN_SECTION);
    cr_assert(strstr(fv_last_error(), "SVD2"), "%s", fv_last_error());
    cr_assert_not(r.done);
    free(s.bytes);
}

Test(kv_packet, a_long_unknown_section_is_refused_before_its_bytes) {
    static seen w;
    fv_packet_reader r;
    stream s = {.frame_max = FV_FRAME_MAX};
    fv_packet_writer pw;
    fv_packet_writer_init(&pw, 0, keep_frame, &s);
    fv_section extra = {.type = FV_FOURCC('B', 'I', 'G', '!')};
    cr_assert_eq(fv_packet_write(&pw, extra, &(fv_piece){numbers(), SKIP_MAX + 1}, 1), FV_OK);
    cr_assert_eq(fv_packet_flush(&pw), FV_OK);
    fv_packet_writer_fini(&pw);
    reader_init(&r, &w);
    cr_assert_eq(fv_refusal_of(fv_packet_read(&r, s.bytes, FV_SECTION_HEADER)),
                 FV_REFUSED_MALFORMED);
    free(s.bytes);
}

Test(kv_packet, names_of_types_are_printable) {
    char name[5];
    fv_section_name(FV_SECTION_POSITIONS, name);
    cr_assert_str_eq(name, "POSN");
    fv_section_name(0x0041ff0au, name);
    cr_assert_str_eq(name, "??A?");
}

/* ---- damage ---------------------------------------------------------------------------- */

Test(kv_packet, every_flipped_bit_is_refused) {
    static seen w;
    stream s = make_small();
    for (size_t bit = 0; bit < s.n * 8; bit++)
        for (int whole = 0; whole < 2; whole++) {
            fv_packet_reader r;
            s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            reader_init(&r, &w);
            fv_refusal why = fv_refusal_of(read_cut(&r, s.bytes, s.n, whole ? s.n : 5));
            cr_assert_neq(why, FV_REFUSED_NONE, "bit %zu", bit);
            cr_assert_not(r.done);
            s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    free(s.bytes);
}

Test(kv_packet, a_stream_that_ends_early_is_not_done) {
    static seen w;
    stream s = make_small();
    for (size_t n = 0; n < s.n; n++) {
        fv_packet_reader r;
        uint8_t *part = malloc(n + 1);
        memcpy(part, s.bytes, n);
        reader_init(&r, &w);
        cr_assert_eq(read_cut(&r, part, n, 3), FV_OK);
        cr_assert_not(r.done, "%zu of %zu bytes", n, s.n);
        free(part);
    }
    free(s.bytes);
}

Test(kv_packet, bytes_after_the_end_are_refused) {
    static seen w;
    fv_packet_reader r;
    stream s = make_small();
    reader_init(&r, &w);
    cr_assert_eq(fv_packet_read(&r, s.bytes, s.n), FV_OK);
    cr_assert_eq(fv_refusal_of(fv_packet_read(&r, s.bytes, 1)), FV_REFUSED_MALFORMED);
    free(s.bytes);
}

Test(kv_packet, a_section_left_out_or_told_twice_is_refused) {
    static seen w;
    fv_packet_reader r;
    stream s = make_small();
    size_t first = FV_SECTION_HEADER + 10, second = FV_SECTION_HEADER + 7;
    reader_init(&r, &w);
    cr_assert_eq(fv_packet_read(&r, s.bytes, first), FV_OK);
    cr_assert_eq(fv_refusal_of(fv_packet_read(&r, s.bytes + first + second, s.n - first - second)),
                 FV_REFUSED_MALFORMED);
    reader_init(&r, &w);
    cr_assert_eq(fv_packet_read(&r, s.bytes, first), FV_OK);
    cr_assert_eq(fv_refusal_of(fv_packet_read(&r, s.bytes, first)), FV_REFUSED_MALFORMED);
    free(s.bytes);
}

Test(kv_packet, totals_that_do_not_agree_are_refused) {
    static seen w;
    for (int what = 0; what < 4; what++) {
        fv_packet_reader r;
        stream s = {.frame_max = FV_FRAME_MAX};
        fv_packet_writer pw;
        fv_packet_writer_init(&pw, 0, keep_frame, &s);
        fv_section prompt = {.type = FV_SECTION_PROMPT};
        cr_assert_eq(fv_packet_write(&pw, prompt, &(fv_piece){"some", 4}, 1), FV_OK);
        pw.totals.bytes += what == 1;
        pw.totals.digest += what == 2;
        cr_assert_eq(fv_packet_end(&pw, what == 3 ? 76 : 77), FV_OK);
        fv_packet_writer_fini(&pw);
        reader_init(&r, &w);
        cr_assert_eq(fv_refusal_of(fv_packet_read(&r, s.bytes, s.n)),
                     what ? FV_REFUSED_MALFORMED : FV_REFUSED_NONE);
        cr_assert_eq(r.done, what == 0);
        free(s.bytes);
    }
}

Test(kv_packet, a_refusal_of_the_receiver_ends_the_stream) {
    static seen w;
    fv_packet_reader r;
    stream s = make_small();
    reader_init(&r, &w);
    w.refuse_begin = true;
    cr_assert_eq(fv_refusal_of(fv_packet_read(&r, s.bytes, s.n)), FV_REFUSED_OVER_BUDGET);
    cr_assert(w.n_begin == 1 && w.n_end == 0);
    free(s.bytes);
}

/* ---- fields beside the tokens ---------------------------------------------------------- */

static fv_compat compat(const char *model, int32_t n_layer, const char *dtype) {
    fv_compat c;
    fv_compat_fields f = {.model = model,
                          .n_layer = n_layer,
                          .n_kv = 8,
                          .d_head = 128,
                          .dtype = dtype,
                          .compute = "f32"};
    cr_assert_eq(fv_compat_make(&f, &c), FV_OK);
    return c;
}

Test(kv_packet, sides_that_differ_are_told_in_what) {
    fv_compat a = compat("abc", 32, "bf16"), b = compat("abc", 32, "bf16");
    cr_assert_eq(fv_compat_check(&a, &b), FV_OK);
    b = compat("abd", 32, "bf16");
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &b)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "model is abd, and must be abc"), "%s", fv_last_error());
    b = compat("abc", 32, "f16");
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &b)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "dtype is f16, and must be bf16"), "%s", fv_last_error());
    b = compat("abc+lora.0123456789abcdef", 32, "bf16");
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &b)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "must be abc (--adapter)"), "%s", fv_last_error());
    cr_assert_eq(fv_refusal_of(fv_compat_check(&b, &a)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "(--adapter)"), "%s", fv_last_error());
    fv_compat_fields f = {"abc", 32, 8, 128, "bf16", "bf16", 0};
    cr_assert_eq(fv_compat_make(&f, &b), FV_OK);
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &b)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "compute is bf16, and must be f32 (--compute, --isa)"), "%s",
              fv_last_error());
    b = compat("abc", 3, "bf16");
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &b)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "layers is 3, and must be 32"), "%s", fv_last_error());
}

Test(kv_packet, a_later_build_with_more_to_agree_on_is_told_so) {
    fv_compat a = compat("abc", 32, "bf16"), b = a;
    strcat(b.text, "mrope=interleaved\n");
    b.hash++;
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &b)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "mrope is interleaved, and must be unknown"), "%s",
              fv_last_error());
    cr_assert_eq(fv_refusal_of(fv_compat_check(&b, &a)), FV_REFUSED_INCOMPATIBLE);
    cr_assert(strstr(fv_last_error(), "mrope is unknown, and must be interleaved"), "%s",
              fv_last_error());
}

Test(kv_packet, any_text_of_the_other_side_is_compared_safely) {
    static const char *const texts[] = {"", "\n", "=", "a", "\n\n=\n", "model", "model=", "=\n=x"};
    fv_compat a = compat("abc", 32, "bf16");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fv_compat *b = malloc(sizeof *b);
        b->hash = 1;
        memset(b->text, 'x', sizeof b->text);
        memcpy(b->text, texts[i], strlen(texts[i]) + 1);
        cr_assert_eq(fv_refusal_of(fv_compat_check(&a, b)), FV_REFUSED_INCOMPATIBLE);
        free(b);
    }
    fv_compat c = a;
    c.hash++;
    cr_assert_eq(fv_refusal_of(fv_compat_check(&a, &c)), FV_REFUSED_INCOMPATIBLE);
}

Test(kv_packet, what_does_not_fit_a_packet_cannot_be_described) {
    fv_compat c;
    fv_compat_fields f = {
        .model = "m", .n_layer = 70000, .n_kv = 1, .d_head = 1, .dtype = "f32", .compute = "f32"};
    cr_assert_eq(fv_compat_make(&f, &c), FV_EINVAL);
    f = (fv_compat_fields){
        .model = "m", .n_layer = 1, .n_kv = 1, .d_head = 1, .dtype = "int4", .compute = "f32"};
    cr_assert_eq(fv_compat_make(&f, &c), FV_EINVAL);
    f.dtype = "f32";
    f.model = "two\nlines=1";
    cr_assert_eq(fv_compat_make(&f, &c), FV_EINVAL);
    char longer[600];
    memset(longer, 'x', sizeof longer);
    longer[599] = '\0';
    f.model = longer;
    cr_assert_eq(fv_compat_make(&f, &c), FV_EINVAL);
}

Test(kv_packet, hello_comes_back_and_wrong_lengths_do_not) {
    fv_hello h = {.compat = compat("abc", 2, "f32"),
                  .n_text = 5,
                  .n_visual = 600,
                  .max_tokens = 7,
                  .n_reused_text = 23,
                  .bytes_visual = 1ull << 40,
                  .bytes_tables = 1ull << 33,
                  .policy = "prune=vtw"};
    uint8_t bytes[64];
    size_t n = fv_hello_bytes(&h), n_policy;
    cr_assert_eq(n, 44 + 9);
    fv_hello_put(&h, bytes);
    fv_hello got;
    cr_assert_eq(fv_hello_get(bytes, n, &got, &n_policy), FV_OK);
    cr_assert(got.compat.hash == h.compat.hash && got.n_text == 5 && got.n_visual == 600 &&
              got.max_tokens == 7 && got.n_reused_text == 23 && got.bytes_visual == 1ull << 40 &&
              got.bytes_tables == 1ull << 33);
    cr_assert(n_policy == 9 && memcmp(got.policy, "prune=vtw", 9) == 0);
    for (size_t wrong = 0; wrong < n; wrong++)
        cr_assert_eq(fv_refusal_of(fv_hello_get(bytes, wrong, &got, &n_policy)),
                     FV_REFUSED_MALFORMED);
    cr_assert_eq(fv_refusal_of(fv_hello_get(bytes, n + 1, &got, &n_policy)), FV_REFUSED_MALFORMED);
}

Test(kv_packet, a_lead_section_round_trips_alone) {
    uint8_t bytes[FV_WIRE_LEAD_BYTES];
    fv_wire_lead got;
    fv_wire_lead_put(&(fv_wire_lead){300, true}, bytes);
    cr_assert_eq(fv_wire_lead_get(bytes, &got), FV_OK);
    cr_assert(got.source_layer == 300 && got.text);
    bytes[4] = 2;
    cr_assert_eq(fv_refusal_of(fv_wire_lead_get(bytes, &got)), FV_REFUSED_MALFORMED);
}

Test(kv_packet, prompt_and_token_come_back) {
    int32_t ids[3] = {1, 32000, 7};
    uint8_t seg[3] = {1, 0, 1}, bytes[96], bias[16];
    for (uint8_t i = 0; i < sizeof bias; i++) bias[i] = i;
    fv_wire_prompt p = {.n = 3,
                        .next = 3,
                        .sampling = {.repetition_penalty = 1.5f,
                                     .frequency_penalty = -0.5f,
                                     .presence_penalty = 2,
                                     .temperature = 0.25f,
                                     .min_p = 0.125f,
                                     .top_p = 0.9f,
                                     .top_k = 40,
                                     .n_logprobs = 5,
                                     .n_bias = 2,
                                     .seed = 0x123456789abcdefull,
                                     .bias = bias},
                        .ids = ids,
                        .seg = seg},
                   got;
    size_t n = fv_wire_prompt_bytes(3, 2);
    cr_assert_eq(n, 56 + 15 + 16);
    fv_wire_prompt_put(&p, bytes);
    cr_assert_eq(fv_wire_prompt_get(bytes, n, &got), FV_OK);
    cr_assert(got.n == 3 && got.next == 3 && got.sampling.top_k == 40 &&
              got.sampling.n_logprobs == 5 && got.sampling.seed == p.sampling.seed);
    cr_assert(got.sampling.repetition_penalty == 1.5f && got.sampling.temperature == 0.25f &&
              got.sampling.top_p == 0.9f && got.sampling.min_p == 0.125f);
    cr_assert(got.sampling.frequency_penalty == -0.5f && got.sampling.presence_penalty == 2);
    cr_assert_eq(got.sampling.n_bias, 2);
    cr_assert_eq(memcmp(got.sampling.bias, bias, sizeof bias), 0);
    cr_assert_eq(memcmp(got.ids, ids, sizeof ids), 0);
    cr_assert_eq(memcmp(got.seg, seg, sizeof seg), 0);
    for (size_t wrong = 0; wrong < n; wrong++)
        cr_assert_eq(fv_refusal_of(fv_wire_prompt_get(bytes, wrong, &got)), FV_REFUSED_MALFORMED);
    fv_first_token t = {.id = 9, .logprob = -0.5f, .step = 1}, back;
    fv_first_token_put(&t, bytes);
    back = fv_first_token_get(bytes);
    cr_assert(back.id == 9 && back.logprob == -0.5f && back.step == 1);
}

/* ---- payloads sent out of band ----------------------------------------------------------- */

Test(kv_packet, checksums_of_parts_are_joined) {
    const uint8_t *p = numbers();
    static const size_t at[] = {0, 1, 255, 256, 1000, MANY * 4};
    uint32_t whole = fv_crc32c(0, p, MANY * 4);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        uint32_t a = fv_crc32c(0, p, at[i]), b = fv_crc32c(0, p + at[i], MANY * 4 - at[i]);
        cr_expect_eq(fv_crc32c_join(a, b, MANY * 4 - at[i]), whole, "%zu", at[i]);
    }
}

/* The stream of a section whose payload is sent out of band in two parts, as a reader gets it. */
static fv_status read_oob(fv_packet_reader *r, seen *w, size_t first, uint32_t spoil) {
    stream s = {.frame_max = FV_FRAME_MAX};
    fv_packet_writer out;
    const uint8_t *p = numbers();
    fv_section data = {.type = FV_SECTION_DATA, .critical = true};
    fv_packet_writer_init(&out, 0, keep_frame, &s);
    cr_assert_eq(fv_packet_write_oob(&out, data, MANY, fv_crc32c(0, p, MANY)), FV_OK);
    size_t head = s.n;
    cr_assert_eq(fv_packet_end(&out, 77), FV_OK);
    reader_init(r, w);
    r->hooks.oob = on_bytes;
    fv_status st = fv_packet_read(r, s.bytes, head);
    cr_assert_eq(st, FV_OK);
    st = fv_packet_read_oob(r, p, first, fv_crc32c(0, p, first));
    if (st == FV_OK && first < MANY)
        st = fv_packet_read_oob(r, p + first, MANY - first,
                                fv_crc32c(0, p + first, MANY - first) ^ spoil);
    if (st == FV_OK) st = fv_packet_read(r, s.bytes + head, s.n - head);
    fv_packet_writer_fini(&out);
    free(s.bytes);
    return st;
}

Test(kv_packet, an_out_of_band_payload_is_part_of_the_stream) {
    static seen w;
    fv_packet_reader r;
    cr_expect_eq(read_oob(&r, &w, 300, 0), FV_OK, "%s", fv_last_error());
    cr_expect(r.done && w.n_end == 1 && memcmp(w.payload[0], numbers(), MANY) == 0);
    cr_expect_eq(read_oob(&r, &w, MANY, 0), FV_OK, "%s", fv_last_error());
}

Test(kv_packet, out_of_band_changes_and_excess_are_refused) {
    static seen w;
    fv_packet_reader r;
    cr_expect_eq(fv_refusal_of(read_oob(&r, &w, 300, 1)), FV_REFUSED_CHECKSUM);
    cr_expect_eq(fv_refusal_of(read_oob(&r, &w, MANY + 1, 0)), FV_REFUSED_MALFORMED);
    reader_init(&r, &w); /* no section has begun */
    cr_expect_eq(fv_refusal_of(fv_packet_read_oob(&r, numbers(), 1, 0)), FV_REFUSED_MALFORMED);
}
