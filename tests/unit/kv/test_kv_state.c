/* kv/state.c: the state of recurrent layers, in a store and in the pool's limit. */
#include <criterion/criterion.h>
#include <string.h>

#include "kv/kv.h"

enum { N = 3, BYTES = 80 };

static fv_kv_pool *open_pool(size_t bytes_max, size_t state) {
    fv_kv_pool *pool;
    fv_kv_shape shape = {
        .n_layer = N, .n_kv = 1, .d_head = 4, .dtype = FV_F32, .state_bytes = state};
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), &shape, bytes_max, &pool), FV_OK);
    return pool;
}

static fv_kv *open_kv(fv_kv_pool *pool) {
    fv_kv *kv;
    cr_assert_eq(fv_kv_open(pool, &kv), FV_OK);
    return kv;
}

Test(kv_state, a_state_is_zeros_of_every_layer_and_counted) {
    fv_kv_pool *pool = open_pool(0, BYTES);
    fv_kv *kv = open_kv(pool);
    cr_assert_null(fv_kv_state(kv, 0));
    cr_assert_eq(fv_kv_take_state(kv), FV_OK);
    cr_assert_eq(fv_kv_bytes_held(kv), (size_t)N * BYTES);
    cr_assert_eq(fv_kv_state_bytes(fv_kv_get_shape(kv)), (size_t)N * BYTES);
    char zeros[BYTES] = {0};
    for (int32_t l = 0; l < N; l++) {
        cr_assert_eq(memcmp(fv_kv_state(kv, l), zeros, BYTES), 0);
        memset(fv_kv_state(kv, l), l + 1, BYTES);
    }
    for (int32_t l = 0; l < N; l++) cr_assert_eq(((char *)fv_kv_state(kv, l))[BYTES - 1], l + 1);
    cr_assert_eq(fv_kv_take_state(kv), FV_OK, "it is there already");
    cr_assert_eq(((char *)fv_kv_state(kv, 2))[0], 3);
    fv_kv_check(kv, -1);
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
}

Test(kv_state, a_buffer_that_is_used_again_is_zeros) {
    fv_kv_pool *pool = open_pool(0, BYTES);
    for (int i = 0; i < 2; i++) {
        fv_kv *kv = open_kv(pool);
        cr_assert_eq(fv_kv_take_state(kv), FV_OK);
        cr_assert_eq(((char *)fv_kv_state(kv, 1))[5], 0);
        memset(fv_kv_state(kv, 0), 7, (size_t)N * BYTES);
        fv_kv_close(kv);
    }
    fv_kv_pool_close(pool);
}

Test(kv_state, a_full_pool_refuses_it_and_reserved_bytes_serve_it) {
    fv_kv_pool *pool = open_pool((size_t)N * BYTES + 10, BYTES);
    fv_kv *one = open_kv(pool), *two = open_kv(pool);
    cr_assert_eq(fv_kv_reserve_bytes(one, (size_t)N * BYTES), FV_OK);
    cr_assert_eq(fv_kv_take_state(two), FV_EBUSY);
    cr_assert_null(fv_kv_state(two, 0));
    cr_assert_eq(fv_kv_take_state(one), FV_OK);
    cr_assert_eq(fv_kv_bytes_held(one), (size_t)N * BYTES);
    fv_kv_close(one);
    cr_assert_eq(fv_kv_take_state(two), FV_OK);
    fv_kv_close(two);
    fv_kv_pool_close(pool);
}

Test(kv_state, a_model_without_recurrent_layers_has_none) {
    fv_kv_pool *pool = open_pool(0, 0);
    fv_kv *kv = open_kv(pool);
    cr_assert_eq(fv_kv_take_state(kv), FV_OK);
    cr_assert(!fv_kv_state(kv, 0) && fv_kv_bytes_held(kv) == 0);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}
