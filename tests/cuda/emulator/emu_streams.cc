// The runtime API: streams and events. What runs when, by EMU_STREAMS:
//
// lazy    Nothing before somebody waits. A query answers "not ready" once before anything runs; each further one of the same
//         work lets its stream do one piece first. So polling ends, sees every state in between, and whoever takes "not
//         ready" for "ready", or asks the wrong stream, finds the old bytes.
// eager   Everything at once: bytes that were to be read later may be overwritten already.
// random  Every call lets some stream do some of its work, before it or after it: streams overtake each other at any place.
//
// Destroying a stream or an event waits for nothing.
#include "tests/cuda/emulator/emu_streams.h"

#include <time.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "tests/cuda/emulator/emu_core.h"

struct CUstream_st {
    bool blocking; // ordered with the default stream, both ways
    std::deque<std::function<void()>> work;
    unsigned long pushed, ran; // pieces, ever
    bool asked;                // since its last piece was pushed
    bool destroyed;
};

// A place in a stream. What is queued and names it keeps it, not the event.
struct event_record {
    cudaStream_t stream;
    bool reached, asked;
    double ms;
};
struct CUevent_st {
    std::shared_ptr<event_record> newest; // null: never recorded
};

static CUstream_st default_stream = {};
static std::vector<cudaStream_t> streams = {&default_stream}; // oldest first; destroyed ones too while they have work
static cudaError_t last_error;

cudaError_t emu_error(cudaError_t e) {
    if (e != cudaSuccess) last_error = e;
    return e;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

// ---- running queued work ----

static void step(cudaStream_t stream) {
    if (stream->work.empty()) emu_fail("stream", 0, "two streams wait for each other");
    std::function<void()> next = std::move(stream->work.front());
    stream->work.pop_front();
    next();
    stream->ran++;
}

static void run_until(cudaStream_t stream, unsigned long pieces) {
    while (stream->ran < pieces) step(stream);
}

static void drain(cudaStream_t stream) { run_until(stream, stream->pushed); }

static unsigned draw(unsigned below) {
    static unsigned state = emu_opt.seed * 2654435761u + 1;
    state = state * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)state * below >> 32);
}

// EMU_STREAMS=random: up to three pieces of one stream.
static void let_somebody_run() {
    if (emu_opt.streams != EMU_STREAMS_RANDOM) return;
    cudaStream_t stream = streams[draw((unsigned)streams.size())];
    for (unsigned pieces = draw(4); pieces && !stream->work.empty(); pieces--) step(stream);
}

// A query: what may happen before its answer. `again`: the same was asked before, and "not ready" was the answer.
static void let_run_before_answer(cudaStream_t stream, bool again) {
    if (emu_opt.streams == EMU_STREAMS_RANDOM ? draw(2) : again) step(stream);
}

// ---- streams ----

// The stream as its owner knows it; null when there is no such stream.
static cudaStream_t find(cudaStream_t stream) {
    if (!stream) return &default_stream;
    auto at = std::find(streams.begin(), streams.end(), stream);
    return at == streams.end() || stream->destroyed ? nullptr : stream;
}

// Forgets destroyed streams once nothing is queued anywhere: queued work may name them.
static void bury() {
    for (cudaStream_t stream : streams)
        if (!stream->work.empty()) return;
    auto gone = [](cudaStream_t stream) {
        const bool destroyed = stream->destroyed;
        if (destroyed) delete stream;
        return destroyed;
    };
    streams.erase(std::remove_if(streams.begin(), streams.end(), gone), streams.end());
}

// Must the work of one come after what the other was given before? The default stream and blocking ones follow each other.
static bool follows(cudaStream_t stream, cudaStream_t other) {
    if (stream == other || other->work.empty()) return false;
    return stream == &default_stream ? other->blocking : stream->blocking && other == &default_stream;
}

static void push(cudaStream_t stream, std::function<void()> work) {
    stream->work.push_back(std::move(work));
    stream->pushed++;
    stream->asked = false;
}

cudaError_t emu_stream_push(cudaStream_t stream, std::function<void()> work) {
    stream = find(stream);
    if (!stream) return emu_error(cudaErrorInvalidResourceHandle);
    for (cudaStream_t other : streams) {
        const unsigned long pieces = other->pushed;
        if (follows(stream, other)) push(stream, [=] { run_until(other, pieces); });
    }
    push(stream, std::move(work));
    if (emu_opt.streams == EMU_STREAMS_EAGER) drain(stream);
    let_somebody_run();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    streams.push_back(*stream = new CUstream_st{});
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

// What it still has to do is done whenever the device gets to it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (!stream || !find(stream)) return emu_error(cudaErrorInvalidResourceHandle);
    stream->destroyed = true;
    bury();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    stream = find(stream);
    if (!stream) return emu_error(cudaErrorInvalidResourceHandle);
    drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    stream = find(stream);
    if (!stream) return emu_error(cudaErrorInvalidResourceHandle);
    if (!stream->work.empty()) let_run_before_answer(stream, stream->asked);
    cudaError_t answer = stream->work.empty() ? cudaSuccess : cudaErrorNotReady;
    stream->asked = true;
    let_somebody_run();
    return emu_error(answer);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    return emu_stream_push(stream, [=] { function(data); });
}

cudaError_t cudaDeviceSynchronize(void) {
    for (cudaStream_t stream : streams) drain(stream);
    bury();
    return cudaSuccess;
}

// ---- events ----

static double now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool pending(const event_record *record) { return record && !record->reached; }

// Runs the record's stream until it is reached.
static void wait_for(const event_record &record) {
    while (!record.reached) step(record.stream);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = new CUevent_st{};
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    stream = find(stream);
    if (!stream) return emu_error(cudaErrorInvalidResourceHandle);
    auto record = std::make_shared<event_record>(event_record{stream, false, false, 0});
    event->newest = record;
    return emu_stream_push(stream, [=] { record->reached = true, record->ms = now_ms(); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    event_record *record = event->newest.get();
    if (pending(record)) let_run_before_answer(record->stream, record->asked);
    cudaError_t answer = pending(record) ? cudaErrorNotReady : cudaSuccess;
    if (record) record->asked = true;
    let_somebody_run();
    return emu_error(answer);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->newest) wait_for(*event->newest);
    return cudaSuccess;
}

// Waits for the newest record of this moment, not for later ones.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    std::shared_ptr<event_record> record = event->newest;
    if (!find(stream)) return emu_error(cudaErrorInvalidResourceHandle);
    return pending(record.get()) ? emu_stream_push(stream, [=] { wait_for(*record); }) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (!start->newest || !end->newest) return emu_error(cudaErrorInvalidResourceHandle);
    if (pending(start->newest.get()) || pending(end->newest.get())) return emu_error(cudaErrorNotReady);
    *ms = (float)(end->newest->ms - start->newest->ms);
    return cudaSuccess;
}
