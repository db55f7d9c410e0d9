/* tier_metrics.h - the part of the metrics page that is about the tiers below the pool. */
#ifndef QR_SERVER_TIER_METRICS_H
#define QR_SERVER_TIER_METRICS_H

#include "runtime/server/byte_buffer.h"
#include <quire/engine.h>

/* Every metric is there, with zeros, whether or not there is such a tier: dashboards need not know. */
void qr_tier_metrics_write(qr_bytes *page, const quire_engine_stats *stats);
#endif
