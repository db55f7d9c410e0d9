#include "base/cpu_features.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/cgroup_internal.h"

/* Whether /proc/cpuinfo lists the flag. */
static bool kernel_lists(const char *flag) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[16384], word[64];
    bool found = false;
    snprintf(word, sizeof word, " %s ", flag);
    while (file && !found && fgets(line, sizeof line - 1, file)) {
        if (strncmp(line, "flags", 5) != 0) continue;
        line[strcspn(line, "\n")] = ' ';
        found = strstr(line, word) != NULL;
    }
    if (file) fclose(file);
    return found;
}

Test(base_cpu_features, what_is_found_the_kernel_lists_too) {
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    cr_assert_eq(features.avx2, kernel_lists("avx2") && kernel_lists("fma") && kernel_lists("f16c"));
    cr_assert_eq(features.avx512, kernel_lists("avx512f") && kernel_lists("avx512bw") && kernel_lists("avx512dq") &&
                                      kernel_lists("avx512vl") && features.avx2);
    cr_assert_eq(features.avx512_vnni, features.avx512 && kernel_lists("avx512_vnni"));
    if (features.amx_int8) cr_assert(kernel_lists("amx_int8"));
    cr_assert_gt(strlen(features.model), 0);
}

Test(base_cpu_features, at_least_one_core_and_no_more_than_online) {
    unsigned count = qr_cpu_count();
    cr_assert_geq(count, 1);
    cr_assert_leq((long)count, sysconf(_SC_NPROCESSORS_CONF));
}

/* ---- control groups, from a made-up root ---- */

static char root[64];

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

static void make_root(void) {
    strcpy(root, "/tmp/quire-cgroup-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_assert_eq(system(command), 0);
}

Test(base_cgroup, without_groups_nothing_limits) {
    make_root();
    cr_assert_eq(qr_cgroup_cpu_millicores(root), QR_CGROUP_NO_LIMIT);
    put("proc/self/cgroup", "0::/\n");
    cr_assert_eq(qr_cgroup_memory_left(root), QR_CGROUP_NO_LIMIT);
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/memory.current", "5000\n");
    cr_assert_eq(qr_cgroup_cpu_millicores(root), QR_CGROUP_NO_LIMIT);
    cr_assert_eq(qr_cgroup_memory_left(root), QR_CGROUP_NO_LIMIT);
    remove_root();
}

Test(base_cgroup, version_two_takes_the_tightest_level) {
    make_root();
    put("proc/self/cgroup", "0::/user.slice/box\n");
    put("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/user.slice/box/cpu.max", "400000 100000\n");
    put("sys/fs/cgroup/user.slice/memory.max", "1000000\n");
    put("sys/fs/cgroup/user.slice/memory.current", "400000\n");
    put("sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 100000\nactive_file 7\n");
    put("sys/fs/cgroup/user.slice/box/memory.max", "900000\n");
    put("sys/fs/cgroup/user.slice/box/memory.current", "100000\n");
    cr_assert_eq(qr_cgroup_cpu_millicores(root), 1500);
    cr_assert_eq(qr_cgroup_memory_left(root), 700000);
    put("sys/fs/cgroup/user.slice/box/memory.current", "2000000\n");
    cr_assert_eq(qr_cgroup_memory_left(root), 0);
    remove_root();
}

Test(base_cgroup, a_path_of_the_host_falls_back_to_the_containers_root) {
    make_root();
    put("proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    cr_assert_eq(qr_cgroup_cpu_millicores(root), 500);
    remove_root();
}

Test(base_cgroup, version_one_controllers_are_found_in_their_lists) {
    make_root();
    put("proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/box\n3:memory:/box\n");
    put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "250000\n");
    put("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "8000\n");
    put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "5000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
    cr_assert_eq(qr_cgroup_cpu_millicores(root), 2500);
    cr_assert_eq(qr_cgroup_memory_left(root), 3000);
    remove_root();
}
