/* weights.h - a model's weights: every tensor accounted for, repacked into panels in one region.
 *
 * create looks only at tensor infos: names, shapes, types. It knows the bytes that load will take, so planning and
 * loading cannot disagree. Nothing of the file is kept after load.
 */
#ifndef QR_MODEL_WEIGHTS_H
#define QR_MODEL_WEIGHTS_H

#include "base/compute_pool.h"
#include "runtime/model/gguf.h"
#include "runtime/model/model.h"
#include "runtime/model/model_shape.h"

typedef struct qr_weight_store qr_weight_store;

/* exact: every matrix is widened to F32. Keeps gguf until load has returned. Errors: FORMAT (a tensor is missing or has
 * another shape), UNSUPPORTED (a tensor that this architecture does not have here), NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_weight_store_create(const qr_gguf *gguf, const qr_model_shape *shape, bool exact,
                                                     qr_weight_store **store, quire_error *error);
/* The fingerprint is known (fingerprint_sidecar.h): load need not hash. Before load; not 0. */
void qr_weight_store_set_fingerprint(qr_weight_store *store, uint64_t fingerprint);
/* Takes the region and repacks on the pool's threads. Errors: NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_weight_store_load(qr_weight_store *store, qr_compute_pool *pool, quire_error *error);
void qr_weight_store_destroy(qr_weight_store *store);

const qr_weights *qr_weight_store_weights(const qr_weight_store *store); /* bytes are there after load */
uint64_t qr_weight_store_bytes(const qr_weight_store *store);
uint64_t qr_weight_store_parameters(const qr_weight_store *store);
qr_weight_type qr_weight_store_main_type(const qr_weight_store *store); /* of the file, by bytes */
uint64_t qr_weight_store_fingerprint(const qr_weight_store *store);     /* header and tensors; 0 before load unless set */
#endif
