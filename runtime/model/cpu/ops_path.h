/* ops_path.h - the pieces that make one instruction set's qr_ops_path. Private to runtime/model/cpu.
 *
 * A path is a product file (matmul_<isa>.c), and ops_<isa>.c, which includes ops.inc and defines the table. Each file is
 * compiled with the flags of its instruction set (sources.cmake) and reached only through qr_ops_path_find.
 */
#ifndef QR_MODEL_CPU_OPS_PATH_H
#define QR_MODEL_CPU_OPS_PATH_H

#include "runtime/model/cpu/matmul.h"

/* Software prefetch distance of the weight stream: measured, it doubles the read rate of small machines. */
enum { QR_WEIGHTS_AHEAD = 4096 };
/* Elements of k that products with float weights take at a time for all rows: a panel's part and eight rows' stay in the
 * first cache. */
enum { QR_FLOAT_K_BLOCK = 256 };

extern const qr_ops_path qr_ops_scalar, qr_ops_avx2, qr_ops_avx512vnni;

void qr_quantize_scalar(qr_acts *acts, uint32_t row_begin, uint32_t row_end);
void qr_quantize_avx2(qr_acts *acts, uint32_t row_begin, uint32_t row_end);
void qr_quantize_avx512(qr_acts *acts, uint32_t row_begin, uint32_t row_end);

void qr_matmul_scalar(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                      void *scratch);
void qr_matmul_avx2(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                    void *scratch);
void qr_matmul_avx512(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                      void *scratch);

/* Loops over a constant count must be unrolled whole, or the arrays that stand for registers go to memory. */
#ifdef __clang__
#define QR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QR_UNROLL _Pragma("GCC unroll 16")
#endif
/* Keeps a value in a register here and work of later steps behind it: hoisted loads would push sums out to memory. */
#ifdef __AVX512F__
#define QR_PIN(vector) __asm__ volatile("" : "+v"(vector)) /* any of 32 */
#else
#define QR_PIN(vector) __asm__ volatile("" : "+x"(vector))
#endif
#define QR_KERNEL static inline __attribute__((always_inline))
#endif
