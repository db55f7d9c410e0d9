#include "runtime/cli/bench_probe.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

pid_t qr_bench_pid_of_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return 0;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        peer.pid = 0;
    close(fd);
    return peer.pid;
}

/* The inode of the socket that listens on the port (state 0A), from one of the kernel's tables. */
static unsigned long listening_inode(const char *table, unsigned port) {
    FILE *file = fopen(table, "re");
    char line[512];
    unsigned long found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned local_port, state;
        unsigned long inode;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &local_port, &state, &inode) ==
                3 &&
            state == 0x0A && local_port == port)
            found = inode;
    }
    if (file) fclose(file);
    return found;
}

static int holds_inode(const char *pid, unsigned long inode) {
    char folder[300], wanted[64], link[300], target[128];
    snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *fds = opendir(folder);
    int found = 0;
    for (struct dirent *entry; fds && !found && (entry = readdir(fds));) {
        if (snprintf(link, sizeof link, "%s/%s", folder, entry->d_name) >= (int)sizeof link) continue;
        ssize_t size = readlink(link, target, sizeof target - 1);
        if (size <= 0) continue;
        target[size] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    if (fds) closedir(fds);
    return found;
}

pid_t qr_bench_pid_of_port(unsigned port) {
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    if (!inode) inode = listening_inode("/proc/net/tcp6", port);
    if (!inode) return 0;
    DIR *processes = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry; processes && !found && (entry = readdir(processes));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && holds_inode(entry->d_name, inode))
            found = atoi(entry->d_name);
    if (processes) closedir(processes);
    return found;
}

static void read_command(pid_t pid, char *command, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *file = fopen(path, "re");
    size_t count = file ? fread(command, 1, size - 1, file) : 0;
    if (file) fclose(file);
    for (size_t i = 0; i < count; i++)
        if (command[i] == '\0') command[i] = ' ';
    while (count && command[count - 1] == ' ') count--;
    command[count] = '\0';
}

static void read_memory(pid_t pid, qr_bench_facts *facts) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long kib;
        if (sscanf(line, "Rss: %llu", &kib) == 1) facts->resident_bytes = kib * 1024;
        if (sscanf(line, "Anonymous: %llu", &kib) == 1) facts->anonymous_bytes = kib * 1024;
    }
    if (file) fclose(file);
}

void qr_bench_read_facts(pid_t pid, qr_bench_facts *facts) {
    *facts = (qr_bench_facts){.pid = pid};
    if (pid <= 0) return;
    read_command(pid, facts->command, sizeof facts->command);
    cpu_set_t cores;
    if (sched_getaffinity(pid, sizeof cores, &cores) == 0) facts->cores = (unsigned)CPU_COUNT(&cores);
    read_memory(pid, facts);
}

void qr_bench_cpu_name(char *name, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    snprintf(name, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *colon = strchr(line, ':');
        if (colon) snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
}
