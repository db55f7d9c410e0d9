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

template <int KV, int DIM, bool WIDE> struct span_loader {
    using traits = span_traits<KV, DIM>;
    using stage = span_stage<KV, DIM, WIDE>;

    unsigned char *ring;
    uint32_t place, place_step, place_count; // in items x KV heads
    uint32_t table;
    int first, limit, token; // of the item; next token to load
    uint32_t id;             // lane i: block i of the span at hand
    qr_cuda_part part;
    int slot;

    __device__ __forceinline__ void begin(const qr_cuda_attn_params &p, unsigned char *to, uint32_t walker, uint32_t walkers) {
        ring = to, slot = 0;
        table = id = 0, first = limit = token = 0, part = {};
        place = walker, place_step = walkers, place_count = p.item_count * p.kv_head_count;
        open(p);
    }

    // Starts the copies of the next stage; past the end of the list it only keeps the count of groups.
    __device__ __forceinline__ void next(const qr_cuda_attn_params &p) {
        if (place < place_count) {
            copy_rows(p);
            if (traits::EIGHT_BIT) copy_scales(p);
            advance(p);
        }
        slot = slot + 1 == stage::COUNT ? 0 : slot + 1;
        cp_async_commit();
    }

  private:
    static __device__ __forceinline__ int thread() { return WIDE ? (int)threadIdx.x : (int)threadIdx.x % 32; }

    __device__ __forceinline__ void open(const qr_cuda_attn_params &p) {
        if (place >= place_count) return;
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
            place += place_step;
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

    __device__ __forceinline__ void copy_rows(const qr_cuda_attn_params &p) {
        constexpr int CHUNKS = traits::CHUNKS, COUNT = stage::STEP * CHUNKS,
                      EACH = (COUNT + stage::THREADS - 1) / stage::THREADS;
        unsigned char *to = ring + slot * stage::BYTES;
        const int block_mask = (1 << p.block_shift) - 1;
        const unsigned char *block = stage::GROUPS == 1 ? block_of(p, token) : nullptr;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int chunk = j * stage::THREADS + thread(), row = chunk / CHUNKS, at = token + row;
            if (stage::GROUPS > 1) block = block_of(p, at);
            if (COUNT % stage::THREADS == 0 || chunk < COUNT) {
                uint32_t in_block = (uint32_t)(at & block_mask) * traits::ROW_BYTES + (uint32_t)(chunk % CHUNKS) * 16;
                int valid = at >= first && at < limit ? 16 : 0;
                unsigned char *in_stage = to + row * traits::STRIDE + chunk % CHUNKS * 16;
                cp_async16(in_stage, block + part.key + in_block, valid);
                cp_async16(in_stage + stage::VALUE, block + part.value + in_block, valid);
            }
        }
    }

    // 16 bytes are the scales of 4 tokens. Those past the end are zeros; those before the first token may be anything.
    __device__ __forceinline__ void copy_scales(const qr_cuda_attn_params &p) {
        const int t = thread(), quad = t / 2 % (stage::STEP / 4), at = token + 4 * quad;
        const unsigned char *block = block_of(p, at);
        if (t < stage::STEP / 2) {
            int valid = at + 4 <= first || at >= limit ? 0 : limit - at >= 4 ? 16 : (limit - at) * 4;
            uint32_t in_block = (uint32_t)(at & ((1 << p.block_shift) - 1)) * 4,
                     start = t % 2 ? part.value_scale : part.key_scale;
            unsigned char *to = ring + slot * stage::BYTES + stage::SCALES + t % 2 * stage::STEP * 4 + quad * 16;
            cp_async16(to, block + start + in_block, valid);
        }
    }
};
