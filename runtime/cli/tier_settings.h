/* tier_settings.h - settings of the cache on disk: values that only they have, and the default that depends on the disk.
 *
 * Thread: any. Nothing is made or written here.
 */
#ifndef QR_CLI_TIER_SETTINGS_H
#define QR_CLI_TIER_SETTINGS_H

#include <stdbool.h>

#include <quire/status.h>

/* "50G/day", or "50G", which is the same. INVALID for anything else; then *bytes is 0. */
QUIRE_MUST_CHECK quire_status qr_daily_size_parse(const char *text, uint64_t *bytes);

/* How many loads there are to one that is verified instead: "off" 0, "always" 1, "sample=N" N (2 .. 1,000,000). INVALID for
 * anything else. */
QUIRE_MUST_CHECK quire_status qr_verify_parse(const char *text, uint64_t *every);

/* The cap of a cache in this folder unless one is given: the lesser of 20 GiB and a quarter of the file system's size, which
 * does not change from one start to the next. A folder that is not there yet counts as its nearest parent that is. */
uint64_t qr_disk_cache_max_default(const char *folder);

/* The file system of this folder, or of its nearest parent, is larger than that. True where nobody knows. */
bool qr_disk_holds(const char *folder, uint64_t bytes, uint64_t *total_bytes);
#endif
