/* common/buf: the host device. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "common/buf.h"

Test(buf, a_host_buffer_is_aligned_and_knows_its_size_kind_and_device) {
    fv_device *host = fv_device_host();
    static const size_t sizes[] = {1, 63, 64, 65, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = FV_BUF_DEVICE; kind <= FV_BUF_PINNED; kind++) {
            fv_buf b = {0};
            cr_assert_eq(fv_buf_alloc(host, sizes[i], (fv_buf_kind)kind, &b), FV_OK);
            cr_assert_eq((uintptr_t)b.data % 64, 0);
            cr_assert_eq(b.bytes, sizes[i]);
            cr_assert_eq(b.device, host);
            cr_assert_eq((int)b.kind, kind);
            memset(b.data, 0xff, b.bytes);
            fv_buf_free(&b);
            cr_assert_null(b.data);
            cr_assert_eq(b.bytes, 0);
        }
}

Test(buf, a_buffer_of_no_bytes_is_empty_and_may_be_freed_twice) {
    fv_buf b = {.data = &b, .bytes = 5};
    cr_assert_eq(fv_buf_alloc(fv_device_host(), 0, FV_BUF_DEVICE, &b), FV_OK);
    cr_assert_null(b.data);
    cr_assert_eq(b.bytes, 0);
    fv_buf_free(&b);
    fv_buf_free(&b);
}

Test(buf, a_size_that_no_machine_has_is_enomem_and_leaves_the_result_alone) {
    fv_buf b = {.bytes = 5};
    cr_assert_eq(fv_buf_alloc(fv_device_host(), SIZE_MAX, FV_BUF_DEVICE, &b), FV_ENOMEM);
    cr_assert_eq(fv_buf_alloc(fv_device_host(), SIZE_MAX / 2, FV_BUF_DEVICE, &b), FV_ENOMEM);
    cr_assert_eq(b.bytes, 5);
}

Test(buf, a_copy_is_done_when_the_call_returns) {
    fv_device *host = fv_device_host();
    fv_buf b = {0};
    cr_assert_eq(fv_buf_alloc(host, 6, FV_BUF_DEVICE, &b), FV_OK);
    cr_assert_eq(host->ops->copy_async(host, b.data, "fovea", 6), FV_OK);
    cr_assert_str_eq(b.data, "fovea");
    fv_buf_free(&b);
}

Test(buf, a_copy_that_is_waited_for_is_done_and_so_is_what_was_issued_before) {
    char from[] = "fovea", to[6] = "", then[6] = "";
    fv_device *host = fv_device_host();
    cr_assert_eq(host->ops->copy_async(host, to, from, 6), FV_OK);
    cr_assert_eq(fv_device_copy(host, then, to, 6), FV_OK);
    cr_assert_str_eq(then, "fovea");
    cr_assert_eq(fv_device_wait(host), FV_OK);
}

Test(buf, copying_nothing_between_empty_buffers_is_fine) {
    fv_device *host = fv_device_host();
    fv_buf from = {0}, to = {0};
    cr_assert_eq(host->ops->copy_async(host, to.data, from.data, 0), FV_OK);
}

Test(buf, an_event_of_the_host_is_reached_at_once) {
    fv_device *host = fv_device_host();
    fv_event ev = {0};
    bool reached = false;
    cr_assert_eq(host->ops->event_record(host, &ev), FV_OK);
    cr_assert_eq(host->ops->event_query(host, &ev, &reached), FV_OK);
    cr_assert(reached);
    cr_assert_eq(host->ops->event_wait(host, &ev), FV_OK);
    host->ops->event_free(host, &ev);
}

Test(buf, there_is_one_host_device_with_every_slot_filled) {
    const fv_device_ops *ops = fv_device_host()->ops;
    cr_assert_eq(fv_device_host(), fv_device_host());
    cr_assert_str_eq(ops->name, "host");
    cr_assert(ops->alloc && ops->free && ops->copy_async && ops->event_record);
    cr_assert(ops->event_query && ops->event_wait && ops->event_free);
}
