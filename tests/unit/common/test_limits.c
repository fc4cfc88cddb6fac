/* common/limits.c: control groups of both versions, in containers and on bare machines. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/limits.h"

static char mount[300];

static void setup(void) {
    snprintf(mount, sizeof mount, "%s/groups_XXXXXX", FOVEA_TEST_TMP);
    cr_assert_not_null(mkdtemp(mount));
}

static void teardown(void) {
    char command[400];
    snprintf(command, sizeof command, "rm -r '%s'", mount);
    cr_assert_eq(system(command), 0);
}

TestSuite(limits, .init = setup, .fini = teardown);

/* Writes a file below the mount, and its directories. */
static void put(const char *path, const char *text) {
    char whole[700];
    int n = snprintf(whole, sizeof whole, "%s/", mount);
    snprintf(whole + n, sizeof whole - (size_t)n, "%s", path);
    for (char *slash = strchr(whole + n, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    cr_assert_eq(fv_file_write(whole, text, strlen(text)), FV_OK, "%s", fv_last_error());
}

static size_t limit(const char *groups) { return fv_memory_limit_of_groups(groups, mount); }

Test(limits, the_container_of_version_2_sees_its_group_as_the_root) {
    put("memory.max", "1073741824\n");
    cr_assert_eq(limit("0::/\n"), (size_t)1 << 30);
}

Test(limits, an_ancestor_may_say_less) {
    put("a/memory.max", "500\n");
    put("a/b/memory.max", "max\n");
    put("a/b/c/memory.max", "700\n");
    cr_assert_eq(limit("0::/a/b/c\n"), 500);
    cr_assert_eq(limit("0::/a/b/c/"), 500);
}

Test(limits, a_group_that_is_not_mounted_here_leaves_the_ancestors) {
    put("memory.max", "900\n");
    cr_assert_eq(limit("0::/kubepods/pod1/abc\n"), 900);
}

Test(limits, version_1_has_a_mount_for_memory) {
    put("memory/docker/x/memory.limit_in_bytes", "12345\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    cr_assert_eq(limit("12:cpu,cpuacct:/docker/x\n11:rdma,memory:/docker/x\n0::/docker/x\n"),
                 12345);
}

Test(limits, both_versions_side_by_side_count) {
    put("memory/memory.limit_in_bytes", "2000\n");
    put("unified/x/memory.max", "1500\n");
    cr_assert_eq(limit("5:memory:/\n0::/x\n"), 1500);
}

Test(limits, a_controller_whose_name_only_begins_so_is_another) {
    put("memory/memory.limit_in_bytes", "2000\n");
    cr_assert_eq(limit("5:memory_recursiveprot:/\n6:notmemory:/\n"), SIZE_MAX);
}

Test(limits, what_is_no_number_is_no_limit) {
    put("memory.max", "max\n");
    cr_assert_eq(limit("0::/\n"), SIZE_MAX);
    put("memory.max", "");
    cr_assert_eq(limit("0::/\n"), SIZE_MAX);
    put("memory.max", "0\n");
    cr_assert_eq(limit("0::/\n"), SIZE_MAX);
    put("memory.max", "99999999999999999999999999\n");
    cr_assert_eq(limit("0::/\n"), SIZE_MAX);
}

Test(limits, lines_that_are_none_are_passed_over) {
    put("memory.max", "900\n");
    cr_assert_eq(limit(""), SIZE_MAX);
    cr_assert_eq(limit("\n\n:"), SIZE_MAX);
    cr_assert_eq(limit("0::relative\n"), SIZE_MAX);
    cr_assert_eq(limit("garbage\n0::/\nmore"), 900);
}

Test(limits, this_process_has_one) {
    size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    cr_assert_gt(fv_memory_limit(), 0);
    cr_assert_leq(fv_memory_limit(), machine);
}

static size_t cores(const char *groups) { return fv_core_limit_of_groups(groups, mount); }

Test(limits, cores_of_version_2_are_quota_per_period_of_the_group_and_its_ancestors) {
    put("cpu.max", "max 100000\n");
    cr_assert_eq(cores("0::/a/b\n"), SIZE_MAX);
    put("a/cpu.max", "350000 100000\n");
    cr_assert_eq(cores("0::/a/b\n"), 3500);
    put("a/b/cpu.max", "50000 100000\n");
    cr_assert_eq(cores("0::/a/b\n"), 500);
}

Test(limits, cores_of_version_1_need_quota_and_period) {
    put("cpu/a/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(cores("3:cpu,cpuacct:/a\n"), SIZE_MAX);
    put("cpu/a/cpu.cfs_quota_us", "-1\n");
    cr_assert_eq(cores("3:cpu,cpuacct:/a\n"), SIZE_MAX);
    put("cpu/a/cpu.cfs_quota_us", "200000\n");
    cr_assert_eq(cores("3:cpu,cpuacct:/a\n"), 2000);
    cr_assert_eq(cores("3:cpuset:/a\n"), SIZE_MAX);
}

Test(limits, an_unreadable_quota_is_no_quota) {
    put("cpu.max", "100000\n");
    cr_assert_eq(cores("0::/\n"), SIZE_MAX);
    put("cpu.max", "many 100000\n");
    cr_assert_eq(cores("0::/\n"), SIZE_MAX);
    put("cpu.max", "1 18446744073709551615\n");
    cr_assert_eq(cores("0::/\n"), 1, "next to nothing is still something");
}

Test(limits, this_process_has_a_core) { cr_assert_geq(fv_core_limit(), 1); }

Test(limits, a_size_is_checked_against_the_memory_that_there_is) {
    cr_assert_eq(fv_memory_check("cache-bytes", 0), FV_OK);
    cr_assert_eq(fv_memory_check("cache-bytes", fv_memory_limit()), FV_OK);
    cr_assert_eq(fv_memory_check("cache-bytes", SIZE_MAX), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "--cache-bytes 18446744073709551615: this machine"), "%s",
              fv_last_error());
}
