/*
 * Addresses of PTX operands, for opcodes outside of ptx_memory.cc that read shared memory.
 */
#pragma once
#include "tests/cuda/emulator/ptx_program.h"

// Host pointer of a shared address; the access must lie inside of the CTA's shared memory.
void *ptx_shared_pointer(const ptx_exec &exec, const ptx_instruction &instruction, const ptx_operand &operand, size_t bytes);
