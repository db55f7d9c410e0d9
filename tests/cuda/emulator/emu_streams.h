/*
 * Streams and events of the emulated runtime, for its other calls. A stream is a queue of functions; an event is a place in
 * one. When queued work runs is up to EMU_STREAMS, within what CUDA promises: code that needs more than that must fail.
 */
#pragma once
#include <functional>

#include "tests/cuda/emulator/include/cuda_runtime_api.h"

// Remembers what is no success for cudaGetLastError, "not ready" too, as the runtime does. Returns its argument.
cudaError_t emu_error(cudaError_t e);

// Work for the stream, null: the default stream.
cudaError_t emu_stream_push(cudaStream_t stream, std::function<void()> work);
