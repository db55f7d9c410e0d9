/* cache_folder.h - where the command keeps what it can make again: $XDG_CACHE_HOME/quire, else ~/.cache/quire. */
#ifndef QR_CLI_CACHE_FOLDER_H
#define QR_CLI_CACHE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the path of a part of it, NUL-terminated; makes nothing. False: neither variable is set to an absolute path, or it
 * does not fit; *path is empty then. */
bool qr_cache_folder(const char *part, char *path, size_t size);
#endif
