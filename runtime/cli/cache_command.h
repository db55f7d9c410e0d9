/* cache_command.h - `quire cache`: looks into a disk cache and manages it. */
#ifndef QR_CLI_CACHE_COMMAND_H
#define QR_CLI_CACHE_COMMAND_H

int qr_command_cache(int argc, char **argv);
#endif
