/* cgroup_internal.h - the limits that control groups put on this process (v2 and v1). */
#ifndef QR_BASE_CGROUP_INTERNAL_H
#define QR_BASE_CGROUP_INTERNAL_H

#include <stdint.h>

#define QR_CGROUP_NO_LIMIT UINT64_MAX

/* root is "" for this machine; tests pass a folder that holds proc/self/cgroup and sys/fs/cgroup. Both functions look at the
 * process's own group and at all groups above it, and return the tightest limit. */

/* Thousandths of a core; QR_CGROUP_NO_LIMIT when nothing limits. */
uint64_t qr_cgroup_cpu_millicores(const char *root);
/* Bytes that may still be charged; file pages that the kernel can drop count as free. QR_CGROUP_NO_LIMIT when nothing limits.
 */
uint64_t qr_cgroup_memory_left(const char *root);
#endif
