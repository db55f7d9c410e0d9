/*
 * The emulator's number formats against NVIDIA's own headers, whose host code runs anywhere: every code of each format, and
 * forty million floats with all exponents and the ties between codes.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/emulator/emu_formats.h"

static long compared, differing;

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static void same(uint32_t ours, uint32_t theirs, const char *what, uint32_t input) {
    compared++;
    if (ours != theirs && differing++ < 10) printf("%s(%08x): ours %08x, theirs %08x\n", what, input, ours, theirs);
}

static void check_float(uint32_t bits) {
    float f = float_of(bits);
    if (f != f) return;
    same(emu_f32_to_f16(f), __half_raw(__float2half_rn(f)).x, "f32_to_f16", bits);
    same(emu_f32_to_bf16(f), __nv_bfloat16_raw(__float2bfloat16_rn(f)).x, "f32_to_bf16", bits);
    same(emu_f32_to_e4m3(f), __nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E4M3), "f32_to_e4m3", bits);
}

static void check_codes() {
    for (uint32_t code = 0; code < 65536; code++) {
        __half_raw half;
        __nv_bfloat16_raw bfloat;
        half.x = bfloat.x = (unsigned short)code;
        float h = __half2float(__half(half)), b = __bfloat162float(__nv_bfloat16(bfloat));
        if (h == h) same(bits_of(emu_f16_to_f32((uint16_t)code)), bits_of(h), "f16_to_f32", code);
        if (b == b) same(bits_of(emu_bf16_to_f32((uint16_t)code)), bits_of(b), "bf16_to_f32", code);
    }
    for (uint32_t code = 0; code < 256; code++) {
        float f = __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E4M3)));
        if (f == f) same(bits_of(emu_e4m3_to_f32((uint8_t)code)), bits_of(f), "e4m3_to_f32", code);
    }
}

// Half way between two codes of a narrow format, and one bit to either side.
static void check_ties() {
    for (uint32_t code = 0; code < 65536; code++)
        for (int d = -1; d <= 1; d++) {
            check_float((code << 16) + 0x8000u + (uint32_t)d);
            check_float((code << 12) + 0x1000u + 0x38000000u + (uint32_t)d);
        }
}

int main() {
    check_codes();
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 331) check_float((uint32_t)bits);
    check_ties();
    printf("formats: %ld compared, %ld differ\n", compared, differing);
    return differing != 0;
}
