/*
 * The KV store kernel: RoPE, rounding, quantising, and that nothing but its own slots changes.
 *
 * Against doubles: a stored code is the nearest to x / scale up to ties that f32 cannot see, the scale is the largest
 * magnitude over 127 or 448 within an ulp or two. Bytes are also the same alone and among other rows. What the kernel stored
 * is read back by attention in attention_test's formats, so both sides agree on the layout.
 *
 * Each KV type meets every block size. --thin: each KV type and head dimension with one grouping of heads, not with both;
 * --head-dim N: that one.
 */
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cuda/attention_world.h"

static int failed;
static uint64_t digest;
static void expect(bool ok, const qr_cuda_shape &shape, const char *what) {
    if (ok) return;
    if (failed++ < 10)
        printf("%s: %s head_dim %u block %u\n", what, world_type_name(shape.kv_type), shape.head_dim, shape.block_tokens);
}

struct store_inputs {
    std::vector<float> q, k, v, rope;
    std::vector<uint32_t> block, slot;
};
enum { ROWS = 5, ROPE_DIMS = 48 };

static float value_at(uint32_t what, uint32_t row, uint32_t i) {
    double x = world_gauss(world_hash(what, row, i, 99)) * exp2(world_gauss(world_hash(what, row, 5, 98)) * 6);
    return (float)x;
}

static store_inputs make_inputs(const qr_cuda_shape &s, uint32_t first, uint32_t rows) {
    store_inputs in;
    for (uint32_t r = first; r < first + rows; r++) {
        for (uint32_t i = 0; i < s.head_count * s.head_dim; i++) in.q.push_back(value_at(1, r, i));
        for (uint32_t i = 0; i < s.kv_head_count * s.head_dim; i++) {
            in.k.push_back(r == 4 ? 0.0f : value_at(2, r, i));           // a row of zeros
            in.v.push_back(r == 3 && i == 7 ? 1e6f : value_at(3, r, i)); // past f16
        }
        for (uint32_t i = 0; i < ROPE_DIMS / 2; i++) {
            double angle = (r + 3) * pow(10000.0, -(double)i / (ROPE_DIMS / 2));
            in.rope.push_back((float)cos(angle)), in.rope.push_back((float)sin(angle));
        }
        in.block.push_back(2 + r % 2), in.slot.push_back(s.block_tokens - 1 - 3 * r); // the last one among them
    }
    return in;
}

template <class T> static T *to_device(const std::vector<T> &data) {
    T *memory;
    WORLD_CHECK(cudaMalloc((void **)&memory, data.size() * sizeof(T)));
    WORLD_CHECK(cudaMemcpy(memory, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice));
    return memory;
}

// Runs the kernel; the pool comes back into w.pool, q_out and the count are returned.
static uint32_t store(world &w, const store_inputs &in, float query_scale, std::vector<uint16_t> *q_out) {
    const qr_cuda_shape &s = w.shape;
    const uint32_t rows = (uint32_t)in.block.size();
    std::vector<uint32_t> saturated(1, 0);
    q_out->assign(in.q.size(), 0x7fff);
    w.device_stale = true;
    w.upload();
    float *q = to_device(in.q), *k = to_device(in.k), *v = to_device(in.v), *rope = to_device(in.rope);
    uint32_t *block = to_device(in.block), *slot = to_device(in.slot), *count = to_device(saturated);
    uint16_t *out = to_device(*q_out);
    qr_cuda_store_params p = {w.device_pool,
                              w.block_stride,
                              w.device_parts + w.layer * s.kv_head_count,
                              block,
                              slot,
                              q,
                              k,
                              v,
                              rope,
                              out,
                              count,
                              query_scale,
                              rows,
                              ROPE_DIMS,
                              s.head_count,
                              s.kv_head_count,
                              s.head_dim};
    WORLD_CHECK(qr_cuda_store_run(s.kv_type, &p, nullptr));
    WORLD_CHECK(cudaDeviceSynchronize());
    WORLD_CHECK(cudaMemcpy(w.pool.data(), w.device_pool, w.pool.size(), cudaMemcpyDeviceToHost));
    WORLD_CHECK(cudaMemcpy(q_out->data(), out, q_out->size() * 2, cudaMemcpyDeviceToHost));
    WORLD_CHECK(cudaMemcpy(saturated.data(), count, 4, cudaMemcpyDeviceToHost));
    digest = world_digest(world_digest(digest, w.pool.data(), w.pool.size()), q_out->data(), q_out->size() * 2);
    for (void *memory :
         {(void *)q, (void *)k, (void *)v, (void *)rope, (void *)block, (void *)slot, (void *)count, (void *)out})
        WORLD_CHECK(cudaFree(memory));
    return saturated[0];
}

// Element i of a head after RoPE, in double.
static double rotated(const float *head, const float *rope, uint32_t i) {
    if (i >= ROPE_DIMS) return head[i];
    double a = head[i & ~1u], b = head[i | 1u], c = rope[i & ~1u], s = rope[i | 1u];
    return i & 1 ? a * s + b * c : a * c - b * s;
}

static double code_value(quire_kv_type type, const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, 2);
    switch (type) {
    case QUIRE_KV_F16: return world_from_f16(half);
    case QUIRE_KV_BF16: return world_from_bf16(half);
    case QUIRE_KV_INT8: return (int8_t)*at;
    default: return world_from_e4m3(*at);
    }
}

// Half the distance between neighbouring codes at x, a little more for f32's own rounding.
static double code_slack(quire_kv_type type, double x) {
    int e;
    frexp(x, &e);
    double step = type == QUIRE_KV_INT8       ? 1
                  : type == QUIRE_KV_FP8_E4M3 ? ldexp(1, std::max(e - 1, -6) - 3)
                  : type == QUIRE_KV_F16      ? ldexp(1, std::max(e - 1, -14) - 10)
                                              : ldexp(1, e - 1 - 7);
    return 0.5 * step + fabs(x) * 0x1p-20 + 1e-30;
}

static void check_vector(const world &w, const uint8_t *data, const uint8_t *scale_at, const std::vector<double> &x) {
    const quire_kv_type type = w.shape.kv_type;
    double largest = 0, scale = 1;
    for (double v : x) largest = std::max(largest, fabs(v));
    if (w.eight_bit()) {
        float stored;
        memcpy(&stored, scale_at, 4);
        scale = largest / (type == QUIRE_KV_INT8 ? 127 : 448);
        expect(fabs(stored - scale) <= scale * 0x1p-21, w.shape, "scale");
        if (largest == 0) scale = 1;
    }
    for (uint32_t d = 0; d < x.size(); d++) {
        double expected = type == QUIRE_KV_F16 ? std::max(-65504.0, std::min(65504.0, x[d])) : x[d];
        double got = code_value(type, data + d * (w.eight_bit() ? 1 : 2));
        expect(fabs(got - expected / scale) <= code_slack(type, expected / scale), w.shape, "stored value");
    }
}

static void check_stored(const world &w, const store_inputs &in) {
    const qr_cuda_shape &s = w.shape;
    const uint32_t row_bytes = s.head_dim * (w.eight_bit() ? 1 : 2);
    for (uint32_t r = 0; r < in.block.size(); r++)
        for (uint32_t h = 0; h < s.kv_head_count; h++) {
            const qr_cuda_part &part = w.parts[w.layer * s.kv_head_count + h];
            const uint8_t *block = w.pool.data() + in.block[r] * w.block_stride;
            std::vector<double> key(s.head_dim), value(s.head_dim);
            const size_t at = ((size_t)r * s.kv_head_count + h) * s.head_dim;
            for (uint32_t d = 0; d < s.head_dim; d++) {
                key[d] = rotated(&in.k[at], &in.rope[(size_t)r * ROPE_DIMS], d);
                value[d] = in.v[at + d];
            }
            check_vector(w, block + part.key + in.slot[r] * row_bytes, block + part.key_scale + in.slot[r] * 4, key);
            check_vector(w, block + part.value + in.slot[r] * row_bytes, block + part.value_scale + in.slot[r] * 4, value);
        }
}

static void check_query(const world &w, const store_inputs &in, float query_scale, const std::vector<uint16_t> &q) {
    const qr_cuda_shape &s = w.shape;
    const quire_kv_type type = s.kv_type == QUIRE_KV_BF16 ? QUIRE_KV_BF16 : QUIRE_KV_F16;
    for (size_t i = 0; i < q.size(); i++) {
        size_t head = i / s.head_dim * s.head_dim, row = i / s.head_dim / s.head_count;
        double x = rotated(&in.q[head], &in.rope[row * ROPE_DIMS], (uint32_t)(i - head)) * query_scale;
        double got = code_value(type, (const uint8_t *)&q[i]);
        expect(fabs(got - x) <= code_slack(type, x) + 1e-7 * fabs(x), s, "query");
    }
}

// Every byte of the pool outside the stored slots is the 0xff that it was.
static void check_untouched(world &w, const store_inputs &in) {
    const qr_cuda_shape &s = w.shape;
    std::vector<uint8_t> rest = w.pool;
    const uint32_t row_bytes = s.head_dim * (w.eight_bit() ? 1 : 2);
    for (uint32_t r = 0; r < in.block.size(); r++)
        for (uint32_t h = 0; h < s.kv_head_count; h++) {
            const qr_cuda_part &part = w.parts[w.layer * s.kv_head_count + h];
            uint8_t *block = rest.data() + in.block[r] * w.block_stride;
            memset(block + part.key + in.slot[r] * row_bytes, 0xff, row_bytes);
            memset(block + part.value + in.slot[r] * row_bytes, 0xff, row_bytes);
            if (w.eight_bit()) memset(block + part.key_scale + in.slot[r] * 4, 0xff, 4);
            if (w.eight_bit()) memset(block + part.value_scale + in.slot[r] * 4, 0xff, 4);
        }
    expect(std::all_of(rest.begin(), rest.end(), [](uint8_t b) { return b == 0xff; }), s, "bytes outside the slots");
}

static void check_alone(const world &together, const qr_cuda_shape &shape) {
    world w(shape, 4);
    std::vector<uint16_t> q;
    for (uint32_t r = 0; r < ROWS; r++) store(w, make_inputs(shape, r, 1), 0.25f, &q);
    expect(w.pool == together.pool, shape, "bytes of a row stored alone");
}

static void all(const qr_cuda_shape &shape) {
    world w(shape, 4);
    store_inputs in = make_inputs(shape, 0, ROWS);
    std::vector<uint16_t> q;
    uint32_t saturated = store(w, in, 0.25f, &q);
    expect(saturated == (shape.kv_type == QUIRE_KV_F16 ? 1u : 0u), shape, "count of saturated values");
    check_stored(w, in);
    check_query(w, in, 0.25f, q);
    check_untouched(w, in);
    check_alone(w, shape);
}

int main(int argc, char **argv) {
    const bool thin = argc > 1 && !strcmp(argv[1], "--thin");
    static const uint32_t dims[] = {
#define VALUE(x) x,
        QR_CUDA_HEAD_DIMS(VALUE)
#undef VALUE
    };
    static const uint32_t blocks[] = {
#define VALUE(x) x,
        QR_CUDA_BLOCK_TOKENS(VALUE)
#undef VALUE
    };
    const uint32_t only = world_only_head_dim(argc, argv, dims[0]), count = sizeof blocks / sizeof *blocks;
    uint32_t turn = 0;
#define CASE(kv, stem)                                              \
    for (uint32_t dim : dims) {                                     \
        if (only && dim != only) continue;                          \
        const bool first = turn % 2 == 0;                           \
        const uint32_t tokens = blocks[turn % count];               \
        const uint32_t others = blocks[(turn + count / 2) % count]; \
        if (first || !thin) all({3, 1, dim, tokens, kv});           \
        if (!first || !thin) all({4, 2, dim, others, kv});          \
        turn++;                                                     \
    }
    QR_CUDA_KV_TYPES(CASE)
    printf("digest %016llx\n", (unsigned long long)digest);
    printf(failed ? "%d FAILED\n" : "passed\n", failed);
    return failed != 0;
}
