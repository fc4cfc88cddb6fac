/* The prefill worker keeps the KV of prompts on a disk: a worker that starts anew, however the last one ended, reads what
 * it would compute, and its answers have the same bits; whatever happens to the folder. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kv/tier/disk.h"
#include "tests/e2e/prefill_rig.h"
#include "tests/support/tensor_file.h"

#define OTHER "USER: <image>\nwhat else is in this picture, and why? ASSISTANT:"
#define LONG LONG_QUESTION

static heard p, d;
static asking a;
static char folder[512];
static fv_kv_tier *disk;

static void prepare(void) {
    make_checkpoint();
    scratch_dir(folder, sizeof folder);
}

static void open_disk(uint64_t bytes) {
    cr_assert_eq(fv_kv_disk_open(folder, bytes, NULL, &disk), FV_OK, "%s", fv_last_error());
    open_workers_with_tier(disk);
    ask_about_image(&a, workers.target);
}

static void close_disk(void) {
    close_workers();
    disk->ops->close(disk);
}

static const Fovea__Inference__V1__Report *ask(const char *text) { return ask_text(&p, &a, text); }

static uint64_t computed(const char *text) {
    a.g.cache_off = true;
    ask(text);
    a.g.cache_off = false;
    return first_digest(&p);
}

TestSuite(prefill_disk, .init = prepare, .fini = drop_checkpoint, .timeout = 240);

Test(prefill_disk, a_worker_that_starts_anew_reads_what_another_has_computed) {
    open_disk(1 << 24);
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    uint64_t first = first_digest(&p);
    wait_for_writes();
    uint64_t written = prefill_load().bytes_tier_written;
    cr_assert_gt(ask(LONG)->n_prompt_cached, 0);
    cr_assert_str_eq(p.report->cache_tier, "prefill");
    cr_assert_eq(p.report->n_prompt_fetched, 0);
    close_disk();

    open_disk(1 << 24);
    cr_assert_eq(prefill_load().bytes_prefix, 0);
    const Fovea__Inference__V1__Report *r = ask(LONG);
    cr_assert_str_eq(r->cache_tier, "disk");
    cr_assert_geq(r->n_prompt_fetched, r->n_visual);
    cr_assert_eq(r->n_prompt_fetched, r->n_prompt_cached);
    cr_assert_gt(r->seconds_saved, 0);
    cr_assert_eq(r->seconds_vision, 0, "the image is not encoded");
    cr_assert_eq(first_digest(&p), first);
    cr_assert_eq(prefill_load().bytes_tier_read, written);
    r = ask(OTHER);
    cr_assert_str_eq(r->cache_tier, "prefill", "it is in memory by now");
    cr_assert_geq(r->n_prompt_cached, r->n_visual);
    uint64_t other = first_digest(&p);
    cr_assert_eq(other, computed(OTHER));
    decode(&d, p.begun->ticket);
    close_disk();
}

Test(prefill_disk, requests_that_come_together_read_it_once) {
    enum { MANY = 6 };
    static heard many[MANY];
    static asking asks[MANY];
    open_disk(1 << 24);
    ask(LONG);
    uint64_t first = first_digest(&p);
    wait_for_writes();
    uint64_t written = prefill_load().bytes_tier_written;
    close_disk();
    open_disk(1 << 24);
    for (int i = 0; i < MANY; i++) {
        ask_about_image(&asks[i], workers.target);
        asks[i].prompt.text = (char *)(uintptr_t)LONG;
        begin(&many[i], &asks[i]);
    }
    for (int i = 0; i < MANY; i++) {
        net_wait(&workers.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
        cr_assert_eq(first_digest(&many[i]), first);
        cr_assert_gt(many[i].report->n_prompt_cached, 0);
    }
    cr_assert_eq(prefill_load().bytes_tier_read, written);
    close_disk();
}

/* Writes a byte into every segment. */
static void damage_all(void) {
    char top[600], path[1200], file[2000];
    snprintf(top, sizeof top, "%s/0/segments", folder);
    DIR *dir = opendir(top);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", top, e->d_name);
        DIR *tenant = opendir(path);
        for (struct dirent *x; (x = readdir(tenant));) {
            if (x->d_name[0] == '.') continue;
            snprintf(file, sizeof file, "%s/%s", path, x->d_name);
            FILE *f = fopen(file, "r+b");
            fseek(f, 100, SEEK_SET);
            fputs("rubbish", f);
            fclose(f);
        }
        closedir(tenant);
    }
    closedir(dir);
}

Test(prefill_disk, rubbish_on_the_disk_is_computed_anew) {
    open_disk(1 << 24);
    ask(LONG);
    uint64_t first = first_digest(&p);
    wait_for_writes();
    close_disk();
    damage_all();
    open_disk(1 << 24);
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    cr_assert_eq(first_digest(&p), first);
    cr_assert_gt(prefill_load().n_tier_damaged, 0);
    wait_for_writes();
    close_disk();
    open_disk(1 << 24);
    cr_assert_gt(ask(LONG)->n_prompt_fetched, 0, "it was written again");
    cr_assert_eq(first_digest(&p), first);
    close_disk();
}

Test(prefill_disk, a_folder_that_cannot_be_written_costs_no_request) {
    open_disk(1 << 24);
    char top[600];
    snprintf(top, sizeof top, "%s/0/segments", folder);
    cr_assert_eq(rmdir(top), 0);
    write_text(folder, "0/segments", "a file is in the way");
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    cr_assert_gt(ask(LONG)->n_prompt_cached, 0);
    for (int i = 0; i < 20000 && prefill_load().n_tier_failed == 0; i++) usleep(5000);
    cr_assert_gt(prefill_load().n_tier_failed, 0);
    cr_assert_eq(unlink(top), 0);
    close_disk();
}

Test(prefill_disk, tenants_salts_and_cache_off_find_nothing_on_the_disk) {
    open_disk(1 << 24);
    ask(LONG);
    wait_for_writes();
    close_disk();
    open_disk(1 << 24);
    a.m.tenant = (char *)"other";
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    a.m.tenant = (char *)"";
    a.g.cache_salt = (char *)"other";
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    a.g.cache_salt = (char *)"";
    a.g.cache_off = true;
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    a.g.cache_off = false;
    cr_assert_gt(ask(LONG)->n_prompt_fetched, 0);
    close_disk();
}

/* A row that is kept before a layer that drops tokens has other parts. */
Test(prefill_disk, what_is_kept_under_a_policy_is_read_again_too) {
    static const char *const policies[] = {"prune=fastv,layer=2,keep=0.5", "condense=prumerge"};
    for (int i = 0; i < 2; i++) {
        fv_arena arena = {0};
        open_disk(1 << 24);
        a.g.cache_salt = (char *)(uintptr_t)policies[i];
        ask_under(&a, policies[i], &arena);
        cr_assert_eq(ask(LONG)->n_prompt_cached, 0, "%s", policies[i]);
        uint64_t first = first_digest(&p);
        wait_for_writes();
        close_disk();
        open_disk(1 << 24);
        a.g.cache_salt = (char *)(uintptr_t)policies[i];
        cr_assert_eq(ask(LONG)->n_prompt_cached, 0, "exact reads nothing of %s", policies[i]);
        ask_under(&a, policies[i], &arena);
        const Fovea__Inference__V1__Report *r = ask(LONG);
        cr_assert_str_eq(r->cache_tier, "disk");
        cr_assert_geq(r->n_prompt_fetched, r->n_visual, "%s", policies[i]);
        cr_assert_eq(first_digest(&p), first, "%s", policies[i]);
        close_disk();
        fv_arena_fini(&arena);
    }
}

/* ---- a disk that hangs ------------------------------------------------------------------------- */

/* Says that it has everything; a read ends when it is let go, and has read nothing. */
typedef struct hanging {
    fv_kv_tier base;
    atomic_int n_asked, n_read;
    atomic_bool let_go;
} hanging;

static int32_t hanging_has(fv_kv_tier *t, const fv_chain_key *const *key, int32_t n) {
    (void)key;
    atomic_fetch_add(&((hanging *)t)->n_asked, 1);
    return n;
}

static fv_status hanging_read(fv_kv_tier *t, const fv_chain_key *key, const fv_seal_head *want,
                              void *rows, double *seconds) {
    hanging *h = (hanging *)t;
    (void)key, (void)want, (void)rows, (void)seconds;
    atomic_fetch_add(&h->n_read, 1);
    while (!atomic_load(&h->let_go)) usleep(1000);
    return FV_FAIL(FV_ENOTFOUND, "the segment is not there");
}

static fv_status hanging_write(fv_kv_tier *t, const char *tenant, const fv_chain_key *key,
                               const fv_seal_head *head, const void *rows) {
    (void)t, (void)tenant, (void)key, (void)head, (void)rows;
    return FV_OK;
}

static fv_tier_counters hanging_count(fv_kv_tier *t) {
    (void)t;
    return (fv_tier_counters){.n_hit = 0};
}

static const fv_kv_tier_ops hanging_ops = {.name = "hanging",
                                           .has = hanging_has,
                                           .read = hanging_read,
                                           .write = hanging_write,
                                           .count = hanging_count};

Test(prefill_disk, a_disk_that_hangs_delays_one_request_and_is_left_alone) {
    static hanging h = {.base.ops = &hanging_ops};
    char text[sizeof LONG + 32];
    open_disk(1 << 24); /* what it would be without */
    uint64_t want = computed(LONG);
    close_disk();
    prefill_rig fresh = {.p = workers.p, .d = workers.d};
    workers = fresh;
    workers.p.tier[0] = &h.base;
    workers.p.n_tier = 1;
    open_workers();
    ask_about_image(&a, workers.target);
    const Fovea__Inference__V1__Report *r = ask(LONG); /* it comes, although the read never ends */
    cr_assert_eq(r->n_prompt_cached, 0);
    cr_assert_eq(first_digest(&p), want);
    cr_assert_eq(atomic_load(&h.n_read), 1);
    int asked = atomic_load(&h.n_asked);
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "USER: question %d: %s", i, LONG);
        ask(text);
    }
    cr_assert_eq(atomic_load(&h.n_asked), asked, "it hangs, and is not asked");
    cr_assert_eq(atomic_load(&h.n_read), 1);
    atomic_store(&h.let_go, true);
    for (int i = 3; i < 2000 && atomic_load(&h.n_asked) == asked; i++) { /* after a while it is */
        snprintf(text, sizeof text, "USER: question %d: %s", i, LONG);
        ask(text);
    }
    cr_assert_gt(atomic_load(&h.n_asked), asked);
    close_workers();
}

Test(prefill_disk, a_request_that_is_cancelled_does_not_wait_for_a_disk_that_hangs) {
    static hanging h = {.base.ops = &hanging_ops};
    static heard gone;
    open_disk(1 << 24);
    close_disk();
    prefill_rig fresh = {.p = workers.p, .d = workers.d};
    workers = fresh;
    workers.p.tier[0] = &h.base;
    workers.p.n_tier = 1;
    open_workers();
    ask_about_image(&a, workers.target);
    a.prompt.text = (char *)LONG;
    begin(&gone, &a);
    for (int i = 0; i < 20000 && atomic_load(&h.n_read) == 0; i++) {
        uv_run(&workers.net.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    cr_assert_eq(atomic_load(&h.n_read), 1);
    fv_rpc_call_cancel(gone.call);
    net_wait(&workers.net, &gone.over);
    wait_for_nothing_held();
    atomic_store(&h.let_go, true);
    close_workers();
}
