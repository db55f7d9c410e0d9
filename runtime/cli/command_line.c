/* command_line.c - see command_line.h.
 *
 * argp itself knows -? and --help only. -h is an option of a parent of the subcommand's argp, so that it is told from the
 * value of another option as every flag is.
 */
#include "runtime/cli/command_line.h"

static error_t parse_common(int key, char *argument, struct argp_state *state) {
    if (key == ARGP_KEY_INIT) state->child_inputs[0] = state->input;
    else if (key == 'h') argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
    else return ARGP_ERR_UNKNOWN;
    return 0;
}

error_t qr_command_line_parse(const struct argp *argp, int argc, char **argv, void *input) {
    static const struct argp_option options[] = {{NULL, 'h', NULL, 0, "The same as --help", -1}, {0}};
    const struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
    const struct argp common = {.options = options, .parser = parse_common, .children = children};
    return argp_parse(&common, argc, argv, 0, NULL, input);
}
