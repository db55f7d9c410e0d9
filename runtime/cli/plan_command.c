/* plan_command.c - prints what qr_pool_sizing_resolve says, as the daemon's start screen does; no arithmetic of its own, so a
 * plan cannot disagree with the daemon. */
#include "runtime/cli/plan_command.h"

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/error.h"
#include "runtime/cli/command_line.h"
#include "runtime/cli/pool_sizing.h"
#include "runtime/cli/settings.h"
#include "runtime/cli/size_text.h"
#include "runtime/cli/start_screen.h"
#include "runtime/cli/terminal.h"

typedef struct plan_args {
    qr_settings_parser parser;
    const char *file;
    uint64_t memory;
    bool json;
} plan_args;

enum { KEY_MEMORY = 300, KEY_JSON };

static const struct argp_option plan_options[] = {
    {"memory", KEY_MEMORY, "SIZE", 0,
     "Memory for weights, KV, --host-cache and work space together (default: as `serve` would choose)", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object; every size in bytes", 0},
    {0},
};

static error_t plan_option(int key, char *argument, struct argp_state *state) {
    plan_args *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &args->parser; break;
    case KEY_MEMORY:
        if (qr_size_parse(argument, &args->memory) != QUIRE_OK || args->memory == 0)
            argp_error(state, "--memory takes a size such as 80G, not '%s'", argument);
        break;
    case KEY_JSON: args->json = true; break;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) argp_error(state, "one model file, please");
        args->file = argument;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static uint64_t session_bytes(const qr_sizing *sizing) { return sizing->blocks_per_context * sizing->kv_block_bytes; }

/* A plan reads as "weights + KV" of a machine that is not this one, so the pool is told in full. */
static void print_table(const quire_model *model, const quire_engine_config *config, const qr_sizing *sizing, uint64_t memory) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    qr_start_screen_print(stdout, model, config, sizing);
    qr_start_screen_plan_tiers(stdout, model, config, sizing);
    printf("  %-14s%s: %" PRIu32 " blocks for %" PRIu32 " tokens\n", "one session", qr_size_format(session_bytes(sizing), a),
           sizing->blocks_per_context, sizing->context_tokens);
    if (memory != UINT64_MAX)
        printf("  %-14s%s of %s\n", "memory used", qr_size_format(sizing->total_bytes, a), qr_size_format(memory, b));
}

static void add_disk(json_t *object, const quire_model *model, const quire_engine_config *config) {
    qr_engine_layout layout;
    quire_kv_disk_plan plan;
    if (!config->disk_cache_path) return;
    qr_sizing_layout(model, config, &layout);
    quire_kv_plan_disk(&layout.kv, &plan);
    json_object_set_new(object, "disk_bytes_max", json_integer((json_int_t)config->disk_cache_max_bytes));
    json_object_set_new(object, "disk_blocks_max", json_integer((json_int_t)plan.block_max));
    json_object_set_new(object, "disk_bytes_per_block", json_integer((json_int_t)plan.record_bytes));
    json_object_set_new(object, "disk_bytes_min", json_integer((json_int_t)plan.cap_min_bytes));
}

static json_t *plan_json(const quire_model *model, const quire_engine_config *config, const qr_sizing *sizing,
                         uint64_t memory) {
    const quire_model_info *info = quire_model_get_info(model);
    json_t *plan =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "model", info->name, "architecture",
                  info->architecture, "quantization", info->quantization, "parameters", (json_int_t)info->parameter_count,
                  "weight_bytes", (json_int_t)sizing->weight_bytes, "mapped_bytes", (json_int_t)info->mapped_bytes,
                  "work_bytes", (json_int_t)sizing->work_bytes, "kv_bookkeeping_bytes",
                  (json_int_t)sizing->kv_bookkeeping_bytes, "kv_pool_bytes", (json_int_t)sizing->kv_pool_bytes, "tiers_bytes",
                  (json_int_t)sizing->tiers_bytes, "total_bytes", (json_int_t)sizing->total_bytes);
    json_t *kv = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "key_type",
                           quire_kv_type_name(config->key_type), "value_type", quire_kv_type_name(config->value_type),
                           "kv_bytes_per_token", (json_int_t)sizing->kv_token_bytes, "kv_bytes_per_block",
                           (json_int_t)sizing->kv_block_bytes, "block_tokens", (json_int_t)sizing->block_tokens, "blocks",
                           (json_int_t)sizing->block_count, "pool_tokens", (json_int_t)sizing->pool_tokens, "context_tokens",
                           (json_int_t)sizing->context_tokens, "blocks_per_session", (json_int_t)sizing->blocks_per_context,
                           "kv_bytes_per_session", (json_int_t)session_bytes(sizing), "sessions", (json_int_t)sizing->sessions);
    if (plan && kv) json_object_update(plan, kv);
    json_decref(kv);
    if (plan) add_disk(plan, model, config);
    if (plan && memory != UINT64_MAX) json_object_set_new(plan, "memory_bytes", json_integer((json_int_t)memory));
    return plan;
}

static int print_json(json_t *plan) {
    int failed = plan == NULL || json_dumpf(plan, stdout, JSON_INDENT(2)) != 0;
    if (!failed) fputc('\n', stdout);
    json_decref(plan);
    return failed;
}

static int plan_print(const plan_args *args, const quire_model *model, const qr_settings *settings, quire_error *error) {
    quire_engine_config config;
    qr_sizing sizing;
    uint64_t joining = qr_pool_sizing_joining(settings, &(qr_kv_parts){0});
    if (qr_pool_sizing_resolve(model, settings, args->memory, joining, &config, &sizing, error) != QUIRE_OK) {
        qr_pool_sizing_name_source(settings, joining, error);
        return qr_terminal_fail("plan", error);
    }
    if (args->json) return print_json(plan_json(model, &config, &sizing, args->memory));
    print_table(model, &config, &sizing, args->memory);
    return 0;
}

static int plan_run(plan_args *args) {
    qr_settings settings;
    quire_error error;
    quire_model *model = NULL;
    qr_error_clear(&error);
    quire_status status = qr_settings_resolve(&args->parser, &settings, &error);
    if (status == QUIRE_OK) status = qr_settings_check(&settings, &error);
    const char *file = args->file ? args->file : settings.model;
    if (status == QUIRE_OK && !file) status = qr_fail(&error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "no model: name a GGUF file");
    quire_model_options options = {.header_only = true, .cpu_path = settings.cpu_path};
    if (status == QUIRE_OK) status = quire_model_open(file, &options, &model, &error);
    if (status != QUIRE_OK) return qr_terminal_fail("plan", &error);
    int code = plan_print(args, model, &settings, &error);
    quire_model_close(model);
    return code;
}

int qr_command_plan(int argc, char **argv) {
    plan_args args = {.memory = UINT64_MAX};
    qr_settings_parser_init(&args.parser, QR_SETTINGS_ENGINE);
    struct argp argp = {.options = plan_options,
                        .parser = plan_option,
                        .args_doc = "FILE",
                        .doc = "Say what a model takes and how many sessions fit, from the file's header alone.\v"
                               "The numbers come from the code that `quire serve` allocates by. Example: quire plan model.gguf "
                               "--memory 80G --context 8192",
                        .children = args.parser.children};
    qr_command_line_parse(&argp, argc, argv, &args);
    int code = plan_run(&args);
    qr_settings_parser_deinit(&args.parser);
    return code;
}
