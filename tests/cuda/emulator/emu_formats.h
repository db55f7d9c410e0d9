/*
 * Number formats of the device as bit patterns: f16, bf16 and fp8 e4m3, to and from f32.
 *
 * Rounding is to nearest even, as cvt.rn does. NaN becomes the device's canonical NaN. formats_test.cc compares them with
 * NVIDIA's own headers.
 */
#pragma once
#include <cstdint>

float emu_f16_to_f32(uint16_t half);
uint16_t emu_f32_to_f16(float value);
float emu_bf16_to_f32(uint16_t bits);
uint16_t emu_f32_to_bf16(float value);
float emu_e4m3_to_f32(uint8_t bits);
// Saturating (cvt.rn.satfinite): everything past the largest finite value, infinity too, becomes +-448.
uint8_t emu_f32_to_e4m3(float value);
