/* serve.h - `quire serve`: the daemon. It answers /health with 503 from its first moment and loads the model on a thread. */
#ifndef QR_CLI_SERVE_H
#define QR_CLI_SERVE_H

#include "runtime/engine/engine_parts.h"

/* parts: of the engine (commands.h). */
int qr_command_serve(int argc, char **argv, const qr_kv_parts *parts);
#endif
