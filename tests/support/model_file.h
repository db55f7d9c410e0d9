/* model_file.h - where the tests' real model lies. */
#ifndef QR_TESTS_MODEL_FILE_H
#define QR_TESTS_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* ${QUIRE_MODEL}, else SmolLM2-135M-Instruct.Q4_1.gguf in ${XDG_CACHE_HOME:-~/.cache}/quire/models. False: not there. */
bool find_model_file(char *path, size_t size);
#endif
