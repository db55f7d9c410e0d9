/* cache_report.h - what lies in a folder of the disk cache, for people and as JSON. Never shows a token, a prompt or the bytes
 * of a namespace key: namespaces are told apart by a digest of their key.
 *
 * Thread: one owner.
 */
#ifndef QR_CLI_CACHE_REPORT_H
#define QR_CLI_CACHE_REPORT_H

#include <stdbool.h>

#include <quire/status.h>

/* Segments, and blocks, tokens and bytes per namespace. */
QUIRE_MUST_CHECK quire_status qr_cache_report_list(const char *folder, bool json, quire_error *error);
/* The sums alone. */
QUIRE_MUST_CHECK quire_status qr_cache_report_sums(const char *folder, bool json, quire_error *error);
/* Reads all of it and prints a line per record that does not hold. *damaged counts those that were complete. */
QUIRE_MUST_CHECK quire_status qr_cache_report_verify(const char *folder, bool json, uint64_t *damaged, quire_error *error);
#endif
