/* commands.c - the table of subcommands, each with its own file and its own argp. */
#include "runtime/cli/commands.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cache_command.h"
#include "runtime/cli/chat.h"
#include "runtime/cli/plan_command.h"
#include "runtime/cli/run.h"
#include "runtime/cli/serve.h"
#include "runtime/cli/tokenize.h"

typedef struct subcommand {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
    int (*run_over)(int argc, char **argv, const qr_kv_parts *parts); /* instead, of those that make an engine */
} subcommand;

static const subcommand subcommands[] = {
    {"serve", "serve a model over a Unix socket with the OpenAI API", NULL, qr_command_serve},
    {"chat", "talk with a running daemon", qr_command_chat, NULL},
    {"run", "answer one prompt without a daemon", NULL, qr_command_run},
    {"plan", "say what a model takes and how many sessions fit", qr_command_plan, NULL},
    {"cache", "look into a cache on disk, and manage it", qr_command_cache, NULL},
    {"tokenize", "show the tokens of a text", qr_command_tokenize, NULL},
    {"bench", "measure a server of this API with many conversations", qr_command_bench, NULL},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof *subcommands, EXIT_USAGE = 64, EXIT_NO_FILES = 71 };

static void print_help(FILE *file) {
    fputs("Usage: quire COMMAND [OPTION...]\n"
          "A paged, prefix-cached LLM server for one machine.\n\n",
          file);
    for (int i = 0; i < SUBCOMMAND_COUNT; i++) fprintf(file, "  %-10s%s\n", subcommands[i].name, subcommands[i].summary);
    fputs("\n  --help     this text; `quire COMMAND --help` says more about one\n"
          "  --version  the version\n",
          file);
}

static const subcommand *find_subcommand(const char *name) {
    for (int i = 0; i < SUBCOMMAND_COUNT; i++)
        if (strcmp(subcommands[i].name, name) == 0) return &subcommands[i];
    return NULL;
}

static int run_subcommand(const subcommand *command, int argc, char **argv, const qr_kv_parts *parts) {
    char name[32]; /* argp shows argv[0] in its messages */
    snprintf(name, sizeof name, "quire %s", command->name);
    argv[0] = name;
    return command->run_over ? command->run_over(argc, argv, parts) : command->run(argc, argv);
}

/* A parent may have closed them. Then the next file that is opened, a client or the event loop's own pipe, would get their
 * numbers, and the log would be written into it. */
static bool standard_files_open(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;
    return true;
}

int qr_cli_main(int argc, char **argv, const qr_kv_parts *parts) {
    if (!standard_files_open()) return EXIT_NO_FILES;
    const char *first = argc > 1 ? argv[1] : "";
    const subcommand *command = find_subcommand(first);
    if (command) return run_subcommand(command, argc - 1, argv + 1, parts);
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) return puts("quire " QR_VERSION) < 0;
    if (strcmp(first, "help") == 0 && argc == 3 && (command = find_subcommand(argv[2])) != NULL)
        return run_subcommand(command, 2, (char *[]){argv[2], (char[]){"--help"}, NULL}, parts);
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (*first) fprintf(stderr, "quire: there is no command '%s'\n\n", first);
    print_help(stderr);
    return EXIT_USAGE;
}
