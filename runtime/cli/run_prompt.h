/* run_prompt.h - the ids that `quire run` starts from. */
#ifndef QR_CLI_RUN_PROMPT_H
#define QR_CLI_RUN_PROMPT_H

#include <stdbool.h>

#include "runtime/model/model.h"

/* raw: the text as it is, after the start token where the model asks for one. Else a user message, after a system message when
 * `system` is not NULL, through the model's chat template. Errors: UNSUPPORTED (no template: the reason), INVALID, NO_MEMORY.
 */
QUIRE_MUST_CHECK quire_status qr_run_prompt(const quire_model *model, bool raw, const char *system, qr_text prompt,
                                            qr_token_buffer *out, quire_error *error);
#endif
