/* command_line.h - what the command lines of all subcommands have in common: argp, with -h for --help. */
#ifndef QR_CLI_COMMAND_LINE_H
#define QR_CLI_COMMAND_LINE_H

#include <argp.h>

/* argp_parse of a subcommand: a wrong command line, and one that asks for help, ends the process. Borrows all. */
error_t qr_command_line_parse(const struct argp *argp, int argc, char **argv, void *input);

#endif
