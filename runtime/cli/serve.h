/* serve.h - `quire serve`: the daemon. It answers /health with 503 from its first moment and loads the model on a thread. */
#ifndef QR_CLI_SERVE_H
#define QR_CLI_SERVE_H

int qr_command_serve(int argc, char **argv);
#endif
