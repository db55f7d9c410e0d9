/* softmax_paths_internal.h - the tables of softmax.c's paths. */
#ifndef QR_ENGINE_SOFTMAX_PATHS_INTERNAL_H
#define QR_ENGINE_SOFTMAX_PATHS_INTERNAL_H

#include "runtime/engine/softmax.h"

extern const qr_softmax_path qr_softmax_path_avx2;
extern const qr_softmax_path qr_softmax_path_avx512;
#endif
