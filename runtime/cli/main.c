/* main.c - the `quire` command. */
#include "runtime/cli/commands.h"

int main(int argc, char **argv) { return qr_cli_main(argc, argv, &(qr_kv_parts){0}); }
