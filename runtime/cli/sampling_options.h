/* sampling_options.h - the flags that shape an answer, for `run` and `chat`: an argp child whose input is a
 * qr_sampling_options. */
#ifndef QR_CLI_SAMPLING_OPTIONS_H
#define QR_CLI_SAMPLING_OPTIONS_H

#include <argp.h>
#include <stdbool.h>

#include <quire/engine.h>

typedef struct qr_sampling_options {
    quire_sampling sampling;
    uint32_t max_tokens; /* 0 = not given */
    const char *system;  /* NULL = none */
} qr_sampling_options;

extern const struct argp qr_sampling_argp;

/* The API's defaults: temperature 1, top_p 1, nothing else. */
void qr_sampling_options_init(qr_sampling_options *options);
#endif
