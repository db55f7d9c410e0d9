#include "tests/cuda/attention_world.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

void world_fail(const char *file, int line, const char *call, int status) {
    printf("%s:%d: %s gave %d (%s)\n", file, line, call, status, cudaGetErrorString((cudaError_t)status));
    exit(1);
}

// ---- formats ----

// Nearest multiple of a power of two, even on ties.
static double round_to(double x, int exponent) { return ldexp(nearbyint(ldexp(x, -exponent)), exponent); }

// x with `digits` mantissa bits after the first, exponents from min_exponent on.
static double round_float(double x, int digits, int min_exponent) {
    if (x == 0 || !std::isfinite(x)) return x;
    int e;
    frexp(x, &e);
    return round_to(x, std::max(e - 1, min_exponent) - digits);
}

static uint32_t encode(double x, int digits, int bias) {
    double magnitude = fabs(x);
    uint32_t sign = std::signbit(x) ? 1 : 0;
    int e;
    frexp(magnitude, &e);
    uint32_t bits;
    if (magnitude < ldexp(1, 1 - bias)) bits = (uint32_t)ldexp(magnitude, bias - 1 + digits);
    else bits = (uint32_t)(e - 1 + bias) << digits | ((uint32_t)ldexp(magnitude, digits - (e - 1)) & ((1u << digits) - 1));
    return sign << 31 | bits;
}

static double decode(uint32_t bits, int digits, int bias, int exponent_bits) {
    uint32_t e = bits >> digits & ((1u << exponent_bits) - 1), m = bits & ((1u << digits) - 1);
    return e ? ldexp((1u << digits) + m, (int)e - bias - digits) : ldexp(m, 1 - bias - digits);
}

uint16_t world_to_f16(double x) {
    uint32_t v = encode(round_float(x, 10, -14), 10, 15);
    return (uint16_t)(v >> 16 | (v & 0x7fff));
}
double world_from_f16(uint16_t bits) {
    if ((bits & 0x7c00) == 0x7c00) return bits & 0x3ff ? NAN : bits >> 15 ? -INFINITY : INFINITY;
    return (bits >> 15 ? -1 : 1) * decode(bits & 0x7fffu, 10, 15, 5);
}
uint16_t world_to_bf16(double x) {
    uint32_t v = encode(round_float(x, 7, -126), 7, 127);
    return (uint16_t)(v >> 16 | (v & 0x7fff));
}
double world_from_bf16(uint16_t bits) {
    if ((bits & 0x7f80) == 0x7f80) return bits & 0x7f ? NAN : bits >> 15 ? -INFINITY : INFINITY;
    return (bits >> 15 ? -1 : 1) * decode(bits & 0x7fffu, 7, 127, 8);
}
uint8_t world_to_e4m3(double x) {
    uint8_t best = 0;
    double distance = INFINITY;
    for (int code = 0; code < 127; code++) {
        double d = fabs(fabs(x) - world_from_e4m3((uint8_t)code));
        if (d < distance || (d == distance && !(code & 1))) distance = d, best = (uint8_t)code;
    }
    return (uint8_t)(best | (std::signbit(x) ? 0x80 : 0));
}
double world_from_e4m3(uint8_t bits) {
    if ((bits & 0x7f) == 0x7f) return NAN;
    return (bits >> 7 ? -1 : 1) * decode(bits & 0x7fu, 3, 7, 4);
}

const char *world_type_name(quire_kv_type type) {
    switch (type) {
#define NAME(kv, stem) \
    case kv: return #stem;
        QR_CUDA_KV_TYPES(NAME)
#undef NAME
    default: return "?";
    }
}

uint64_t world_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t h = a;
    for (uint64_t x : {b, c, d}) {
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
        h = h * 0xbf58476d1ce4e5b9u;
        h ^= h >> 32;
    }
    return h;
}

// Sum of four uniforms: bounded, near enough to normal, and cheap.
double world_gauss(uint64_t key) {
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += (double)(key >> 16 * i & 0xffff) / 65536.0 - 0.5;
    return sum * 1.7320508;
}

// ---- memory ----

static uint64_t align_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

world::world(const qr_cuda_shape &of, uint32_t count) : shape(of), block_count(count) {
    const uint64_t data = (uint64_t)shape.block_tokens * shape.head_dim * (eight_bit() ? 1 : 2);
    const uint64_t scales = eight_bit() ? shape.block_tokens * 4u : 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < layers * shape.kv_head_count; i++) {
        qr_cuda_part part = {};
        auto put = [&](uint64_t bytes) {
            uint64_t place = at;
            at = align_up(at + bytes, 128);
            return (uint32_t)place;
        };
        part.key = put(data), part.value = put(data), part.key_scale = put(scales), part.value_scale = put(scales);
        parts.push_back(part);
    }
    block_stride = align_up(at, 4096);
    // 0xff is NaN in f16, bf16, e4m3 and f32; in int8 it is -1, and the NaN scale stands for it.
    pool.assign(block_stride * block_count, 0xff);
    key.assign((size_t)block_count * shape.kv_head_count * shape.block_tokens * shape.head_dim, NAN);
    value = key;
    WORLD_CHECK(cudaMalloc((void **)&device_pool, pool.size()));
    WORLD_CHECK(cudaMalloc((void **)&device_parts, parts.size() * sizeof parts[0]));
    WORLD_CHECK(cudaMemcpy(device_parts, parts.data(), parts.size() * sizeof parts[0], cudaMemcpyHostToDevice));
}

world::~world() { cudaFree(device_pool), cudaFree(device_parts); }

size_t world::place(uint32_t block, uint32_t kv_head, uint32_t slot) const {
    return (((size_t)block * shape.kv_head_count + kv_head) * shape.block_tokens + slot) * shape.head_dim;
}

// One vector in the KV type, and what it means.
static void store_vector(world &w, uint8_t *to, float *scale, double *as_stored, uint64_t key) {
    const uint32_t dim = w.shape.head_dim;
    double size = exp2(2 * world_gauss(world_hash(key, 77, 0, 0))), x[256], largest = 0;
    for (uint32_t d = 0; d < dim; d++) {
        x[d] = world_gauss(world_hash(key, d, 1, 2)) * size;
        largest = std::max(largest, fabs(x[d]));
    }
    float s = (float)(largest / (w.shape.kv_type == QUIRE_KV_INT8 ? 127 : 448));
    for (uint32_t d = 0; d < dim; d++) {
        uint16_t half;
        switch (w.shape.kv_type) {
        case QUIRE_KV_F16: half = world_to_f16(x[d]), as_stored[d] = world_from_f16(half), memcpy(to + 2 * d, &half, 2); break;
        case QUIRE_KV_BF16:
            half = world_to_bf16(x[d]), as_stored[d] = world_from_bf16(half), memcpy(to + 2 * d, &half, 2);
            break;
        case QUIRE_KV_INT8:
            to[d] = (uint8_t)(int8_t)std::max(-127.0, std::min(127.0, nearbyint(x[d] / s)));
            as_stored[d] = (double)(int8_t)to[d] * s;
            break;
        default: to[d] = world_to_e4m3(x[d] / s), as_stored[d] = world_from_e4m3(to[d]) * s;
        }
    }
    if (w.eight_bit()) *scale = s;
}

void world::write_token(uint32_t block, uint32_t slot, uint64_t content) {
    const uint32_t bytes = shape.head_dim * (eight_bit() ? 1 : 2);
    for (uint32_t h = 0; h < shape.kv_head_count; h++) {
        const qr_cuda_part &part = parts[layer * shape.kv_head_count + h];
        uint8_t *base = pool.data() + block * block_stride;
        store_vector(*this, base + part.key + slot * bytes, (float *)(base + part.key_scale) + slot,
                     &key[place(block, h, slot)], world_hash(content, h, 10, 0));
        store_vector(*this, base + part.value + slot * bytes, (float *)(base + part.value_scale) + slot,
                     &value[place(block, h, slot)], world_hash(content, h, 11, 0));
    }
    device_stale = true;
}

void world::poison_token(uint32_t block, uint32_t slot) {
    const uint32_t bytes = shape.head_dim * (eight_bit() ? 1 : 2);
    for (uint32_t h = 0; h < shape.kv_head_count; h++) {
        const qr_cuda_part &part = parts[layer * shape.kv_head_count + h];
        uint8_t *base = pool.data() + block * block_stride;
        memset(base + part.key + slot * bytes, 0xff, bytes);
        memset(base + part.value + slot * bytes, 0xff, bytes);
        if (eight_bit()) memset(base + part.key_scale + 4 * slot, 0xff, 4), memset(base + part.value_scale + 4 * slot, 0xff, 4);
    }
    device_stale = true;
}

void world::upload() {
    if (device_stale) WORLD_CHECK(cudaMemcpy(device_pool, pool.data(), pool.size(), cudaMemcpyHostToDevice));
    device_stale = false;
}

// ---- sequences ----

std::vector<uint32_t> world_free_blocks(const world &w, uint64_t seed) {
    std::vector<uint32_t> ids(w.block_count);
    for (uint32_t i = 0; i < w.block_count; i++) ids[i] = i;
    for (uint32_t i = w.block_count; i > 1; i--) std::swap(ids[i - 1], ids[world_hash(seed, i, 5, 5) % i]);
    return ids;
}

world_sequence world_add(world &w, std::vector<uint32_t> &free_blocks, uint32_t length, uint64_t content, uint32_t shared,
                         uint64_t prefix, const world_sequence *from) {
    const uint32_t tokens = w.shape.block_tokens;
    world_sequence s = {content, length, {}, content};
    for (uint32_t b = 0; b * tokens < length; b++) {
        if (from && (b + 1) * tokens <= shared) {
            s.ids.push_back(from->ids[b]);
            continue;
        }
        if (free_blocks.empty()) world_fail(__FILE__, __LINE__, "no free block", 0);
        s.ids.push_back(free_blocks.back());
        free_blocks.pop_back();
        for (uint32_t t = b * tokens; t < std::min(length, (b + 1) * tokens); t++)
            w.write_token(s.ids[b], t % tokens, world_hash(t < shared ? prefix : content, t, 3, 3));
    }
    return s;
}

// ---- steps ----

double world_query(const world &w, const world_sequence &s, uint32_t position, uint32_t head, uint32_t dim) {
    double x = world_gauss(world_hash(s.query_content, position, head, dim + 1000)) + s.query_mean;
    x *= 1.4426950408889634 / sqrt(w.shape.head_dim);
    return w.shape.kv_type == QUIRE_KV_BF16 ? world_from_bf16(world_to_bf16(x)) : world_from_f16(world_to_f16(x));
}

namespace {
template <class T> T *to_device(const T *data, size_t count) {
    void *memory;
    WORLD_CHECK(cudaMalloc(&memory, count * sizeof(T) + 16));
    if (count) WORLD_CHECK(cudaMemcpy(memory, data, count * sizeof(T), cudaMemcpyHostToDevice));
    return (T *)memory;
}

// The step's rows as the planner reads them.
struct batch_view {
    std::vector<uint32_t> sequence, position, first, table_begin, ids;
    qr_attn_batch batch;
    batch_view(const std::vector<world_sequence> &sequences, const std::vector<world_row> &rows) {
        for (const world_row &r : rows)
            sequence.push_back(r.sequence), position.push_back(r.position), first.push_back(r.first);
        for (const world_sequence &s : sequences) {
            table_begin.push_back((uint32_t)ids.size());
            ids.insert(ids.end(), s.ids.begin(), s.ids.end());
        }
        table_begin.push_back((uint32_t)ids.size());
        batch = {(uint32_t)rows.size(), (uint32_t)sequences.size(), sequence.data(), position.data(),
                 first.data(),          table_begin.data(),         ids.data()};
    }
};
} // namespace

static std::vector<uint16_t> queries_of(const world &w, const std::vector<world_sequence> &sequences,
                                        const std::vector<world_row> &rows) {
    std::vector<uint16_t> q;
    for (const world_row &r : rows)
        for (uint32_t h = 0; h < w.shape.head_count; h++)
            for (uint32_t d = 0; d < w.shape.head_dim; d++) {
                double x = world_query(w, sequences[r.sequence], r.position, h, d);
                q.push_back(w.shape.kv_type == QUIRE_KV_BF16 ? world_to_bf16(x) : world_to_f16(x));
            }
    return q;
}

world_result world_step(world &w, const std::vector<world_sequence> &sequences, const std::vector<world_row> &rows,
                        const world_run &run) {
    const qr_cuda_shape &shape = w.shape;
    qr_cuda_launch launch;
    WORLD_CHECK(qr_cuda_launch_query(&shape, &launch));
    launch.narrow_ctas = run.narrow_ctas, launch.wide_ctas = run.wide_ctas;
    launch.narrow_warps = std::min(launch.narrow_warps, run.narrow_warps);
    batch_view view(sequences, rows);
    uint32_t tokens_max = 1;
    for (const world_sequence &s : sequences) tokens_max = std::max(tokens_max, s.length);
    qr_cuda_plan_limits limits = {(uint32_t)rows.size(), (uint32_t)sequences.size(), tokens_max,
                                  std::max(run.cells_max, (uint32_t)rows.size())};
    qr_cuda_plan *plan;
    WORLD_CHECK(qr_cuda_plan_create(&shape, &limits, &launch, &plan, nullptr));
    world_result result;
    qr_cuda_plan_make(plan, &view.batch, &result.lists);
    const qr_cuda_plan_lists &l = result.lists;

    w.upload();
    std::vector<uint16_t> q = queries_of(w, sequences, rows);
    result.out.assign(q.size(), 0x7fff);
    std::vector<float> poison((size_t)l.cell_count * shape.head_count * shape.head_dim + 1, NAN);
    qr_cuda_attn_params p = {};
    uint16_t *device_q = to_device(q.data(), q.size()), *device_out = to_device(result.out.data(), result.out.size());
    uint32_t *device_ids = to_device(view.ids.data(), view.ids.size());
    qr_cuda_item *narrow = to_device(l.narrow, l.narrow_count), *wide = to_device(l.wide, l.wide_count);
    qr_cuda_item_row *item_rows = to_device(l.rows, l.row_count);
    qr_cuda_fold_row *folds = to_device(l.fold_rows, l.fold_count);
    p.pool = w.device_pool, p.block_stride = w.block_stride, p.parts = w.device_parts + w.layer * shape.kv_head_count;
    p.block_ids = device_ids, p.rows = item_rows, p.fold_rows = folds, p.q = device_q, p.out = device_out;
    p.cell_out = to_device(poison.data(), poison.size());
    p.cell_state = to_device(poison.data(), (size_t)l.cell_count * shape.head_count * 2);
    p.head_count = shape.head_count, p.kv_head_count = shape.kv_head_count, p.group = shape.head_count / shape.kv_head_count;
    p.block_shift = (uint32_t)__builtin_ctz(shape.block_tokens);
    p.fold_count = l.fold_count;
    p.items = narrow, p.item_count = l.narrow_count;
    WORLD_CHECK(qr_cuda_span_run(&shape, &launch, &p, false, nullptr));
    p.items = wide, p.item_count = l.wide_count;
    WORLD_CHECK(qr_cuda_span_run(&shape, &launch, &p, true, nullptr));
    WORLD_CHECK(qr_cuda_fold_run(&shape, &p, nullptr));
    WORLD_CHECK(cudaDeviceSynchronize());
    WORLD_CHECK(cudaMemcpy(result.out.data(), device_out, result.out.size() * 2, cudaMemcpyDeviceToHost));
    for (void *memory : {(void *)device_q, (void *)device_out, (void *)device_ids, (void *)narrow, (void *)wide,
                         (void *)item_rows, (void *)folds, (void *)p.cell_out, (void *)p.cell_state})
        WORLD_CHECK(cudaFree(memory));
    qr_cuda_plan_destroy(plan);
    return result;
}

// ---- the reference ----

static void reference_row(const world &w, const world_sequence &s, const world_row &row, uint32_t head, double *out) {
    const uint32_t dim = w.shape.head_dim, tokens = w.shape.block_tokens,
                   kv_head = head * w.shape.kv_head_count / w.shape.head_count;
    std::vector<double> q(dim), score;
    for (uint32_t d = 0; d < dim; d++) q[d] = world_query(w, s, row.position, head, d), out[d] = 0;
    double max = -INFINITY, sum = 0;
    for (uint32_t t = row.first; t <= row.position; t++) {
        const double *k = &w.key[w.place(s.ids[t / tokens], kv_head, t % tokens)];
        double x = 0;
        for (uint32_t d = 0; d < dim; d++) x += q[d] * k[d];
        score.push_back(x), max = std::max(max, x);
    }
    for (uint32_t t = row.first; t <= row.position; t++) {
        const double *v = &w.value[w.place(s.ids[t / tokens], kv_head, t % tokens)], e = exp2(score[t - row.first] - max);
        sum += e;
        for (uint32_t d = 0; d < dim; d++) out[d] += e * v[d];
    }
    for (uint32_t d = 0; d < dim; d++) out[d] /= sum;
}

double world_error(const world &w, const std::vector<world_sequence> &sequences, const std::vector<world_row> &rows,
                   const std::vector<uint16_t> &out) {
    const uint32_t dim = w.shape.head_dim;
    std::vector<double> expected(dim);
    double worst = 0;
    for (size_t r = 0; r < rows.size(); r++)
        for (uint32_t h = 0; h < w.shape.head_count; h++) {
            reference_row(w, sequences[rows[r].sequence], rows[r], h, expected.data());
            double error = 0, size = 0;
            for (uint32_t d = 0; d < dim; d++) {
                uint16_t bits = out[(r * w.shape.head_count + h) * dim + d];
                double x = w.shape.kv_type == QUIRE_KV_BF16 ? world_from_bf16(bits) : world_from_f16(bits);
                error += (x - expected[d]) * (x - expected[d]), size += expected[d] * expected[d];
            }
            double relative = sqrt(error / size);
            if (!(relative <= worst)) worst = relative; // a NaN stays
            if (std::isnan(worst)) return NAN;
        }
    return worst;
}

uint64_t world_digest(uint64_t digest, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull + 1; // as FNV-1a
    return digest;
}

double world_error_bound(quire_kv_type type) { return type == QUIRE_KV_BF16 ? 8e-3 : 1e-3; }

uint32_t world_only_head_dim(int argc, char **argv, uint32_t first) {
    if (argc == 2 && !strcmp(argv[1], "--quick")) return first;
    return argc == 3 && !strcmp(argv[1], "--head-dim") ? (uint32_t)atoi(argv[2]) : 0;
}
