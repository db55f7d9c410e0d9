/* bench_probe.h - what the measured server is: command line, cores, memory. Read from /proc; for a server on this machine
 * only. What cannot be read stays empty or zero and is reported so. */
#ifndef QR_CLI_BENCH_PROBE_H
#define QR_CLI_BENCH_PROBE_H

#include <stdint.h>
#include <sys/types.h>

typedef struct qr_bench_facts {
    pid_t pid;
    char command[512];
    unsigned cores;           /* that it may run on */
    uint64_t anonymous_bytes; /* smaps_rollup: Anonymous */
    uint64_t resident_bytes;  /* Rss */
} qr_bench_facts;

/* The server behind a Unix socket (the kernel says) or behind a local TCP port (by its listening socket); 0 = not found. */
pid_t qr_bench_pid_of_socket(const char *path);
pid_t qr_bench_pid_of_port(unsigned port);
void qr_bench_read_facts(pid_t pid, qr_bench_facts *facts);
/* Model name of this machine's processor. */
void qr_bench_cpu_name(char *name, size_t size);
#endif
