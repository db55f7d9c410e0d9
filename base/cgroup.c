/* cgroup.c - what control groups leave this process.
 *
 * /proc/self/cgroup names the process's group per hierarchy ("0::/a/b" for v2, "4:cpu,cpuacct:/a/b" for v1). Limits hold at
 * every level, so the walk goes from the group to the mount's root. Inside a container the named path often does not exist
 * below the mount, whose root then is the container's own group: levels that cannot be read are passed over.
 */
#include "base/cgroup_internal.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 4096 };

/* Looks at one level and lowers *limit. */
typedef void cgroup_level(const char *directory, uint64_t *limit);

static bool file_read_line(const char *directory, const char *name, char line[LINE_BYTES]) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool ok = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    return ok;
}

static bool file_read_u64(const char *directory, const char *name, uint64_t *value) {
    char line[LINE_BYTES];
    return file_read_line(directory, name, line) && sscanf(line, "%" SCNu64, value) == 1;
}

/* The value of "key value" in a file of such lines; 0 when it is not there. */
static uint64_t file_find_u64(const char *directory, const char *name, const char *key) {
    char path[PATH_BYTES + 64], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    uint64_t value = 0;
    size_t key_bytes = strlen(key);
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, key_bytes) != 0 || line[key_bytes] != ' ') continue;
        value = strtoull(line + key_bytes, NULL, 10);
        break;
    }
    if (file) fclose(file);
    return value;
}

static void limit_lower(uint64_t *limit, uint64_t value) {
    if (value < *limit) *limit = value;
}

static void cpu_level_v2(const char *directory, uint64_t *limit) {
    char line[LINE_BYTES];
    uint64_t quota, period; /* "max 100000" has no quota and fails to scan */
    if (!file_read_line(directory, "cpu.max", line)) return;
    if (sscanf(line, "%" SCNu64 " %" SCNu64, &quota, &period) == 2 && period) limit_lower(limit, quota * 1000 / period);
}

static void cpu_level_v1(const char *directory, uint64_t *limit) {
    char line[LINE_BYTES];
    int64_t quota; /* -1 = none */
    uint64_t period;
    if (!file_read_line(directory, "cpu.cfs_quota_us", line) || sscanf(line, "%" SCNd64, &quota) != 1 || quota <= 0) return;
    if (file_read_u64(directory, "cpu.cfs_period_us", &period) && period) limit_lower(limit, (uint64_t)quota * 1000 / period);
}

static void memory_lower(uint64_t *limit, uint64_t most, uint64_t used, uint64_t droppable) {
    uint64_t held = used > droppable ? used - droppable : 0;
    limit_lower(limit, most > held ? most - held : 0);
}

static void memory_level_v2(const char *directory, uint64_t *limit) {
    uint64_t most, used;
    if (!file_read_u64(directory, "memory.max", &most) || !file_read_u64(directory, "memory.current", &used)) return;
    memory_lower(limit, most, used, file_find_u64(directory, "memory.stat", "inactive_file"));
}

static void memory_level_v1(const char *directory, uint64_t *limit) {
    uint64_t most, used;
    if (!file_read_u64(directory, "memory.limit_in_bytes", &most)) return;
    if (most >= INT64_MAX - (1 << 20) || !file_read_u64(directory, "memory.usage_in_bytes", &used)) return;
    memory_lower(limit, most, used, file_find_u64(directory, "memory.stat", "total_inactive_file"));
}

/* Visits base/path, then every level above it down to base itself. */
static void levels_walk(const char *base, const char *path, cgroup_level *level, uint64_t *limit) {
    char directory[PATH_BYTES];
    int size = snprintf(directory, sizeof directory, "%s%s", base, strcmp(path, "/") == 0 ? "" : path);
    if (size < 0 || (size_t)size >= sizeof directory) return;
    size_t base_bytes = strlen(base);
    for (;;) {
        level(directory, limit);
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < base_bytes) return;
        *slash = 0;
    }
}

/* Whether a comma-separated list has the word. */
static bool list_has(const char *list, const char *word) {
    size_t word_bytes = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += word_bytes) {
        bool starts = at == list || at[-1] == ',', ends = at[word_bytes] == 0 || at[word_bytes] == ',';
        if (starts && ends) return true;
    }
    return false;
}

static void line_visit(const char *root, char *line, const char *controller, cgroup_level *v1, cgroup_level *v2,
                       uint64_t *limit) {
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/') return;
    *path++ = 0;
    controllers++;
    char base[PATH_BYTES];
    if (*controllers == 0) {
        snprintf(base, sizeof base, "%s/sys/fs/cgroup", root);
        levels_walk(base, path, v2, limit);
    } else if (list_has(controllers, controller)) {
        snprintf(base, sizeof base, "%s/sys/fs/cgroup/%s", root, controller); /* systemd links cpu to cpu,cpuacct */
        levels_walk(base, path, v1, limit);
    }
}

static uint64_t limit_find(const char *root, const char *controller, cgroup_level *v1, cgroup_level *v2) {
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    uint64_t limit = QR_CGROUP_NO_LIMIT;
    while (file && fgets(line, sizeof line, file)) line_visit(root, line, controller, v1, v2, &limit);
    if (file) fclose(file);
    return limit;
}

uint64_t qr_cgroup_cpu_millicores(const char *root) { return limit_find(root, "cpu", cpu_level_v1, cpu_level_v2); }

uint64_t qr_cgroup_memory_left(const char *root) { return limit_find(root, "memory", memory_level_v1, memory_level_v2); }
