/*
 * kernel_facts - what the sources know about each span kernel and its machine code does not: one line per kernel, name and
 * numbers separated by tabs, for scripts/cuda_gates.
 *
 *     kernel_facts SHARED_BYTES_MAX     the most shared memory that a CTA of the GPU may have
 */
#include <stdio.h>
#include <stdlib.h>

#include "attention/cuda/launch_internal.h"
#include "attention/cuda/span_kernel.cuh"

// The number of warps that span_query() takes.
template <int KV, int DIM, bool WIDE> static int warps_for(int shared_bytes_max) {
    int count = QR_CUDA_CTA_THREADS / 32;
    while (!WIDE && count > 1 && span_shared<KV, DIM, WIDE>::bytes(count) > shared_bytes_max) count--;
    return count;
}

template <int KV, int DIM, bool WIDE> static void print(int shared_bytes_max) {
    using stage = span_stage<KV, DIM, WIDE>;
    const int warps = warps_for<KV, DIM, WIDE>(shared_bytes_max);
    const int scales = span_traits<KV, DIM>::EIGHT_BIT ? 2 * stage::STEP * 4 : 0;
    printf("qr_span_kernel<%d, %d, %s>\tkv=%d\tdim=%d\twide=%d\twarps=%d\tshared_bytes=%d\tstage_count=%d\tstage_bytes=%d\n",
           KV, DIM, WIDE ? "true" : "false", KV, DIM, WIDE, warps, span_shared<KV, DIM, WIDE>::bytes(warps), stage::COUNT,
           2 * stage::STEP * span_traits<KV, DIM>::ROW_BYTES + scales);
}

template <int KV> static void print_type(int shared_bytes_max) {
#define PRINT(DIM) print<KV, DIM, false>(shared_bytes_max), print<KV, DIM, true>(shared_bytes_max);
    QR_CUDA_HEAD_DIMS(PRINT)
#undef PRINT
}

int main(int argc, char **argv) {
    const int shared_bytes_max = argc > 1 ? atoi(argv[1]) : 227 << 10;
#define PRINT(KV, stem) print_type<KV>(shared_bytes_max);
    QR_CUDA_KV_TYPES(PRINT)
#undef PRINT
    return 0;
}
