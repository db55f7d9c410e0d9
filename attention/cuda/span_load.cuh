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
    uint64_t run;            // lane i: address of K of run i of the span at hand; lane 16 + i: of the run's K scales
    uint32_t run_part;       // where this lane's part of a block begins
    int value_from_key;      // from a run's K to its V
    int scale_from_run;      // from its K scales to those that this lane copies
    int slot;                // of the next stage to load, and so of the oldest one

    __device__ __forceinline__ void begin(const qr_cuda_attn_params &p, unsigned char *to, uint32_t walker) {
        ring = to, slot = 0;
        table = run_part = 0, first = limit = token = value_from_key = scale_from_run = 0, run = 0;
        place = walker;
        open(p);
    }

    // Starts the copies of the next stage; past the end of the list it only keeps the count of groups.
    __device__ __forceinline__ void next(const qr_cuda_attn_params &p) {
        if (place < span_work_count(p)) {
            copy();
            advance(p);
        }
        slot = slot + 1 == stage::COUNT ? 0 : slot + 1;
        cp_async_commit();
    }

  private:
    static __device__ __forceinline__ uint32_t thread() { return WIDE ? threadIdx.x : threadIdx.x % 32; }
    // 16 bytes are the scales of 4 tokens: this thread's quad of a stage, of K or of V.
    static __device__ __forceinline__ uint32_t quad() { return thread() / 2 % (stage::STEP / 4); }
    static __device__ __forceinline__ uint32_t is_value() { return thread() % 2; }

    __device__ __forceinline__ void open(const qr_cuda_attn_params &p) {
        if (place >= span_work_count(p)) return;
        span_work work = span_work_at(p, place);
        const qr_cuda_item &item = p.items[work.item];
        const qr_cuda_part part = p.parts[work.kv_head];
        table = item.table, first = item.first, limit = item.limit;
        run_part = threadIdx.x % 32 < 16 ? part.key : part.key_scale;
        value_from_key = (int)(part.value - part.key);
        scale_from_run = (is_value() ? (int)(part.value_scale - part.key_scale) : 0) + (int)quad() % 4 * 16;
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

    // Addresses of the span that token lies in: of each run of 16 tokens.
    __device__ __forceinline__ void look_up(const qr_cuda_attn_params &p) {
        const int start = (token & -QR_CUDA_SPAN_TOKENS) + (int)(threadIdx.x % 16) * 16;
        const uint32_t in_block = (uint32_t)start & ((1u << p.block_shift) - 1);
        const bool used = start < limit && start + 16 > first;
        const uint32_t block = used ? p.block_ids[table + ((uint32_t)start >> p.block_shift)] : 0;
        run = (uint64_t)p.pool + block * p.block_stride + run_part +
              in_block * (threadIdx.x % 32 < 16 ? (uint32_t)traits::ROW_BYTES : 4u);
    }

    // What `lane` has in run.
    __device__ __forceinline__ const unsigned char *run_of(uint32_t lane) const {
        const uint32_t low = __shfl_sync(~0u, (uint32_t)run, (int)lane);
        return (const unsigned char *)((uint64_t)__shfl_sync(~0u, (uint32_t)(run >> 32), (int)lane) << 32 | low);
    }

    __device__ __forceinline__ void copy() {
        const uint32_t at = (uint32_t)token / 16 % 16;
        const unsigned char *from[stage::GROUPS], *scales = nullptr;
#pragma unroll
        for (uint32_t g = 0; g < stage::GROUPS; g++) from[g] = run_of(at + g) + thread() * 16;
        if (traits::EIGHT_BIT) scales = run_of(16 + at + quad() / 4) + scale_from_run;
        if (token >= first && token + stage::STEP <= limit) copy_stage<true>(from, scales);
        else copy_stage<false>(from, scales);
    }

    template <bool WHOLE>
    __device__ __forceinline__ void copy_stage(const unsigned char *const (&from)[stage::GROUPS], const unsigned char *scales) {
        unsigned char *to = ring + slot * stage::BYTES;
        copy_rows<WHOLE>(to, from);
        if (traits::EIGHT_BIT && thread() < stage::STEP / 2) copy_scales<WHOLE>(to, scales);
    }

    // Inside a run the rows are one piece of memory: a chunk's place in the stage is its place there too.
    template <bool WHOLE>
    __device__ __forceinline__ void copy_rows(unsigned char *to, const unsigned char *const (&from)[stage::GROUPS]) {
        constexpr uint32_t CHUNKS = traits::CHUNKS, COUNT = stage::STEP * CHUNKS, THREADS = stage::THREADS;
        constexpr uint32_t RUN = 16 * CHUNKS;        // chunks of one run
        constexpr bool EVEN = THREADS % CHUNKS == 0; // a thread's chunks lie whole rows apart
#pragma unroll
        for (uint32_t begin = 0; begin < COUNT; begin += THREADS) {
            const uint32_t chunk = begin + thread();
            const uint32_t row = EVEN ? begin / CHUNKS + thread() / CHUNKS : chunk / CHUNKS;
            const bool second = begin >= RUN || (begin + THREADS > RUN && chunk >= RUN); // known for most chunks
            const unsigned char *key = second ? from[stage::GROUPS - 1] + (int)(begin - RUN) * 16 : from[0] + begin * 16;
            const int at = token + (int)row, valid = WHOLE || (at >= first && at < limit) ? 16 : 0;
            unsigned char *in_stage = to + row * traits::STRIDE + (EVEN ? thread() : chunk) % CHUNKS * 16;
            if (begin + THREADS <= COUNT || chunk < COUNT) {
                cp_async16(in_stage, key, valid);
                cp_async16(in_stage + stage::VALUE, key + value_from_key, valid);
            }
        }
    }

    // Scales past the end are zeros; those before the first token may be anything.
    template <bool WHOLE> __device__ __forceinline__ void copy_scales(unsigned char *to, const unsigned char *from) {
        const int at = token + 4 * (int)quad(), left = limit - at;
        const int valid = WHOLE ? 16 : at + 4 <= first || left <= 0 ? 0 : left >= 4 ? 16 : left * 4;
        cp_async16(to + stage::SCALES + is_value() * stage::STEP * 4 + quad() * 16, from, valid);
    }
};
