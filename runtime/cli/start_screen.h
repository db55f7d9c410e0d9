/* start_screen.h - what a configuration takes, as the daemon says it at start and `plan` says it in advance. */
#ifndef QR_CLI_START_SCREEN_H
#define QR_CLI_START_SCREEN_H

#include <stdio.h>

#include "runtime/engine/sizing.h"

/* Model, weights, KV bytes per token, blocks, tokens and sessions at full context. */
void qr_start_screen_print(FILE *file, const quire_model *model, const quire_engine_config *config, const qr_sizing *sizing);
/* The tiers below the pool as they were found; nothing without any. */
void qr_start_screen_print_tiers(FILE *file, const quire_engine_config *config, const quire_engine_stats *stats);
/* The same in advance: what the cap comes to. */
void qr_start_screen_plan_tiers(FILE *file, const quire_model *model, const quire_engine_config *config,
                                const qr_sizing *sizing);
#endif
