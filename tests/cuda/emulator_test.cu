/*
 * The emulator itself: small kernels with one mistake each, and what must be said about it in which build.
 *
 * A case runs in a child process, because an error ends the process. Its verdict is the child's output: nothing is "clean",
 * a kernel whose result differs says "wrong result", everything else is a message of the emulator or of a sanitizer.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "attention/cuda/gpu_prims.h"
#include "tests/cuda/emulator/emu_memory.h"

#if defined(EMU_TSAN_BUILD)
enum { BUILD = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { BUILD = 1 };
#else
enum { BUILD = 0 };
#endif

// ---- kernels: the mistake is chosen by a number, so that a case and its correct twin are one kernel ----

enum { THREADS = 64 };

// Threads exchange a word through shared memory. Wrong without the barrier.
__global__ void exchange(uint32_t *out, int mistake) {
    GPU_DYNAMIC_SHARED(shared);
    uint32_t *words = (uint32_t *)shared;
    words[threadIdx.x] = threadIdx.x;
    if (mistake == 0) __syncthreads();
    if (mistake == 2 && threadIdx.x < 7) __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = words[THREADS - 1 - threadIdx.x];
}

__global__ void exchange_in_warp(uint32_t *out, int mistake) {
    GPU_DYNAMIC_SHARED(shared);
    uint32_t *words = (uint32_t *)shared;
    words[threadIdx.x] = threadIdx.x;
    if (mistake == 0) __syncwarp();
    out[blockIdx.x * THREADS + threadIdx.x] = words[threadIdx.x ^ 31] ^ 31;
}

__global__ void shuffles(uint32_t *out, int mistake) {
    uint32_t value = threadIdx.x;
    if (mistake == 0) value = __shfl_xor_sync(~0u, value, 1) ^ 1;
    if (mistake == 1 && threadIdx.x % 2) value = __shfl_xor_sync(~0u, value, 2);
    if (mistake == 1 && threadIdx.x % 2 == 0) value = __shfl_xor_sync(~0u, value, 4);
    if (mistake == 2 && threadIdx.x % 32 < 16) value = __shfl_sync(0xffffu, value, 20);
    if (mistake == 3 && threadIdx.x % 32 < 16) value = __shfl_sync(0xffff0000u, value, 20);
    if (mistake == 4) {
        if (threadIdx.x % 32 == 3) return;
        value = __shfl_sync(~0u, value, 0);
    }
    out[blockIdx.x * THREADS + threadIdx.x] = value;
}

// mistake: words past the end of shared memory that thread 0 writes
__global__ void past_shared(uint32_t *out, int mistake) {
    GPU_DYNAMIC_SHARED(shared);
    if (threadIdx.x == 0 && mistake) ((uint32_t *)shared)[THREADS - 1 + mistake] = 1;
    out[blockIdx.x * THREADS + threadIdx.x] = threadIdx.x;
}

// Nothing was written to either memory; what a CTA leaves in its own is no other CTA's.
__global__ void unwritten(const uint32_t *fresh, uint32_t *out) {
    GPU_DYNAMIC_SHARED(shared);
    uint32_t *words = (uint32_t *)shared, i = blockIdx.x * THREADS + threadIdx.x;
    out[i] = words[threadIdx.x] == ~0u && fresh[i] == ~0u ? threadIdx.x : 1000;
    words[threadIdx.x] = 0;
}

__global__ void past_global(uint32_t *out, int mistake) {
    out[blockIdx.x * THREADS + threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 0 && mistake) out[gridDim.x * THREADS] = 1;
}

__global__ void copies(const uint32_t *in, uint32_t *out, int mistake) {
    GPU_DYNAMIC_SHARED(shared);
    uint4 *mine = (uint4 *)shared + threadIdx.x % 16;
    if (threadIdx.x < 16) {
        cp_async16(mistake == 3 ? (unsigned char *)mine + 4 : (unsigned char *)mine, in + 4 * threadIdx.x, 16);
        cp_async_commit();
        if (mistake != 1) cp_async_wait<0>();
        if (mistake == 2) { // into memory that is still to be read
            cp_async16(mine, in, 16);
            cp_async_commit();
        }
    }
    __syncthreads();
    uint32_t word = ((uint32_t *)shared)[threadIdx.x];
    if (threadIdx.x < 16 && mistake == 2) cp_async_wait<0>();
    out[blockIdx.x * THREADS + threadIdx.x] = word;
}

// Two CTAs leave words for the one that ends last. Correct only with a fence on both sides of the atomic.
__global__ void last_cta(uint32_t *out, uint32_t *words, int mistake) {
    if (threadIdx.x) return;
    words[blockIdx.x] = 5;
    if (mistake != 1) __threadfence();
    uint32_t before = atomicAdd(&words[8], 1u);
    if (mistake != 2) __threadfence();
    if (before == gridDim.x - 1)
        for (uint32_t i = 0; i < gridDim.x * THREADS; i++) out[i] = i % THREADS + words[0] - words[gridDim.x - 1];
}

__global__ void one_slot(uint32_t *out, int mistake) {
    out[blockIdx.x * THREADS + threadIdx.x] = threadIdx.x;
    if (mistake && threadIdx.x == 0) out[1] = 1; // by both CTAs, and the same value at that
}

__global__ void wide_load(const uint32_t *in, uint32_t *out, int mistake) {
    uint4 v = *(const uint4 *)(in + 4 * (threadIdx.x / 4) + mistake);
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
    out[blockIdx.x * THREADS + threadIdx.x] = words[threadIdx.x % 4] - mistake;
}

__global__ void named(uint32_t *out, int mistake) {
    GPU_DYNAMIC_SHARED(shared);
    uint32_t *words = (uint32_t *)shared;
    words[threadIdx.x] = threadIdx.x;
    emu_barrier(3, mistake ? THREADS + 32 : THREADS, __FILE__, __LINE__);
    out[blockIdx.x * THREADS + threadIdx.x] = words[THREADS - 1 - threadIdx.x];
}

// ---- running one kernel on two CTAs ----

enum { CTAS = 2, SHARED_BYTES = THREADS * 4 };

struct buffers {
    uint32_t *in, *out;
    uint32_t host[CTAS * THREADS];
    buffers() {
        for (uint32_t i = 0; i < CTAS * THREADS; i++) host[i] = i;
        cudaMalloc(&in, sizeof host), cudaMalloc(&out, sizeof host);
        cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    }
    ~buffers() { cudaFree(in), cudaFree(out); }
    // Every kernel, run without its mistake, leaves i or 63 - i of its own CTA.
    void judge(bool reversed) {
        cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
        for (uint32_t i = 0; i < CTAS * THREADS; i++)
            if (host[i] != (reversed ? THREADS - 1 - i % THREADS : i % THREADS)) {
                printf("wrong result\n");
                return;
            }
    }
};

#define LAUNCH(kernel, ...) GPU_LAUNCH(kernel, dim3(CTAS), dim3(THREADS), SHARED_BYTES, (cudaStream_t)0, __VA_ARGS__)

template <void (*KERNEL)(uint32_t *, int), int MISTAKE, bool REVERSED> static void on_out() {
    buffers b;
    LAUNCH(KERNEL, b.out, MISTAKE);
    b.judge(REVERSED);
}
template <void (*KERNEL)(const uint32_t *, uint32_t *, int), int MISTAKE> static void on_in_and_out() {
    buffers b;
    LAUNCH(KERNEL, (const uint32_t *)b.in, b.out, MISTAKE);
    b.judge(false);
}
template <int MISTAKE> static void on_last_cta() {
    buffers b;
    cudaMemset(b.in, 0, 64);
    LAUNCH(last_cta, b.out, b.in, MISTAKE);
    b.judge(false);
}

// Memory that was used before is as new as any other.
static void nobody_wrote() {
    buffers b;
    for (int round = 0; round < 3; round++) {
        uint32_t *fresh;
        cudaMalloc(&fresh, sizeof b.host);
        LAUNCH(unwritten, (const uint32_t *)fresh, b.out);
        b.judge(false);
        cudaMemset(fresh, 0, sizeof b.host);
        cudaFree(fresh);
    }
}

// ---- the runtime ----

static void expect(bool holds, const char *what) {
    if (!holds) printf("not so: %s\n", what);
}

static void launch_limits() {
    buffers b;
    cudaStream_t none = 0;
    expect(GPU_LAUNCH(past_global, dim3(1), dim3(1056), 0, none, b.out, 0) == cudaErrorInvalidConfiguration, "1056 threads");
    expect(GPU_LAUNCH(past_global, dim3(1), dim3(40), 0, none, b.out, 0) == cudaErrorInvalidConfiguration, "half a warp");
    expect(GPU_LAUNCH(past_global, dim3(1, 65536), dim3(32), 0, none, b.out, 0) == cudaErrorInvalidConfiguration, "grid.y");
    expect(GPU_LAUNCH(past_shared, dim3(1), dim3(64), 65536, none, b.out, 0) == cudaErrorInvalidValue, "64 KiB without asking");
    cudaFuncSetAttribute(past_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    expect(GPU_LAUNCH(past_shared, dim3(1), dim3(64), 65536, none, b.out, 0) == cudaErrorInvalidValue, "nobody fetched it");
    expect(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess, "fetched once");
    expect(GPU_LAUNCH(past_shared, dim3(1), dim3(64), 65536, none, b.out, 0) == cudaSuccess, "64 KiB after asking");
    cudaDeviceSynchronize();
}

// Host memory full of 0x01, which copies of `in` turn into 0, 1, 2 ...
struct pinned_words {
    uint32_t *words;
    explicit pinned_words(size_t bytes) { cudaMallocHost(&words, bytes), memset(words, 1, bytes); }
    ~pinned_words() { cudaFreeHost(words); }
    bool arrived() const { return words[5] == 5; }
};

static void lazy_stream() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    pinned_words pinned(sizeof b.host);
    cudaStream_t stream;
    cudaEvent_t event;
    cudaStreamCreate(&stream), cudaEventCreate(&event);
    expect(cudaEventQuery(event) == cudaSuccess, "an event that was never recorded");
    for (int round = 0; round < 2; round++) {
        memset(pinned.words, 1, sizeof b.host);
        cudaMemcpyAsync(pinned.words, b.in, sizeof b.host, cudaMemcpyDeviceToHost, stream);
        cudaEventRecord(event, stream);
        expect(!pinned.arrived(), "a copy has not run before anybody waits");
        expect(cudaEventQuery(event) == cudaErrorNotReady && !pinned.arrived(), "the first query runs nothing");
        expect(cudaEventQuery(event) == cudaErrorNotReady && pinned.arrived(), "the second runs one piece");
        expect(cudaEventQuery(event) == cudaSuccess, "the event completes");
    }
    expect(cudaGetLastError() == cudaErrorNotReady, "the runtime remembers even this as an error");
    cudaEventDestroy(event), cudaStreamDestroy(stream);
}

static void asked_streams() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    pinned_words pinned(sizeof b.host);
    cudaStream_t stream, idle;
    cudaStreamCreate(&stream), cudaStreamCreate(&idle);
    for (int round = 0; round < 2; round++) {
        memset(pinned.words, 1, sizeof b.host);
        cudaMemcpyAsync(pinned.words, b.in, sizeof b.host, cudaMemcpyDeviceToHost, stream);
        cudaMemcpyAsync(b.out, b.in, sizeof b.host, cudaMemcpyDeviceToDevice, stream);
        for (int i = 0; i < 9; i++) expect(cudaStreamQuery(idle) == cudaSuccess, "an idle stream has nothing to do");
        expect(!pinned.arrived(), "and says nothing of another");
        expect(cudaStreamQuery(stream) == cudaErrorNotReady && !pinned.arrived(), "the first query runs nothing");
        expect(cudaStreamQuery(stream) == cudaErrorNotReady && pinned.arrived(), "the second runs one piece");
        expect(cudaStreamQuery(stream) == cudaSuccess, "all is done");
    }
    cudaStreamDestroy(stream), cudaStreamDestroy(idle);
    expect(cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle, "no such stream");
}

// Ready means that the bytes are there, in whatever order streams run; and what may overtake, overtakes now and then.
static void random_streams() {
    emu_opt.streams = EMU_STREAMS_RANDOM;
    buffers b;
    pinned_words first(sizeof b.host), second(sizeof b.host);
    cudaStream_t streams[2];
    cudaEvent_t events[2];
    int overtaken = 0, at_once = 0, late = 0;
    for (int i = 0; i < 2; i++) cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), cudaEventCreate(&events[i]);
    for (int round = 0; round < 200; round++) {
        memset(first.words, 1, sizeof b.host), memset(second.words, 1, sizeof b.host);
        cudaMemcpyAsync(first.words, b.in, sizeof b.host, cudaMemcpyDeviceToHost, streams[0]);
        cudaEventRecord(events[0], streams[0]);
        at_once += first.arrived();
        if (round % 2) cudaStreamWaitEvent(streams[1], events[0]);
        cudaMemcpyAsync(second.words, b.in, sizeof b.host, cudaMemcpyDeviceToHost, streams[1]);
        cudaEventRecord(events[1], streams[1]);
        while (cudaEventQuery(events[1]) == cudaErrorNotReady) late += second.arrived();
        expect(second.arrived(), "ready, and the bytes are there");
        if (round % 2) expect(first.arrived(), "the second waited for the first");
        else overtaken += !first.arrived();
        while (cudaEventQuery(events[0]) == cudaErrorNotReady) continue;
        expect(first.arrived(), "ready, and the bytes are there");
    }
    expect(overtaken > 10 && overtaken < 90, "streams overtake each other, not always");
    expect(at_once > 20 && at_once < 180 && late > 20, "work is done before it is waited for, and later than asked for");
    for (int i = 0; i < 2; i++) cudaEventDestroy(events[i]), cudaStreamDestroy(streams[i]);
}

static void destroying_waits_for_nothing() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    pinned_words pinned(sizeof b.host);
    cudaStream_t stream;
    cudaEvent_t event;
    cudaStreamCreate(&stream), cudaEventCreate(&event);
    cudaMemcpyAsync(pinned.words, b.in, sizeof b.host, cudaMemcpyDeviceToHost, stream);
    cudaEventRecord(event, stream);
    cudaEventDestroy(event), cudaStreamDestroy(stream);
    expect(!pinned.arrived(), "nothing has run");
    cudaDeviceSynchronize();
    expect(pinned.arrived(), "nothing was lost");
}

// The default stream and streams that do not say "non-blocking" follow each other; cudaMemcpy waits for no others.
static void default_stream() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    for (int blocking = 0; blocking < 2; blocking++) {
        buffers b;
        pinned_words pinned(sizeof b.host);
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, blocking ? cudaStreamDefault : cudaStreamNonBlocking);
        cudaMemcpyAsync(pinned.words, b.in, sizeof b.host, cudaMemcpyDeviceToHost, stream);
        cudaMemcpy(b.host, b.in, 16, cudaMemcpyDeviceToHost);
        expect(pinned.arrived() == blocking, "cudaMemcpy waits for blocking streams");
        cudaMemsetAsync(b.out, 7, sizeof b.host);
        cudaMemcpyAsync(pinned.words, b.out, sizeof b.host, cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        expect((pinned.words[5] == 0x07070707) == blocking, "a blocking stream waits for the default one");
        cudaStreamDestroy(stream);
    }
}

static void recorded_again() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    pinned_words pinned(sizeof b.host);
    cudaStream_t first, second, third;
    cudaEvent_t event;
    for (cudaStream_t *s : {&first, &second, &third}) cudaStreamCreateWithFlags(s, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    cudaMemcpyAsync(b.out, b.in, sizeof b.host, cudaMemcpyDeviceToDevice, first);
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(third, event);
    cudaEventRecord(event, second);
    expect(cudaEventSynchronize(event) == cudaSuccess, "the newest record has nothing before it");
    cudaMemcpyAsync(pinned.words, b.out, sizeof b.host, cudaMemcpyDeviceToHost, third);
    cudaStreamSynchronize(third);
    expect(pinned.arrived(), "a wait is for the record of its time");
    cudaEventDestroy(event);
    for (cudaStream_t s : {first, second, third}) cudaStreamDestroy(s);
}

static void unregistered_too_early() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    static char memory[4096];
    cudaHostRegister(memory, sizeof memory, 0);
    cudaMemcpyAsync(memory, b.in, 64, cudaMemcpyDeviceToHost);
    cudaHostUnregister(memory);
    cudaDeviceSynchronize();
}

static void waiting_streams() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    cudaStream_t first, second;
    cudaEvent_t event;
    cudaStreamCreate(&first), cudaStreamCreate(&second), cudaEventCreate(&event);
    cudaMemcpyAsync(b.out, b.in, sizeof b.host, cudaMemcpyDeviceToDevice, first);
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event);
    cudaMemcpyAsync(b.host, b.out, sizeof b.host, cudaMemcpyDeviceToHost, second);
    b.host[9] = 0;
    cudaStreamSynchronize(second);
    expect(b.host[9] == 9, "the second stream waited for the first");
    cudaEventDestroy(event), cudaStreamDestroy(first), cudaStreamDestroy(second);
}

static void copy_direction() {
    buffers b;
    expect(cudaMemcpy(b.host, b.out, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidMemcpyDirection, "direction");
    expect(cudaMemcpy(b.host, b.out, 16, cudaMemcpyDefault) == cudaSuccess, "default direction");
}

static void registered_twice() {
    static char memory[8192];
    expect(cudaHostRegister(memory, 4096, 0) == cudaSuccess, "first");
    expect(cudaHostRegister(memory + 100, 100, 0) == cudaErrorHostMemoryAlreadyRegistered, "inside of it");
    expect(cudaHostUnregister(memory + 100) == cudaErrorHostMemoryNotRegistered, "not a beginning");
    expect(cudaHostUnregister(memory) == cudaSuccess, "first given back");
}

static void copy_past_end() {
    buffers b;
    cudaMemcpy(b.out + 8, b.host, sizeof b.host, cudaMemcpyHostToDevice);
}

static void copy_from_freed() {
    emu_opt.streams = EMU_STREAMS_LAZY;
    buffers b;
    uint32_t *pinned;
    cudaMallocHost(&pinned, sizeof b.host);
    cudaMemcpyAsync(pinned, b.in, sizeof b.host, cudaMemcpyDeviceToHost, (cudaStream_t)0);
    emu_device_free(b.in); // cudaFree waits, as on a device; a pool that hands memory out again does not
    b.in = nullptr;
    cudaDeviceSynchronize();
}

static void host_touch() {
    buffers b;
    volatile uint32_t *on_device = b.out;
    *on_device = 1;
}

static void bank_conflicts() {
    emu_collective op = {};
    emu_ldmatrix lanes[32] = {};
    op.mask = ~0u;
    for (int i = 0; i < 32; i++) {
        lanes[i].matrix_count = 4, lanes[i].address = (void *)(uintptr_t)(i < 8 ? 128 * i : 16 * i);
        op.argument[i] = &lanes[i];
    }
    emu_combine_ldmatrix(op);
    expect(emu_counted.ldmatrix_phases == 4 && emu_counted.bank_conflicts == 7, "eight rows in one bank group, then none");
}

// ---- cases ----

struct test_case {
    const char *name;
    void (*run)();
    const char *says[3]; // plain, ASan + UBSan, TSan; null: clean, "*": anything
};

static const char RACE[] = "data race", WRONG[] = "wrong result";

#define EVERYWHERE(message) \
    { message, message, message }
static const test_case cases[] = {
    {"exchange", on_out<exchange, 0, true>, {}},
    {"no barrier", on_out<exchange, 1, true>, {WRONG, WRONG, RACE}},
    {"barrier of some threads", on_out<exchange, 2, true>, {"deadlock", "deadlock", "*"}},
    {"exchange in a warp", on_out<exchange_in_warp, 0, false>, {}},
    {"no __syncwarp", on_out<exchange_in_warp, 1, false>, {WRONG, WRONG, RACE}},
    {"shuffle", on_out<shuffles, 0, false>, {}},
    {"shuffles in two branches", on_out<shuffles, 1, false>, EVERYWHERE("warp divergence")},
    {"shuffle from outside of the mask", on_out<shuffles, 2, false>, EVERYWHERE("not in mask")},
    {"lane outside of its mask", on_out<shuffles, 3, false>, EVERYWHERE("is not in the mask")},
    {"mask names an exited lane", on_out<shuffles, 4, false>, EVERYWHERE("exited")},
    {"shared memory", on_out<past_shared, 0, false>, {}},
    {"memory that nobody wrote", nobody_wrote, {}},
    {"one word past shared memory",
     on_out<past_shared, 1, false>,
     {"shared memory written", "use-after-poison", "shared memory written"}},
    {"global memory", on_out<past_global, 0, false>, {}},
    {"one word past global memory", on_out<past_global, 1, false>, {"*", "heap-buffer-overflow", "*"}},
    {"cp.async", on_in_and_out<copies, 0>, {}},
    {"cp.async without wait", on_in_and_out<copies, 1>, EVERYWHERE("not waited for")},
    {"cp.async into memory in use", on_in_and_out<copies, 2>, {"*", "*", RACE}},
    {"cp.async to four bytes off", on_in_and_out<copies, 3>, EVERYWHERE("misaligned cp.async")},
    {"fences on both sides of an atomic", on_last_cta<0>, {}},
    {"no fence before an atomic", on_last_cta<1>, {nullptr, nullptr, RACE}},
    {"no fence after an atomic", on_last_cta<2>, {nullptr, nullptr, RACE}},
    {"a slot for each CTA", on_out<one_slot, 0, false>, {}},
    {"two CTAs write one slot", on_out<one_slot, 1, false>, {nullptr, nullptr, RACE}},
    {"16-byte loads", on_in_and_out<wide_load, 0>, {}},
    {"16-byte loads four bytes off", on_in_and_out<wide_load, 1>, {nullptr, "misaligned address", nullptr}},
    {"named barrier", on_out<named, 0, true>, {}},
    {"named barrier of too many threads", on_out<named, 1, true>, EVERYWHERE("deadlock")},
    {"launch limits", launch_limits, {}},
    {"lazy stream", lazy_stream, {}},
    {"streams that are asked", asked_streams, {}},
    {"random streams", random_streams, {}},
    {"streams that wait for each other's work", waiting_streams, {}},
    {"streams and events destroyed with work left", destroying_waits_for_nothing, {}},
    {"the default stream", default_stream, {}},
    {"an event recorded again", recorded_again, {}},
    {"direction of copies", copy_direction, {}},
    {"memory registered twice", registered_twice, {}},
    {"copy past the end", copy_past_end, EVERYWHERE("past device memory")},
    {"copy from memory given back", copy_from_freed, EVERYWHERE("given back before the copy ran")},
    {"copy to memory no longer registered", unregistered_too_early, EVERYWHERE("given back before the copy ran")},
    {"host code touches device memory", host_touch, {nullptr, "use-after-poison", nullptr}},
    {"bank conflicts", bank_conflicts, {}},
};

static std::string output_of(void (*run)()) {
    int ends[2];
    if (pipe(ends)) return "no pipe";
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1), dup2(ends[1], 2);
        run();
        fflush(stdout);
        _exit(0);
    }
    close(ends[1]);
    std::string output;
    char buffer[512];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) output.append(buffer, (size_t)n);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return output;
}

static bool case_holds(const test_case &c) {
    const char *wanted = c.says[BUILD];
    std::string output = output_of(c.run);
    bool holds = !wanted ? output.empty() : !strcmp(wanted, "*") || output.find(wanted) != std::string::npos;
    if (!holds) printf("%s: want '%s', got '%s'\n", c.name, wanted ? wanted : "", output.substr(0, 2000).c_str());
    return holds;
}

int main() {
    int wrong = 0;
    for (const test_case &c : cases) wrong += !case_holds(c);
    printf("emulator: %zu cases, %d wrong\n", sizeof cases / sizeof cases[0], wrong);
    return wrong != 0;
}
