/* commands.h - the `quire` command as a function, so that a test can hand parts down that it breaks on purpose. */
#ifndef QR_CLI_COMMANDS_H
#define QR_CLI_COMMANDS_H

#include "runtime/engine/engine_parts.h"

/* parts: what the engine of `serve` or `run` is made over (runtime/engine/engine_parts.h); all zero: its own. Device and store
 * are taken by the one engine that a process makes. Returns the exit code. */
int qr_cli_main(int argc, char **argv, const qr_kv_parts *parts);
#endif
