/* Limits of memory, from sysconf and the files of control groups. Inside a container the group of
 * the process is often shown as "/" or by a path that does not exist there: a directory that cannot
 * be read is skipped, and its parents, up to the mount itself, are read as well. Any thread. */
#include "common/memory_limit.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 16, PATH_BYTES = 4096 };

/* A file with one number; "max" is no limit, and neither is what cannot be read. */
static size_t read_limit(const char *path) {
    FILE *f = fopen(path, "re");
    char text[64] = "";
    if (!f) return SIZE_MAX;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *end;
    errno = 0;
    unsigned long long limit = strtoull(text, &end, 10);
    if (end == text || errno != 0 || limit == 0 || limit > SIZE_MAX) return SIZE_MAX;
    return (size_t)limit;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The least limit in `group` and all directories above it, up to `root`. */
static size_t limit_upwards(const char *root, const char *group, size_t n_group, const char *file) {
    char path[PATH_BYTES];
    size_t limit = SIZE_MAX;
    if (n_group > 0 && group[n_group - 1] == '/') n_group--;
    for (;;) {
        int n = snprintf(path, sizeof path, "%s%.*s/%s", root, (int)n_group, group, file);
        if (n > 0 && (size_t)n < sizeof path) limit = least(limit, read_limit(path));
        if (n_group == 0) return limit;
        while (n_group > 0 && group[n_group - 1] != '/') n_group--;
        if (n_group > 0) n_group--;
    }
}

/* "cpu,memory" names memory. */
static int names_memory(const char *controllers, size_t n) {
    for (size_t at = 0; at < n;) {
        const char *comma = memchr(controllers + at, ',', n - at);
        size_t len = comma ? (size_t)(comma - controllers) - at : n - at;
        if (len == 6 && memcmp(controllers + at, "memory", 6) == 0) return 1;
        at += len + 1;
    }
    return 0;
}

/* Each line is "NUMBER:CONTROLLERS:PATH"; version 2 has no controllers there. */
size_t fv_memory_limit_of_groups(const char *groups, const char *mount) {
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
                limit = least(limit, limit_upwards(mount, group, n_group, "memory.max"));
                snprintf(root, sizeof root, "%s/unified", mount);
                limit = least(limit, limit_upwards(root, group, n_group, "memory.max"));
            } else if (names_memory(first + 1, n_controller)) {
                snprintf(root, sizeof root, "%s/memory", mount);
                limit = least(limit, limit_upwards(root, group, n_group, "memory.limit_in_bytes"));
            }
        }
        line += n + (line[n] == '\n');
    }
    return limit;
}

size_t fv_memory_limit(void) {
    char groups[TEXT_MAX] = "";
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t limit = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return limit;
    size_t n = fread(groups, 1, sizeof groups - 1, f);
    fclose(f);
    groups[n] = '\0';
    return least(limit, fv_memory_limit_of_groups(groups, "/sys/fs/cgroup"));
}
