/* start_screen.h - what a configuration takes, as the daemon says it at start and `plan` says it in advance. */
#ifndef QR_CLI_START_SCREEN_H
#define QR_CLI_START_SCREEN_H

#include <stdio.h>

#include "runtime/engine/sizing.h"

/* Model, weights, KV bytes per token, blocks, tokens and sessions at full context. */
void qr_start_screen_print(FILE *file, const quire_model *model, const quire_engine_config *config, const qr_sizing *sizing);
#endif
