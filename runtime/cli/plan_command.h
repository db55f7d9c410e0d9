/* plan_command.h - `quire plan`: what a model takes and how many sessions fit, from the file's header alone. */
#ifndef QR_CLI_PLAN_COMMAND_H
#define QR_CLI_PLAN_COMMAND_H

int qr_command_plan(int argc, char **argv);
#endif
