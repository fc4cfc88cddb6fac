/* Limits from sysconf, the scheduler and the files of control groups. Inside a container the
 * process's group is often shown as "/" or as a path that does not exist there. A directory that
 * cannot be read is therefore ignored, and all its parents up to the mount are read as well. */
#include "common/limits.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 16, PATH_BYTES = 4096 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Reads up to two numbers from dir/file and returns how many there are; "max" and "-1" are no
 * numbers. */
static int read_numbers(const char *dir, const char *file, unsigned long long out[2]) {
    char path[PATH_BYTES + 64], text[64] = "";
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t length = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[length] = '\0';
    int n = 0;
    for (char *at = text, *end; n < 2; n++, at = end) {
        errno = 0;
        out[n] = strtoull(at, &end, 10);
        if (end == at || errno != 0 || out[n] == 0 || strchr(at, '-')) break;
    }
    return n;
}

/* Limit in one directory, for a version of control groups. */
typedef size_t limit_fn(const char *dir, int version);

static size_t memory_of(const char *dir, int version) {
    unsigned long long n[2];
    if (read_numbers(dir, version == 2 ? "memory.max" : "memory.limit_in_bytes", n) < 1)
        return SIZE_MAX;
    return n[0] < SIZE_MAX ? (size_t)n[0] : SIZE_MAX;
}

/* Unit: thousandths of a core. */
static size_t cores_of(const char *dir, int version) {
    unsigned long long quota[2], period[2];
    if (version == 2) {
        if (read_numbers(dir, "cpu.max", quota) < 2) return SIZE_MAX;
        period[0] = quota[1];
    } else if (read_numbers(dir, "cpu.cfs_quota_us", quota) < 1 ||
               read_numbers(dir, "cpu.cfs_period_us", period) < 1) {
        return SIZE_MAX;
    }
    double cores = 1000.0 * (double)quota[0] / (double)period[0];
    return cores >= 1 && cores < 1e9 ? (size_t)cores : cores < 1 ? 1 : SIZE_MAX;
}

/* The lowest limit of `group` and of all directories above it, up to `root`. */
static size_t limit_upwards(const char *root, const char *group, size_t n_group, limit_fn *limit_of,
                            int version) {
    char dir[PATH_BYTES];
    size_t limit = SIZE_MAX;
    if (n_group > 0 && group[n_group - 1] == '/') n_group--;
    for (;;) {
        int n = snprintf(dir, sizeof dir, "%s%.*s", root, (int)n_group, group);
        if (n > 0 && (size_t)n < sizeof dir) limit = least(limit, limit_of(dir, version));
        if (n_group == 0) return limit;
        while (n_group > 0 && group[n_group - 1] != '/') n_group--;
        if (n_group > 0) n_group--;
    }
}

/* Returns whether `controllers`, a list such as "cpu,memory", names the controller. */
static int names(const char *controllers, size_t n, const char *controller) {
    for (size_t at = 0; at < n;) {
        const char *comma = memchr(controllers + at, ',', n - at);
        size_t len = comma ? (size_t)(comma - controllers) - at : n - at;
        if (len == strlen(controller) && memcmp(controllers + at, controller, len) == 0) return 1;
        at += len + 1;
    }
    return 0;
}

/* Each line is "NUMBER:CONTROLLERS:PATH"; in version 2 CONTROLLERS is empty. */
static size_t limit_of_groups(const char *groups, const char *mount, const char *controller,
                              limit_fn *limit_of) {
    char root[PATH_BYTES];
    size_t limit = SIZE_MAX;
    for (const char *line = groups; *line;) {
        size_t n = strcspn(line, "\n");
        const char *first = memchr(line, ':', n);
        const char *second = first ? memchr(first + 1, ':', n - (size_t)(first + 1 - line)) : NULL;
        if (second && second[1] == '/') {
            const char *group = second + 1;
            size_t n_group = n - (size_t)(group - line);
            size_t n_controller = (size_t)(second - first - 1);
            if (n_controller == 0) {
                limit = least(limit, limit_upwards(mount, group, n_group, limit_of, 2));
                snprintf(root, sizeof root, "%s/unified", mount);
                limit = least(limit, limit_upwards(root, group, n_group, limit_of, 2));
            } else if (names(first + 1, n_controller, controller)) {
                snprintf(root, sizeof root, "%s/%s", mount, controller);
                limit = least(limit, limit_upwards(root, group, n_group, limit_of, 1));
            }
        }
        line += n + (line[n] == '\n');
    }
    return limit;
}

size_t fv_memory_limit_of_groups(const char *groups, const char *mount) {
    return limit_of_groups(groups, mount, "memory", memory_of);
}

size_t fv_core_limit_of_groups(const char *groups, const char *mount) {
    return limit_of_groups(groups, mount, "cpu", cores_of);
}

/* The text of /proc/self/cgroup; "" if there is none. */
static const char *own_groups(char text[TEXT_MAX]) {
    FILE *f = fopen("/proc/self/cgroup", "re");
    size_t n = f ? fread(text, 1, TEXT_MAX - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    return text;
}

size_t fv_memory_limit(void) {
    char groups[TEXT_MAX];
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t limit = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
    return least(limit, fv_memory_limit_of_groups(own_groups(groups), "/sys/fs/cgroup"));
}

fv_status fv_memory_check(const char *option, size_t bytes) {
    const size_t limit = fv_memory_limit();
    if (bytes <= limit) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "--%s %zu: this machine, or the limit of its container, has %zu bytes of memory "
                   "(%.1f GiB): give less, or leave the option out",
                   option, bytes, limit, (double)limit / (1 << 30));
}

int fv_core_limit(void) {
    char groups[TEXT_MAX];
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    size_t granted = fv_core_limit_of_groups(own_groups(groups), "/sys/fs/cgroup");
    if (granted / 1000 < (size_t)n) n = (int)((granted + 999) / 1000);
    return n < 1 ? 1 : n;
}

size_t fv_file_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    return (size_t)files.rlim_cur;
}
