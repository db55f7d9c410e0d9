/*
 * The copying side of the span kernel: a cursor that walks the same work as the computing side, some stages ahead, and
 * copies K, V and scales of one stage after another into a ring in shared memory by cp.async.
 *
 * A narrow warp loads for itself; the four warps of a wide CTA load together. The cursor passes from item to item without
 * a pause, so the ring stays full. Tokens outside the item's range become zeros in shared memory and their blocks are
 * neither read nor looked up.
 *
 * Stage: K [STEP][STRIDE] | V [STEP][STRIDE] | K scales [STEP] | V scales [STEP] (8-bit types only)
 */
#pragma once
#include "attention/cuda/span_tile.cuh"

template <int KV, int DIM, bool WIDE> struct span_stage {
    using traits = span_traits<KV, DIM>;
    // Tokens of a stage: a warp's tile, or 32 tokens that four warps share (16 where head_dim makes them large).
    static constexpr int STEP = WIDE && DIM <= 128 ? 32 : traits::TILE;
    static constexpr int COUNT = WIDE || DIM > 128 ? 2 : 3;
    static constexpr int VALUE = STEP * traits::STRIDE;
    static constexpr int SCALES = 2 * VALUE;
    static constexpr int BYTES = SCALES + (traits::EIGHT_BIT ? 2 * STEP * 4 : 0);
    static constexpr int THREADS = WIDE ? QR_CUDA_CTA_THREADS : 32;
    static constexpr int GROUPS = STEP / 16; // runs of 16 tokens, each inside one block
};

// Item and KV head of one place in the work list.
struct span_work {
    uint32_t item, kv_head;
};
GPU_PRIM span_work span_work_at(const qr_cuda_attn_params &p, uint32_t place) {
    uint32_t item = place / p.kv_head_count;
    return {item, place - item * p.kv_head_count};
}

GPU_PRIM uint32_t span_work_count(const qr_cuda_attn_params &p) { return p.item_count * p.kv_head_count; }

// Who walks the list: warps of narrow CTAs, wide CTAs. Both are uniform values that cost no register to keep.
template <bool WIDE> GPU_PRIM uint32_t span_walkers() { return WIDE ? gridDim.x : gridDim.x * (blockDim.x / 32); }

template <int KV, int DIM, bool WIDE> struct span_loader {
    using traits = span_traits<KV, DIM>;
    using stage = span_stage<KV, DIM, WIDE>;

    unsigned char *ring;
    uint32_t place; // in items x KV heads
    uint32_t table;
    int first, limit, token; // of the item; next token to load
    uint32_t id;             // lane i: block i of the span at hand
    qr_cuda_part part;
    int slot;

    __device__ __forceinline__ void begin(const qr_cuda_attn_params &p, unsigned char *to, uint32_t walker) {
        ring = to, slot = 0;
        table = id = 0, first = limit = token = 0, part = {};
        place = walker;
        open(p);
    }

    // Starts the copies of the next stage; past the end of the list it only keeps the count of groups.
    __device__ __forceinline__ void next(const qr_cuda_attn_params &p) {
        if (place < span_work_count(p)) {
            copy_rows(p);
            if (traits::EIGHT_BIT) copy_scales(p);
            advance(p);
        }
        slot = slot + 1 == stage::COUNT ? 0 : slot + 1;
        cp_async_commit();
    }

  private:
    static __device__ __forceinline__ uint32_t thread() { return WIDE ? threadIdx.x : threadIdx.x % 32; }

    __device__ __forceinline__ void open(const qr_cuda_attn_params &p) {
        if (place >= span_work_count(p)) return;
        span_work work = span_work_at(p, place);
        const qr_cuda_item &item = p.items[work.item];
        table = item.table, first = item.first, limit = item.limit;
        part = p.parts[work.kv_head];
        token = first & -stage::STEP;
        look_up(p);
    }

    __device__ __forceinline__ void advance(const qr_cuda_attn_params &p) {
        token += stage::STEP;
        if (token >= limit) {
            place += span_walkers<WIDE>();
            open(p);
        } else if (token % QR_CUDA_SPAN_TOKENS == 0) {
            look_up(p);
        }
    }

    // Block ids of the span that token lies in: at most 16, one per lane.
    __device__ __forceinline__ void look_up(const qr_cuda_attn_params &p) {
        int in_span = (int)(threadIdx.x % 32) << p.block_shift, start = (token & -QR_CUDA_SPAN_TOKENS) + in_span;
        bool used = in_span < QR_CUDA_SPAN_TOKENS && start < limit && start + (1 << p.block_shift) > first;
        id = used ? p.block_ids[table + ((uint32_t)start >> p.block_shift)] : 0;
    }

    // Start of the block that holds the 16 tokens from `at` on. All lanes take part.
    __device__ __forceinline__ const unsigned char *block_of(const qr_cuda_attn_params &p, int at) const {
        uint32_t block = __shfl_sync(~0u, id, at % QR_CUDA_SPAN_TOKENS >> p.block_shift);
        return p.pool + block * p.block_stride;
    }

    // Inside a run of 16 tokens the rows are one piece of memory: a chunk's place in the stage is its place there too.
    __device__ __forceinline__ void copy_rows(const qr_cuda_attn_params &p) {
        const unsigned char *from[stage::GROUPS];
#pragma unroll
        for (int g = 0; g < stage::GROUPS; g++) {
            const int at = token + 16 * g, in_block = at & ((1 << p.block_shift) - 1);
            from[g] = block_of(p, at) + part.key + (in_block - 16 * g) * traits::ROW_BYTES + thread() * 16;
        }
        if (token >= first && token + stage::STEP <= limit) copy_chunks<true>(from);
        else copy_chunks<false>(from);
    }

    template <bool WHOLE> __device__ __forceinline__ void copy_chunks(const unsigned char *const (&from)[stage::GROUPS]) {
        constexpr uint32_t CHUNKS = traits::CHUNKS, COUNT = stage::STEP * CHUNKS, THREADS = stage::THREADS;
        constexpr uint32_t RUN = 16 * CHUNKS; // chunks of one run of 16 tokens
        unsigned char *to = ring + slot * stage::BYTES;
        const int value_from_key = (int)(part.value - part.key);
#pragma unroll
        for (uint32_t begin = 0; begin < COUNT; begin += THREADS) {
            const uint32_t chunk = begin + thread(), row = chunk / CHUNKS;
            const bool second = begin >= RUN || (begin + THREADS > RUN && chunk >= RUN); // known for most chunks
            const unsigned char *key = (second ? from[stage::GROUPS - 1] : from[0]) + begin * 16;
            const int at = token + (int)row, valid = WHOLE || (at >= first && at < limit) ? 16 : 0;
            unsigned char *in_stage = to + row * traits::STRIDE + chunk % CHUNKS * 16;
            if (begin + THREADS <= COUNT || chunk < COUNT) {
                cp_async16(in_stage, key, valid);
                cp_async16(in_stage + stage::VALUE, key + value_from_key, valid);
            }
        }
    }

    // 16 bytes are the scales of 4 tokens. Those past the end are zeros; those before the first token may be anything.
    __device__ __forceinline__ void copy_scales(const qr_cuda_attn_params &p) {
        const uint32_t t = thread(), quad = t / 2 % (stage::STEP / 4), is_value = t % 2;
        const int at = token + 4 * (int)quad, in_block = at & ((1 << p.block_shift) - 1);
        const unsigned char *from = block_of(p, at) + (is_value ? part.value_scale : part.key_scale) + in_block * 4;
        const int left = limit - at, valid = at + 4 <= first || left <= 0 ? 0 : left >= 4 ? 16 : left * 4;
        if (t < stage::STEP / 2)
            cp_async16(ring + slot * stage::BYTES + stage::SCALES + is_value * stage::STEP * 4 + quad * 16, from, valid);
    }
};
