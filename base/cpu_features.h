/* cpu_features.h - what this processor and kernel let us use. Asked once by the caller and passed on; no global. */
#ifndef QR_BASE_CPU_FEATURES_H
#define QR_BASE_CPU_FEATURES_H

#include <stdbool.h>

typedef struct qr_cpu_features {
    bool avx2;        /* AVX2, FMA and F16C, and the OS saves ymm */
    bool avx512;      /* F, BW, DQ, VL and the OS saves zmm */
    bool avx512_vnni; /* avx512 and VNNI */
    bool amx_int8;    /* AMX-TILE and INT8, XCR0 has the state and the kernel granted it to this process */
    char model[64];   /* processor name as the system gives it */
} qr_cpu_features;

/* amx_int8 asks the kernel for permission, which threads started later inherit. */
void qr_cpu_features_detect(qr_cpu_features *features);
/* Cores that this process may run on: affinity and cgroup quota counted. At least 1. */
unsigned qr_cpu_count(void);
#endif
