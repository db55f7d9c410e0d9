/* run.h - `quire run "prompt"`: one answer, in this process, without a daemon. */
#ifndef QR_CLI_RUN_H
#define QR_CLI_RUN_H

int qr_command_run(int argc, char **argv);
#endif
