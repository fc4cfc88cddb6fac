/* kv/tier/disk.h: what a folder gives back is what was written, before and after a restart, and whatever happened to its
 * files meanwhile. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "kv/tier/disk.h"
#include "tests/support/tensor_file.h"

enum { BYTES = 5000, FILE_BYTES = 8192 };

static char dir[512];
static fv_kv_tier *tier;

static void begin(void) { scratch_dir(dir, sizeof dir); }

static void open_folder(uint64_t most) {
    cr_assert_eq(fv_kv_disk_open(dir, most, NULL, &tier), FV_OK, "%s", fv_last_error());
}

static void close_folder(void) {
    tier->ops->close(tier);
    tier = NULL;
}

static void end(void) {
    if (tier) close_folder();
}

TestSuite(disk, .init = begin, .fini = end, .timeout = 240);

static fv_chain_key key_of(int id) {
    fv_chain_key key = {{0}};
    memcpy(key.bytes, &id, sizeof id);
    return key;
}

static const fv_seal_head head = {.n = 64, .seconds = 0.25, .bytes = BYTES};

static void fill(uint8_t *rows, int id) {
    for (int i = 0; i < BYTES; i++) rows[i] = (uint8_t)(i * 31 + id * 7);
}

static fv_status put(const char *tenant, int id) {
    uint8_t rows[BYTES];
    fv_chain_key key = key_of(id);
    fill(rows, id);
    return tier->ops->write(tier, tenant, &key, &head, rows);
}

static bool has(int id) {
    fv_chain_key key = key_of(id);
    const fv_chain_key *list[] = {&key};
    return tier->ops->has(tier, list, 1) == 1;
}

/* Reads a segment; false: it is not there. What is there must be right. */
static bool get(int id) {
    uint8_t rows[BYTES], want[BYTES];
    double seconds;
    fv_chain_key key = key_of(id);
    fv_status st = tier->ops->read(tier, &key, &head, rows, &seconds);
    if (st == FV_ENOTFOUND) return false;
    cr_assert_eq(st, FV_OK);
    fill(want, id);
    cr_assert_arr_eq(rows, want, BYTES);
    cr_assert_eq(seconds, 0.25);
    return true;
}

/* Calls `f` with the path of every segment file. */
static int each_file(void (*f)(const char *path)) {
    char top[600], folder[1200], path[2000];
    int n = 0;
    snprintf(top, sizeof top, "%s/0/segments", dir);
    DIR *d = opendir(top);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(folder, sizeof folder, "%s/%s", top, e->d_name);
        DIR *t = opendir(folder);
        for (struct dirent *x; t && (x = readdir(t));) {
            if (x->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
            n++;
            if (f) f(path);
        }
        if (t) closedir(t);
    }
    if (d) closedir(d);
    return n;
}

Test(disk, segments_outlive_the_process) {
    open_folder(1 << 20);
    for (int i = 0; i < 5; i++) cr_assert_eq(put("ann", i), FV_OK, "%s", fv_last_error());
    cr_assert_eq(put("ann", 3), FV_OK, "again is fine");
    fv_chain_key a = key_of(0), b = key_of(1), c = key_of(9), d = key_of(2);
    const fv_chain_key *list[] = {&a, &b, &c, &d};
    cr_assert_eq(tier->ops->has(tier, list, 4), 2, "up to the first that is not there");
    close_folder();
    open_folder(1 << 20);
    for (int i = 0; i < 5; i++) cr_assert(get(i));
    cr_assert_not(get(5));
    fv_tier_counters n = tier->ops->count(tier);
    cr_assert_eq(n.n_segment, 5);
    cr_assert_eq(n.bytes, 5 * FILE_BYTES);
    cr_assert_eq(n.n_hit, 5);
    cr_assert_eq(n.bytes_read, 5 * BYTES);
}

Test(disk, another_secret_finds_nothing) {
    fv_key key = {{1}}, other = {{2}};
    cr_assert_eq(fv_kv_disk_open(dir, 1 << 20, &key, &tier), FV_OK);
    cr_assert_eq(put("ann", 1), FV_OK);
    close_folder();
    cr_assert_eq(fv_kv_disk_open(dir, 1 << 20, &other, &tier), FV_OK);
    cr_assert_not(get(1));
    close_folder();
    cr_assert_eq(fv_kv_disk_open(dir, 1 << 20, &key, &tier), FV_OK);
    cr_assert(get(1));
}

Test(disk, processes_that_share_a_folder_have_their_own_part_of_it) {
    fv_kv_tier *first;
    open_folder(1 << 20);
    cr_assert_eq(put("ann", 1), FV_OK);
    first = tier;
    open_folder(1 << 20);
    cr_assert_not(get(1));
    cr_assert_eq(put("ann", 2), FV_OK);
    close_folder();
    tier = first;
    cr_assert(get(1));
    close_folder();
    open_folder(1 << 20);
    cr_assert(get(1), "the first free one is taken");
    cr_assert_not(get(2));
}

static void damage(const char *path) {
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "x", 1, 2000), 1);
    close(fd);
}

static void cut(const char *path) { cr_assert_eq(truncate(path, 3000), 0); }
static void empty(const char *path) { cr_assert_eq(truncate(path, 0), 0); }
static void lengthen(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, "more", 4), 4);
    close(fd);
}
static void remove_it(const char *path) { cr_assert_eq(unlink(path), 0); }
static void forbid(const char *path) {
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
}
static void make_fifo(const char *path) {
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
}

Test(disk, damaged_cut_lengthened_and_missing_files_are_misses_and_deleted) {
    void (*harm[])(const char *) = {damage, cut, empty, lengthen, remove_it, forbid, make_fifo};
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++)
        for (int restart = 0; restart < 2; restart++) {
            open_folder(1 << 20);
            cr_assert_eq(put("ann", 1), FV_OK);
            if (restart) close_folder();
            each_file(harm[i]);
            if (restart) open_folder(1 << 20);
            cr_assert_not(get(1), "harm %zu", i);
            cr_assert_not(has(1), "harm %zu", i);
            cr_assert_eq(put("ann", 2), FV_OK);
            cr_assert(get(2), "the folder works on");
            close_folder();
            begin();
        }
}

Test(disk, a_process_without_descriptors_loses_no_segment) {
    struct rlimit usual, none;
    open_folder(1 << 20);
    cr_assert_eq(put("ann", 1), FV_OK);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = usual;
    none.rlim_cur = 0;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool found = get(1);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    cr_assert_not(found);
    cr_assert_eq(tier->ops->count(tier).n_failed, 1);
    cr_assert(get(1));
}

static char first_path[2000], second_path[2000];
static void remember(const char *path) {
    snprintf(first_path[0] ? second_path : first_path, sizeof first_path, "%s", path);
}

Test(disk, swapped_segments_are_not_taken_for_each_other) {
    char between[2100];
    open_folder(1 << 20);
    cr_assert_eq(put("ann", 1), FV_OK);
    cr_assert_eq(put("bob", 2), FV_OK);
    cr_assert_eq(each_file(remember), 2);
    snprintf(between, sizeof between, "%s/between", dir);
    cr_assert_eq(rename(first_path, between), 0);
    cr_assert_eq(rename(second_path, first_path), 0);
    cr_assert_eq(rename(between, second_path), 0);
    cr_assert_not(get(1));
    cr_assert_not(get(2));
    cr_assert_eq(tier->ops->count(tier).n_damaged, 2);
}

Test(disk, rubbish_in_the_folder_is_deleted_at_the_start) {
    char path[2000];
    open_folder(1 << 20);
    cr_assert_eq(put("ann", 1), FV_OK);
    close_folder();
    snprintf(path, sizeof path, "%s/0/segments/note.txt", dir);
    cr_assert_eq(fv_file_write(path, "x", 1), FV_OK);
    each_file(remember);
    snprintf(path, sizeof path, "%.1900s.7.part", first_path);
    cr_assert_eq(fv_file_write(path, "x", 1), FV_OK);
    open_folder(1 << 20);
    cr_assert(get(1));
    cr_assert_eq(each_file(NULL), 1);
    cr_assert_eq(tier->ops->count(tier).n_damaged, 1, "what was being written is no damage");
}

Test(disk, a_tenant_cannot_push_out_another_one) {
    open_folder(10 * FILE_BYTES);
    for (int i = 0; i < 5; i++) cr_assert_eq(put("ann", i), FV_OK);
    for (int i = 100; i < 200; i++) cr_assert_eq(put("bob", i), FV_OK);
    int kept = 0;
    for (int i = 0; i < 5; i++) kept += get(i);
    cr_assert_eq(kept, 5);
    cr_assert(get(199));
    cr_assert_not(get(100));
    cr_assert_leq(tier->ops->count(tier).bytes, 10 * FILE_BYTES);
    cr_assert_eq(each_file(NULL), 10);
}

Test(disk, a_smaller_limit_keeps_what_was_used_last) {
    open_folder(1 << 20);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(put("ann", i), FV_OK);
        usleep(20000); /* more than what the clock of files may lag */
    }
    cr_assert(get(0));
    close_folder();
    open_folder(3 * FILE_BYTES);
    cr_assert(get(0));
    cr_assert(get(5));
    cr_assert_not(get(1));
    cr_assert_eq(each_file(NULL), 3);
}

Test(disk, a_segment_larger_than_the_folder_is_refused) {
    open_folder(4096);
    cr_assert_eq(put("ann", 1), FV_ENOMEM);
    cr_assert_eq(each_file(NULL), 0);
}

static void *work(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 300; i++) {
        int id = (int)((state = state * 1664525U + 1013904223U) >> 16) % 20;
        if (i % 3 == 0) put(id % 2 ? "ann" : "bob", id);
        get(id);
    }
    return NULL;
}

Test(disk, threads_read_and_write_at_once) {
    pthread_t thread[3];
    open_folder(8 * FILE_BYTES);
    for (uintptr_t i = 0; i < 3; i++) pthread_create(&thread[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    fv_tier_counters n = tier->ops->count(tier);
    cr_assert_eq(n.n_damaged, 0);
    cr_assert_eq(n.n_failed, 0, "a file that was given up is no failure");
    cr_assert_leq(n.n_segment, 8);
    cr_assert_eq(each_file(NULL), (int)n.n_segment);
}

/* ---- a slow file system ------------------------------------------------------------------- */

static struct {
    atomic_bool armed, in_vain;
    sem_t begun, go;
} slow;

/* Takes the place of libc's: while it is armed, it waits until the test has had its answer. */
int unlink(const char *path) {
    if (atomic_exchange(&slow.armed, false)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 30;
        sem_post(&slow.begun);
        atomic_store(&slow.in_vain, sem_timedwait(&slow.go, &until) != 0);
    }
    return unlinkat(AT_FDCWD, path, 0);
}

static void *put_third(void *unused) {
    (void)unused;
    put("ann", 3);
    return NULL;
}

Test(disk, who_asks_what_is_there_waits_for_no_file_system) {
    pthread_t thread;
    sem_init(&slow.begun, 0, 0);
    sem_init(&slow.go, 0, 0);
    open_folder(2 * FILE_BYTES);
    cr_assert_eq(put("ann", 1), FV_OK);
    cr_assert_eq(put("ann", 2), FV_OK);
    atomic_store(&slow.armed, true);
    pthread_create(&thread, NULL, put_third, NULL);
    sem_wait(&slow.begun);
    bool second = has(2);
    sem_post(&slow.go);
    pthread_join(thread, NULL);
    cr_assert(second);
    cr_assert_not(atomic_load(&slow.in_vain), "it waited for a file to be deleted");
    cr_assert(get(3));
    cr_assert_not(has(1));
}

Test(disk, a_key_that_was_being_made_is_made_anew) {
    char path[2000];
    snprintf(path, sizeof path, "%s/0", dir);
    cr_assert_eq(fv_dir_make(path), FV_OK);
    snprintf(path, sizeof path, "%s/0/key.part", dir);
    cr_assert_eq(fv_file_write(path, "half", 4), FV_OK);
    open_folder(1 << 20);
    cr_assert_eq(put("ann", 1), FV_OK);
    close_folder();
    open_folder(1 << 20);
    cr_assert(get(1));
}
