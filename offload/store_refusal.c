/* store_refusal.c - the words for why a store said no. */
#include "offload/store.h"

const char *qr_store_refusal_name(qr_store_refusal refusal) {
    static const char *const names[] = {
#define REFUSAL_NAME(name, text) text,
        QR_STORE_REFUSAL_LIST(REFUSAL_NAME)
#undef REFUSAL_NAME
    };
    return (unsigned)refusal < QR_STORE_REFUSAL_COUNT ? names[refusal] : "unknown";
}
