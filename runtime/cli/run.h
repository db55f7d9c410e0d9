/* run.h - `quire run "prompt"`: one answer, in this process, without a daemon. */
#ifndef QR_CLI_RUN_H
#define QR_CLI_RUN_H

#include "runtime/engine/engine_parts.h"

/* parts: of the engine (commands.h). */
int qr_command_run(int argc, char **argv, const qr_kv_parts *parts);
#endif
