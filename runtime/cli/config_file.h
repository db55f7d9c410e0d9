/* config_file.h - files of `key = value` lines.
 *
 * Blank lines and lines that begin with # are skipped; spaces around key and value do not count; a value runs to the end of
 * its line. Keys are lower-case words with dashes.
 */
#ifndef QR_CLI_CONFIG_FILE_H
#define QR_CLI_CONFIG_FILE_H

#include <quire/status.h>

/* Called per entry, in order; another status than OK ends the reading and is returned. */
typedef quire_status qr_config_entry_fn(void *context, const char *key, const char *value, unsigned line, quire_error *error);

/* Keys and values live in *text, which the caller frees when it is done with them (set also on failure). Errors: IO, FORMAT
 * (path and line named), NO_MEMORY, those of the callback. */
QUIRE_MUST_CHECK quire_status qr_config_file_read(const char *path, qr_config_entry_fn *entry, void *context, char **text,
                                                  quire_error *error);
#endif
