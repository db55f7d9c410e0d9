/*
 * attention_rates - how fast the attention kernels read KV memory, beside the rate at which anything can.
 *
 * Prints JSON lines. The first is the ceiling: a kernel that only reads a pool far larger than the L2 cache. Then decode steps
 * of one layer over KV types, batches and contexts, blocks scattered over the pool; then other block sizes, lengths, heads,
 * shared prefixes, and prefill chunks. Times are CUDA events, the median of five batches of launches. A case says which of the
 * targets in docs/CUDA.md it is held to, if any; scripts/gpu-check judges them.
 *
 *     attention_rates [--smoke]      --smoke: tiny shapes, to try the program itself where time means nothing
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "attention/cuda/device_plan.h"
#include "attention/cuda/gpu_prims.h"

#define CHECK(call) check((int)(call), #call, __LINE__)
static void check(int code, const char *what, int line) {
    if (code == 0) return;
    fprintf(stderr, "attention_rates:%d: %s gave %d (%s)\n", line, what, code, cudaGetErrorString((cudaError_t)code));
    exit(1);
}

// ---- the ceiling, and memory to read ----

enum { THREADS = 256, READS = 4 };

__global__ void __launch_bounds__(THREADS) qr_fill_kernel(uint32_t *to, uint64_t words, uint32_t keep, uint32_t set) {
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < words; i += (uint64_t)gridDim.x * THREADS) {
        uint32_t x = (uint32_t)i * 2654435761u + 12345u;
        x ^= x >> 16, x *= 0x85ebca6bu, x ^= x >> 13, x *= 0xc2b2ae35u, x ^= x >> 16;
        to[i] = (x & keep) | set;
    }
}

__global__ void __launch_bounds__(THREADS) qr_read_kernel(const uint4 *from, uint64_t count, uint32_t *sink) {
    uint32_t sum = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)(THREADS * READS) + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * (THREADS * READS)) {
        uint4 v[READS];
#pragma unroll
        for (int k = 0; k < READS; k++) v[k] = i + k * THREADS < count ? from[i + k * THREADS] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < READS; k++) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (sum == 0x12345678u) *sink = sum;
}

template <class WORK> static double median_us(int repeats, WORK work) {
    std::vector<double> times;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    work(), work();
    for (int batch = 0; batch < 5; batch++) {
        float ms = 0;
        CHECK(cudaEventRecord(begin, 0));
        for (int i = 0; i < repeats; i++) work();
        CHECK(cudaEventRecord(end, 0));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        times.push_back((double)ms * 1e3 / repeats);
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[2];
}

struct gpu {
    uint8_t *pool;
    uint64_t pool_bytes;
    int processors;
    double stream_rate; // bytes per microsecond
    bool smoke;
};

static dim3 wide_grid(const gpu &g) { return dim3(g.smoke ? 2u : (unsigned)g.processors * 8); }

// f16 and bf16: small positive numbers of random mantissa. 8-bit: any codes but NaN; scales are filled apart.
static void fill_pool(const gpu &g, quire_kv_type type) {
    const bool eight = type == QUIRE_KV_INT8 || type == QUIRE_KV_FP8_E4M3;
    const uint32_t keep = type == QUIRE_KV_FP8_E4M3 ? 0xbfbfbfbfu : eight ? ~0u : 0x80ff80ffu;
    const uint32_t set = type == QUIRE_KV_BF16 ? 0x3e003e00u : type == QUIRE_KV_F16 ? 0x30003000u : 0u;
    CHECK(GPU_LAUNCH(qr_fill_kernel, wide_grid(g), dim3(THREADS), 0, (cudaStream_t)0, (uint32_t *)g.pool, g.pool_bytes / 4,
                     keep, set));
    CHECK(cudaDeviceSynchronize());
}

static void measure_ceiling(gpu &g) {
    uint32_t *sink;
    CHECK(cudaMalloc((void **)&sink, 64));
    const double us = median_us(g.smoke ? 1 : 5, [&] {
        CHECK(GPU_LAUNCH(qr_read_kernel, wide_grid(g), dim3(THREADS), 0, (cudaStream_t)0, (const uint4 *)g.pool,
                         g.pool_bytes / 16, sink));
    });
    CHECK(cudaFree(sink));
    g.stream_rate = (double)g.pool_bytes / us;
    printf("{\"name\":\"stream_read\",\"bytes\":%llu,\"us\":%.1f,\"tb_per_s\":%.3f}\n", (unsigned long long)g.pool_bytes, us,
           g.stream_rate * 1e-6);
}

// ---- one step of one layer ----

struct rate_case {
    const char *name;
    quire_kv_type type;
    uint32_t batch, context;
    uint32_t chunk = 1;  // rows of each sequence: 1 decode, more prefill, the last ones of the context
    uint32_t shared = 0; // tokens that all sequences have in common
    bool skewed = false; // lengths context, context/2, ... context/128 in turn
    uint32_t heads = 32, kv_heads = 8, head_dim = 128, block_tokens = 16;
    uint32_t layers = 1; // that a block of the pool holds; one of them is read
};

static const double TARGET_KV_BYTES = 0.5e9; // read by a step; less is held to no target

// The step's memory on the GPU: everything but the pool.
template <class T> static T *upload(const T *from, size_t count) {
    T *to;
    CHECK(cudaMalloc((void **)&to, (count + 1) * sizeof(T)));
    if (count) CHECK(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyHostToDevice));
    return to;
}

struct step {
    std::vector<uint32_t> row_sequence, row_position, table_begin;
    std::vector<quire_block_id> ids;
    uint64_t tokens_read = 0; // of different blocks
    double score_count = 0;   // pairs of row and token, for the arithmetic of prefill
    uint64_t block_stride = 0;
};

static uint32_t length_of(const rate_case &c, uint32_t sequence) {
    const uint32_t length = c.skewed ? c.context >> sequence % 8 : c.context;
    return std::max(length, c.chunk);
}

// Blocks of the pool in an order that is nothing like a run: an odd multiplier modulo a power of two.
struct scatter {
    uint32_t next = 1, mask;
    quire_block_id take() { return (next++ * 2654435761u) & mask; }
};

static step make_step(const rate_case &c, uint64_t block_stride, uint32_t block_count) {
    step s;
    scatter blocks;
    for (blocks.mask = 1; blocks.mask * 2 <= block_count; blocks.mask *= 2) {}
    blocks.mask -= 1;
    s.block_stride = block_stride;
    std::vector<quire_block_id> prefix;
    for (uint32_t i = 0; i < c.shared / c.block_tokens; i++) prefix.push_back(blocks.take());
    s.tokens_read = (uint64_t)prefix.size() * c.block_tokens;
    s.table_begin.push_back(0);
    for (uint32_t sequence = 0; sequence < c.batch; sequence++) {
        const uint32_t length = length_of(c, sequence), count = (length + c.block_tokens - 1) / c.block_tokens;
        for (uint32_t i = 0; i < count; i++) s.ids.push_back(i < prefix.size() ? prefix[i] : blocks.take());
        s.table_begin.push_back((uint32_t)s.ids.size());
        s.tokens_read += length - std::min<uint64_t>(length, prefix.size() * c.block_tokens);
        for (uint32_t i = length - c.chunk; i < length; i++) {
            s.row_sequence.push_back(sequence);
            s.row_position.push_back(i);
            s.score_count += i + 1;
        }
    }
    return s;
}

static bool is_eight_bit(quire_kv_type type) { return type == QUIRE_KV_INT8 || type == QUIRE_KV_FP8_E4M3; }

// Parts of one layer, block-major: per KV head K, V and for 8-bit types their scales, at 128-byte boundaries.
static std::vector<qr_cuda_part> make_parts(const rate_case &c, uint64_t *block_stride) {
    const uint32_t data = (c.block_tokens * c.head_dim * (is_eight_bit(c.type) ? 1 : 2) + 127) / 128 * 128;
    const uint32_t scales = is_eight_bit(c.type) ? (c.block_tokens * 4 + 127) / 128 * 128 : 0;
    std::vector<qr_cuda_part> parts;
    uint32_t at = 0;
    for (uint32_t head = 0; head < c.kv_heads; head++, at += 2 * data + 2 * scales)
        parts.push_back({at, at + data, at + 2 * data, at + 2 * data + scales});
    *block_stride = ((uint64_t)at * c.layers + 4095) / 4096 * 4096;
    return parts;
}

__global__ void __launch_bounds__(THREADS)
    qr_fill_scales_kernel(uint8_t *pool, uint64_t block_stride, const qr_cuda_part *parts, uint32_t kv_heads,
                          uint32_t block_tokens, uint32_t block_count) {
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < (uint64_t)block_count * kv_heads * block_tokens;
         i += (uint64_t)gridDim.x * THREADS) {
        const uint64_t block = i / (kv_heads * block_tokens), rest = i % (kv_heads * block_tokens);
        const qr_cuda_part part = parts[rest / block_tokens];
        uint8_t *base = pool + block * block_stride;
        ((float *)(base + part.key_scale))[rest % block_tokens] = 0.01f;
        ((float *)(base + part.value_scale))[rest % block_tokens] = 0.01f;
    }
}

// Planned once; run as often as asked.
struct runner {
    qr_cuda_shape shape;
    qr_cuda_launch launch;
    qr_cuda_plan *plan = nullptr;
    qr_cuda_plan_lists lists;
    qr_cuda_attn_params narrow = {}, wide = {};
    std::vector<void *> memory;

    template <class T> T *keep(T *pointer) {
        memory.push_back((void *)pointer);
        return pointer;
    }
    void run() {
        if (narrow.item_count) CHECK(qr_cuda_span_run(&shape, &launch, &narrow, false, nullptr));
        if (wide.item_count) CHECK(qr_cuda_span_run(&shape, &launch, &wide, true, nullptr));
        if (narrow.fold_count) CHECK(qr_cuda_fold_run(&shape, &narrow, nullptr));
    }
    ~runner() {
        for (void *m : memory) CHECK(cudaFree(m));
        qr_cuda_plan_destroy(plan);
    }
};

static void make_plan(runner &r, const rate_case &c, const step &s) {
    const uint32_t rows = (uint32_t)s.row_sequence.size(), spans = (c.context + QR_CUDA_SPAN_TOKENS - 1) / QR_CUDA_SPAN_TOKENS;
    r.shape = {c.heads, c.kv_heads, c.head_dim, c.block_tokens, c.type};
    quire_error error;
    if (qr_cuda_shape_check(&r.shape, &error) != QUIRE_OK) fprintf(stderr, "%s\n", error.text), exit(1);
    CHECK(qr_cuda_launch_query(&r.shape, &r.launch));
    const uint64_t cells = std::min<uint64_t>((uint64_t)rows * (spans + 1), 1u << 17);
    qr_cuda_plan_limits limits = {rows, c.batch, std::max(c.context, c.chunk), (uint32_t)std::max<uint64_t>(cells, rows)};
    if (qr_cuda_plan_create(&r.shape, &limits, &r.launch, &r.plan, &error) != QUIRE_OK)
        fprintf(stderr, "%s\n", error.text), exit(1);
    qr_attn_batch batch = {};
    batch.row_count = rows, batch.sequence_count = c.batch;
    batch.row_sequence = s.row_sequence.data(), batch.row_position = s.row_position.data();
    batch.table_begin = s.table_begin.data(), batch.block_ids = s.ids.data();
    qr_cuda_plan_make(r.plan, &batch, &r.lists);
}

static void make_params(runner &r, const gpu &g, const rate_case &c, const step &s, qr_cuda_part *parts) {
    const qr_cuda_plan_lists &l = r.lists;
    const size_t values = s.row_sequence.size() * c.heads * c.head_dim, cells = (size_t)std::max(l.cell_count, 1u) * c.heads;
    std::vector<uint16_t> q(values, c.type == QUIRE_KV_BF16 ? 0x3d80 : 0x2c00);
    qr_cuda_attn_params p = {};
    p.pool = g.pool, p.block_stride = s.block_stride, p.parts = parts;
    p.block_ids = r.keep(upload((const uint32_t *)s.ids.data(), s.ids.size()));
    p.rows = r.keep(upload(l.rows, l.row_count)), p.fold_rows = r.keep(upload(l.fold_rows, l.fold_count));
    p.q = r.keep(upload(q.data(), values)), p.out = r.keep(upload(q.data(), values));
    CHECK(cudaMalloc((void **)&p.cell_out, cells * c.head_dim * sizeof(float)));
    CHECK(cudaMalloc((void **)&p.cell_state, cells * 2 * sizeof(float)));
    r.keep(p.cell_out), r.keep(p.cell_state);
    p.fold_count = l.fold_count;
    p.head_count = c.heads, p.kv_head_count = c.kv_heads, p.group = c.heads / c.kv_heads;
    while ((1u << p.block_shift) < c.block_tokens) p.block_shift++;
    r.narrow = r.wide = p;
    r.narrow.items = r.keep(upload(l.narrow, l.narrow_count)), r.narrow.item_count = l.narrow_count;
    r.wide.items = r.keep(upload(l.wide, l.wide_count)), r.wide.item_count = l.wide_count;
}

// The target that a step is held to: none where sequences share or prefill, or where the KV memory read is small.
static const char *target_of(const rate_case &c, double kv_bytes) {
    if (c.chunk > 1 || c.shared) return "";
    if (c.batch == 1) return c.context == 131072 ? "one-128k" : "";
    if (kv_bytes < TARGET_KV_BYTES) return "";
    return c.skewed ? "skewed" : is_eight_bit(c.type) ? "8-bit" : "16-bit";
}

static void print_case(const gpu &g, const rate_case &c, const step &s, const runner &r, double us) {
    static const char *const TYPES[QUIRE_KV_TYPE_COUNT] = {"f32", "f16", "bf16", "int8", "fp8_e4m3"};
    const double token_bytes =
        2.0 * c.kv_heads * (c.head_dim * (is_eight_bit(c.type) ? 1 : 2) + (is_eight_bit(c.type) ? 4 : 0));
    const double bytes = token_bytes * (double)s.tokens_read, flops = 4.0 * s.score_count * c.heads * c.head_dim;
    printf(
        "{\"name\":\"%s\",\"kv\":\"%s\",\"batch\":%u,\"context\":%u,\"chunk\":%u,\"shared\":%u,\"skewed\":%s,\"heads\":%u,"
        "\"kv_heads\":%u,\"head_dim\":%u,\"block_tokens\":%u,\"layers\":%u,\"narrow\":%u,\"wide\":%u,\"cells\":%u,\"us\":%.1f,"
        "\"kv_bytes\":%.0f,\"tb_per_s\":%.3f,\"of_stream\":%.4f,\"tflops\":%.1f,\"target\":\"%s\"}\n",
        c.name, TYPES[c.type], c.batch, c.context, c.chunk, c.shared, c.skewed ? "true" : "false", c.heads, c.kv_heads,
        c.head_dim, c.block_tokens, c.layers, r.lists.narrow_count, r.lists.wide_count, r.lists.cell_count, us, bytes,
        bytes / us * 1e-6, bytes / us / g.stream_rate, flops / us * 1e-6, target_of(c, bytes));
    fflush(stdout);
}

static void measure(const gpu &g, const rate_case &c) {
    uint64_t block_stride;
    std::vector<qr_cuda_part> parts = make_parts(c, &block_stride);
    const uint32_t block_count = (uint32_t)std::min<uint64_t>(g.pool_bytes / block_stride, 1u << 30);
    const step s = make_step(c, block_stride, block_count);
    uint32_t scattered = 1;
    while (scattered * 2 <= block_count) scattered *= 2;
    if (s.tokens_read / c.block_tokens > scattered) return; // would read blocks twice, some from the cache
    runner r;
    qr_cuda_part *device_parts = r.keep(upload(parts.data(), parts.size()));
    if (is_eight_bit(c.type))
        CHECK(GPU_LAUNCH(qr_fill_scales_kernel, wide_grid(g), dim3(THREADS), 0, (cudaStream_t)0, g.pool, block_stride,
                         (const qr_cuda_part *)device_parts, c.kv_heads, c.block_tokens, block_count));
    make_plan(r, c, s);
    make_params(r, g, c, s, device_parts);
    const double us = median_us(g.smoke ? 1 : 10, [&] { r.run(); });
    print_case(g, c, s, r, us);
}

// ---- the list ----

static std::vector<rate_case> cases_of(quire_kv_type type, bool smoke) {
    std::vector<rate_case> cases;
    if (smoke) {
        cases.push_back({"decode", type, 2, 300});
        cases.push_back({"skewed", type, 9, 300, 1, 0, true});
        cases.push_back({"shared", type, 3, 300, 1, 256});
        cases.push_back({"prefill", type, 1, 64, 40});
        for (rate_case &c : cases) c.heads = 8, c.kv_heads = 2, c.head_dim = 64;
        return cases;
    }
    for (uint32_t context : {1024u, 4096u, 16384u, 65536u, 131072u})
        for (uint32_t batch : {1u, 4u, 16u, 64u, 256u})
            if ((uint64_t)batch * context <= 4u << 20) cases.push_back({"decode", type, batch, context});
    cases.push_back({"skewed", type, 64, 16384, 1, 0, true});
    cases.push_back({"shared", type, 64, 8192, 1, 6144});
    cases.push_back({"shared", type, 256, 4096, 1, 4096 - 256});
    // As in a model of 32 layers, whose blocks lie 2 MiB apart.
    cases.push_back({"layers", type, 32, 4096, 1, 0, false, 32, 8, 128, 16, 32});
    for (uint32_t tokens : {32u, 64u, 128u}) cases.push_back({"blocks", type, 64, 4096, 1, 0, false, 32, 8, 128, tokens});
    cases.push_back({"heads", type, 32, 4096, 1, 0, false, 32, 32, 128, 16}); // MHA
    cases.push_back({"heads", type, 64, 8192, 1, 0, false, 32, 1, 128, 16});  // MQA
    cases.push_back({"heads", type, 64, 4096, 1, 0, false, 64, 8, 128, 16});  // Llama-3 70B
    for (uint32_t dim : {64u, 80u, 96u, 256u}) cases.push_back({"head_dim", type, 64, 4096, 1, 0, false, 32, 8, dim, 16});
    for (uint32_t context : {2048u, 16384u}) cases.push_back({"prefill", type, 1, context, 2048});
    cases.push_back({"prefill", type, 1, 65536, 512});
    return cases;
}

int main(int argc, char **argv) {
    gpu g = {};
    g.smoke = argc > 1 && !strcmp(argv[1], "--smoke");
    size_t free_bytes, total_bytes;
    CHECK(cudaDeviceGetAttribute(&g.processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    g.pool_bytes = g.smoke ? 4 << 20 : std::min<uint64_t>((uint64_t)17 << 30, free_bytes / 4 * 3) / 4096 * 4096;
    CHECK(cudaMalloc((void **)&g.pool, g.pool_bytes));
    fill_pool(g, QUIRE_KV_F16);
    measure_ceiling(g);
#define RUN(type, stem) \
    fill_pool(g, type); \
    for (const rate_case &c : cases_of(type, g.smoke)) measure(g, c);
    QR_CUDA_KV_TYPES(RUN)
#undef RUN
    CHECK(cudaFree(g.pool));
    return 0;
}
