/* rpc/message.c, rpc/pb_check.c */
#include <criterion/criterion.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "handoff.pb-c.h"
#include "inference.pb-c.h"
#include "rpc/message.h"

typedef Fovea__Inference__V1__GenerateRequest generate_request;

static grpc_byte_buffer *buffer(const void *p, size_t n) {
    grpc_slice s = grpc_slice_from_copied_buffer(p, n);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&s, 1);
    grpc_slice_unref(s);
    return b;
}

static fv_status unpack(const void *p, size_t n, fv_arena *arena, generate_request **out) {
    grpc_byte_buffer *b = buffer(p, n);
    ProtobufCMessage *m = NULL;
    fv_status st = fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, b, arena, &m);
    *out = (generate_request *)m;
    grpc_byte_buffer_destroy(b);
    return st;
}

Test(rpc_message, what_was_packed_unpacks_to_the_same) {
    Fovea__Inference__V1__Turn turn = FOVEA__INFERENCE__V1__TURN__INIT, *turns = &turn;
    turn.role = "user";
    turn.text = "Gr\xc3\xbc\xc3\x9f Gott";
    Fovea__Inference__V1__Chat chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    chat.turns = &turns;
    chat.n_turns = 1;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    prompt.chat = &chat;
    generate_request m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT, *got;
    m.prompt = &prompt;
    m.max_tokens = 77;
    grpc_byte_buffer *b;
    fv_arena arena = {0};
    ProtobufCMessage *out;
    cr_assert_eq(fv_rpc_pack(&m.base, &b), FV_OK);
    cr_assert_eq(fv_rpc_unpack(m.base.descriptor, b, &arena, &out), FV_OK, "%s", fv_last_error());
    got = (generate_request *)out;
    cr_assert_eq(got->max_tokens, 77);
    cr_assert_str_eq(got->prompt->chat->turns[0]->text, turn.text);
    grpc_byte_buffer_destroy(b);
    fv_arena_fini(&arena);
}

Test(rpc_message, an_empty_message_is_one_with_nothing_set) {
    fv_arena arena = {0};
    generate_request *m;
    cr_assert_eq(unpack("", 0, &arena, &m), FV_OK);
    cr_assert_str_eq(m->request_id, "");
    cr_assert_null(m->prompt);
    fv_arena_fini(&arena);
}

Test(rpc_message, a_string_that_is_no_utf8_is_refused_by_name) {
    fv_arena arena = {0};
    generate_request *m;
    cr_assert_eq(unpack("\x0a\x02\xc3\x28", 4, &arena, &m), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "request_id"), "%s", fv_last_error());
    fv_arena_fini(&arena);
}

Test(rpc_message, a_string_with_a_zero_byte_is_refused_and_not_cut) {
    fv_arena arena = {0};
    generate_request *m;
    cr_assert_eq(unpack("\x0a\x03"
                        "a\0b",
                        5, &arena, &m),
                 FV_EDATA);
    fv_arena_fini(&arena);
}

Test(rpc_message, strings_in_messages_within_are_checked) {
    fv_arena arena = {0};
    generate_request *m;
    /* prompt (3) { text (2) "\xff" } */
    cr_assert_eq(unpack("\x1a\x03\x12\x01\xff", 5, &arena, &m), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "Prompt.text"), "%s", fv_last_error());
    fv_arena_fini(&arena);
}

Test(rpc_message, bytes_may_hold_anything) {
    fv_arena arena = {0};
    generate_request *m;
    /* images (4) { data (1) "\xff\0" } */
    cr_assert_eq(unpack("\x22\x04\x0a\x02\xff\0", 6, &arena, &m), FV_OK, "%s", fv_last_error());
    cr_assert_eq(m->images[0]->data.len, 2);
    fv_arena_fini(&arena);
}

Test(rpc_message, every_truncation_is_refused_or_a_shorter_message) {
    static const char whole[] = "\x0a\x03xyz\x1a\x05\x12\x03pqr\x30\x80\x01";
    fv_arena arena = {0};
    generate_request *m;
    int good = 0;
    for (size_t n = 0; n < sizeof whole - 1; n++) good += unpack(whole, n, &arena, &m) == FV_OK;
    cr_assert_eq(good, 3, "after nothing, the first and the second field: %d", good);
    cr_assert_eq(unpack(whole, sizeof whole - 1, &arena, &m), FV_OK);
    cr_assert_eq(m->max_tokens, 128);
    fv_arena_fini(&arena);
}

Test(rpc_message, an_unknown_field_is_skipped) {
    fv_arena arena = {0};
    generate_request *m;
    cr_assert_eq(unpack("\xfa\x3f\x01\xff\x30\x05", 6, &arena, &m), FV_OK, "%s", fv_last_error());
    cr_assert_eq(m->max_tokens, 5);
    fv_arena_fini(&arena);
}

Test(rpc_message, a_group_is_refused) {
    fv_arena arena = {0};
    generate_request *m;
    cr_assert_eq(unpack("\x0b\x0c", 2, &arena, &m), FV_EDATA);
    fv_arena_fini(&arena);
}

Test(rpc_message, a_small_message_cannot_ask_for_much_memory) {
    /* Four million empty images: 8 MiB on the wire, half a gigabyte unpacked. */
    size_t n = 8 << 20;
    char *p = malloc(n);
    for (size_t i = 0; i < n; i += 2) memcpy(p + i, "\x22\x00", 2);
    fv_arena arena = {0};
    generate_request *m;
    cr_assert_eq(unpack(p, n, &arena, &m), FV_ENOMEM, "%s", fv_last_error());
    fv_arena_fini(&arena);
    free(p);
}

/* ---- borrowed memory -------------------------------------------------------------------- */

static void count_release(void *user) { ++*(int *)user; }

Test(rpc_message, reused_memory_is_released_once_with_the_last_reference) {
    grpc_init();
    int released = 0;
    fv_piece pieces[] = {{"hello ", 6}, {"world", 5}};
    grpc_byte_buffer *b;
    cr_assert_eq(fv_rpc_wrap(">", 1, pieces, 2, count_release, &released, &b), FV_OK);
    cr_assert_eq(grpc_byte_buffer_length(b), 12);
    grpc_byte_buffer *copy = grpc_byte_buffer_copy(b);
    grpc_byte_buffer_destroy(b);
    cr_assert_eq(released, 0);
    grpc_byte_buffer_destroy(copy);
    cr_assert_eq(released, 1);
    grpc_shutdown();
}

Test(rpc_message, a_message_without_pieces_is_released_too) {
    grpc_init();
    int released = 0;
    grpc_byte_buffer *b;
    cr_assert_eq(fv_rpc_wrap("", 0, NULL, 0, count_release, &released, &b), FV_OK);
    grpc_byte_buffer_destroy(b);
    cr_assert_eq(released, 1);
    grpc_shutdown();
}

Test(rpc_message, slices_give_their_bytes_without_a_copy) {
    grpc_init();
    int released = 0;
    static const char big[4096] = "x";
    fv_piece pieces[] = {{big, sizeof big}};
    grpc_byte_buffer *b;
    cr_assert_eq(fv_rpc_wrap("head", 4, pieces, 1, count_release, &released, &b), FV_OK);
    fv_rpc_slices it;
    const uint8_t *p;
    size_t n;
    cr_assert(fv_rpc_slices_begin(&it, b));
    cr_assert(fv_rpc_slices_next(&it, &p, &n));
    cr_assert_eq(n, 4);
    cr_assert(fv_rpc_slices_next(&it, &p, &n));
    cr_assert(p == (const uint8_t *)big, "not copied");
    cr_assert_eq(n, sizeof big);
    cr_assert_not(fv_rpc_slices_next(&it, &p, &n));
    fv_rpc_slices_end(&it);
    grpc_byte_buffer_destroy(b);
    grpc_shutdown();
}

static grpc_slice all_of(grpc_byte_buffer *b) {
    grpc_byte_buffer_reader r;
    cr_assert(grpc_byte_buffer_reader_init(&r, b));
    grpc_slice all = grpc_byte_buffer_reader_readall(&r);
    grpc_byte_buffer_reader_destroy(&r);
    return all;
}

/* Packing with a borrowed piece gives the same bytes as copying it. */
Test(rpc_message, a_packed_message_may_hold_pieces_that_are_not_copied) {
    grpc_init();
    static uint8_t large[100000], small[100], other[100000];
    for (size_t i = 0; i < sizeof large; i++) large[i] = (uint8_t)i, other[i] = (uint8_t)(3 * i);
    Fovea__Inference__V1__Image images[3], *list[3];
    uint8_t *const data[] = {large, small, other};
    static const size_t n[] = {sizeof large, sizeof small, sizeof other};
    for (int i = 0; i < 3; i++) {
        fovea__inference__v1__image__init(&images[i]);
        images[i].data = (ProtobufCBinaryData){n[i], data[i]};
        list[i] = &images[i];
    }
    generate_request m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    m.request_id = (char *)"x";
    m.images = list;
    m.n_images = 3;
    m.max_tokens = 9; /* behind the images */
    const fv_piece pieces[] = {{large, sizeof large}, {small, sizeof small}};
    int released = 0;
    grpc_byte_buffer *copied, *lent, *again;
    cr_assert_eq(fv_rpc_pack(&m.base, &copied), FV_OK);
    cr_assert_eq(fv_rpc_pack_borrowing(&m.base, pieces, 2, count_release, &released, &lent), FV_OK);
    grpc_slice a = all_of(copied), b = all_of(lent);
    cr_assert(grpc_slice_eq(a, b));
    int32_t n_in_place = 0;
    fv_rpc_slices it;
    const uint8_t *p;
    size_t k;
    cr_assert(fv_rpc_slices_begin(&it, lent));
    while (fv_rpc_slices_next(&it, &p, &k)) n_in_place += p == large && k == sizeof large;
    fv_rpc_slices_end(&it);
    cr_assert_eq(n_in_place, 1);
    again = grpc_byte_buffer_copy(lent);
    grpc_byte_buffer_destroy(lent);
    cr_assert_eq(released, 0);
    grpc_byte_buffer_destroy(again);
    cr_assert_eq(released, 1);
    cr_assert_eq(fv_rpc_pack_borrowing(&m.base, NULL, 0, count_release, &released, &lent), FV_OK);
    cr_assert_eq(released, 2, "there is nothing to wait for");
    grpc_byte_buffer_destroy(lent);
    grpc_byte_buffer_destroy(copied);
    grpc_slice_unref(a);
    grpc_slice_unref(b);
    grpc_shutdown();
}
