"""The seeded faults. Each is one mistake that a change could bring in, and the mode that must notice it.

A new fault is one entry: `old` stands exactly once in `file`; `sources` are the files to compile again (they hold `file` or
include it); `program` is a test program of tests/cuda; `says` is looked for in its output; `head_dim` is the one that shows
the fault, and the only one that is compiled. No mode sees everything, which is why all of them run: see
docs/CUDA_EMULATOR.md.
"""
import dataclasses

# mode: (build, environment)
MODES = {
    "forward": ("plain", {}),
    "reverse": ("plain", {"EMU_ORDER": "reverse"}),
    "random": ("plain", {"EMU_ORDER": "random"}),
    "eager": ("plain", {"EMU_COPIES": "eager"}),
    "streams": ("plain", {"EMU_STREAMS": "random"}),
    "asan": ("asan", {}),
    "tsan": ("tsan", {}),
    "ptx": ("ptx", {}),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    mode: str
    file: str
    old: str
    new: str
    sources: tuple
    says: str
    program: str = "attention"
    head_dim: int = 64


KERNEL = "attention/cuda/span_kernel.cuh"
LOAD = "attention/cuda/span_load.cuh"
TILE = "attention/cuda/span_tile.cuh"
STATE = "attention/cuda/span_state.cuh"
FOLD = "attention/cuda/fold.cu"
STORE = "attention/cuda/kv_store.cu"
PLAN = "attention/cuda/device_plan.c"
PRIMS = "attention/cuda/gpu_prims.h"
F16 = ("attention/cuda/span_f16.cu",)
BF16 = ("attention/cuda/span_bf16.cu",)
INT8 = ("attention/cuda/span_int8.cu",)
FP8 = ("attention/cuda/span_fp8.cu",)
PRIMS_TEST = ("tests/cuda/prims_test.cu",)

WRONG = r"relative error"
RACE = r"data race"
FAILED = r"FAILED"

SPAN = [
    Fault("wide stage read before everybody's copies have landed", "tsan", KERNEL,
          "if (WIDE) __syncthreads();", "if (WIDE) __syncwarp();", F16, RACE),
    Fault("narrow stage read before the other lanes' copies have landed", "forward", KERNEL,
          "else __syncwarp();\n", "\n", F16, WRONG),
    Fault("one copy group too few is waited for", "forward", KERNEL,
          "cp_async_wait<stage::COUNT - 2>();", "cp_async_wait<stage::COUNT - 1>();", F16, WRONG),
    Fault("barrier in a branch that not every warp takes", "forward", KERNEL,
          "if (WIDE) __syncthreads();", "if (WIDE && warp < 3) __syncthreads();", F16, r"deadlock|divergence"),
    Fault("shared memory sixteen bytes short", "asan", KERNEL,
          "+ warps * (QUERY + FOLD); }", "+ warps * (QUERY + FOLD) - 16; }", F16, r"use-after-poison"),
    Fault("stage slot wraps one too early", "forward", LOAD,
          "slot = slot + 1 == stage::COUNT ? 0 : slot + 1;", "slot = slot + 2 >= stage::COUNT ? 0 : slot + 1;", F16, WRONG),
    Fault("query heads of a row share one cell", "tsan", KERNEL,
          "(uint64_t)entry->cell * p.head_count + head;", "(uint64_t)entry->cell * p.head_count;", F16, RACE),
    Fault("the running fold in a cell is replaced while other lanes read it", "tsan", KERNEL,
          "            __syncwarp(); // a cell's state is read by four lanes before one of them replaces it\n", "", F16, RACE),
    Fault("the spans before are forgotten", "forward", KERNEL,
          "if (!KEEPS_FOLD && !is_first) {", "if (false) {", F16, WRONG),
    Fault("sums of two spans folded the wrong way round", "forward", KERNEL,
          "rows.sum[0] = span_fold_value(w[0], state.z, rows.sum[0]);", "rows.sum[0] = span_fold_value(w[0], rows.sum[0], state.z);",
          F16, WRONG),
]

LOADER = [
    Fault("block ids of the span before", "forward", LOAD,
          "} else if (token % QR_CUDA_SPAN_TOKENS == 0) {", "} else if (token % (4 * QR_CUDA_SPAN_TOKENS) == 0) {", F16, WRONG),
    Fault("block table read past its end", "asan", LOAD,
          "used = start < limit && start + 16 > first;", "used = start + 16 > first;", F16, r"heap-buffer-overflow"),
    Fault("a token past the end is copied", "forward", LOAD,
          "(at >= first && at < limit) ? 16 : 0", "(at >= first && at <= limit) ? 16 : 0", F16, WRONG),
    Fault("a token before the window is copied", "forward", LOAD,
          "(at >= first && at < limit) ? 16 : 0", "(at < limit) ? 16 : 0", F16, WRONG),
    Fault("keys in place of values", "forward", LOAD,
          "key + value_from_key, valid);", "key, valid);", F16, WRONG),
    Fault("scales of keys and values exchanged", "forward", LOAD,
          "is_value() ? (int)(part.value_scale - part.key_scale) : 0", "is_value() ? 0 : (int)(part.value_scale - part.key_scale)", INT8, WRONG),
    Fault("the second run's scales are the first one's", "forward", LOAD,
          "run_of(16 + at + quad() / 4)", "run_of(16 + at)", INT8, WRONG),
    Fault("a stage at the end counts as whole", "forward", LOAD,
          "token >= first && token + stage::STEP <= limit)", "token >= first && token < limit)", F16, WRONG),
    Fault("rows of a stage eight bytes off", "forward", TILE,
          "(CHUNKS | 1) * 16;", "(CHUNKS | 1) * 16 + 8;", F16, r"misaligned cp\.async"),
]

ARITHMETIC = [
    Fault("a row sees the token at its limit", "forward", TILE,
          "k >= limit[y >> 1]", "k > limit[y >> 1]", F16, WRONG),
    Fault("a tile that only some rows see is not masked", "forward", TILE,
          "token + TILE > common_limit;", "token + TILE > common_limit + TILE;", F16, WRONG),
    Fault("a row that saw nothing yet subtracts infinities", "forward", TILE,
          "base[h] = max[h] == QR_NEGATIVE_INFINITY ? 0.0f : max[h];", "base[h] = max[h];", F16, r"nan"),
    Fault("the sum is not rescaled to the new maximum", "forward", TILE,
          "max[h] = m[h], sum[h] *= factor[h];", "max[h] = m[h];", F16, WRONG),
    Fault("a raised maximum stays the lane's own", "forward", TILE,
          "            m[h] = fmaxf(m[h], __shfl_xor_sync(~0u, m[h], 2));\n", "", F16, WRONG),
    Fault("weights are taken from the maximum before", "forward", TILE,
          "        }\n        set_base();\n", "        }\n", F16, WRONG),
    Fault("a shuffle in a branch of some lanes", "forward", TILE,
          "sum[h] += __shfl_xor_sync(~0u, sum[h], 1);",
          "if (threadIdx.x % 4 < 2) sum[h] += __shfl_xor_sync(~0u, sum[h], 1);", F16, r"divergence"),
    Fault("odd dims of 8-bit queries in another order", "forward", TILE,
          "a >> 16 | (b & 0xffff0000u)", "b >> 16 | (a & 0xffff0000u)", INT8, WRONG),
    Fault("e4m3 values a power of two too small", "forward", TILE,
          "out[d][y] = out[d][y] * unit + 0.0f;", "out[d][y] = out[d][y] + 0.0f;", FP8, WRONG),
    Fault("bf16 multiplied as f16", "forward", TILE, "if (traits::BF16) mma_bf16(c, a, b0, b1);", "if (false) mma_bf16(c, a, b0, b1);",
          BF16, WRONG),
    Fault("the scale of a token that nobody sees", "forward", TILE,
          "if (!masked) return;", "return;", INT8, WRONG),
]

FOLDING = [
    Fault("one partial too many is folded", "forward", FOLD,
          "cell < row.cell + row.count;", "cell <= row.cell + row.count;", (FOLD,), WRONG),
    Fault("the first partial is left out", "forward", FOLD,
          "for (uint32_t cell = row.cell;", "for (uint32_t cell = row.cell + 1;", (FOLD,), WRONG),
    Fault("the partial of another query head", "forward", FOLD,
          "(uint64_t)cell * p.head_count + head;", "(uint64_t)cell * p.head_count;", (FOLD,), WRONG),
    Fault("outputs are not divided by their sum", "forward", FOLD,
          "const float inverse = span_inverse(sum);", "const float inverse = 1.0f;", (FOLD,), WRONG),
    Fault("bf16 rows written as f16", "forward", FOLD,
          "to[pair] = BF16 ? f32x2_to_bf16x2(x, y)", "to[pair] = false ? f32x2_to_bf16x2(x, y)", (FOLD,), WRONG),
    Fault("two warps write one head", "tsan", FOLD,
          "work < p.fold_count * p.head_count; work += warps)", "work < p.fold_count * p.head_count; work += warps - 1)", (FOLD,), RACE),
]

STORING = [
    Fault("rotation the other way", "forward", STORE, "make_float2(a * t.x - b * t.y, a * t.y + b * t.x);",
          "make_float2(a * t.x + b * t.y, a * t.y - b * t.x);", (STORE,), FAILED, "kv_store"),
    Fault("values are rotated too", "forward", STORE, "if (is_key) store_rotate(", "store_rotate(", (STORE,), FAILED, "kv_store"),
    Fault("8-bit rows as far apart as 16-bit ones", "asan", STORE, "slot * row_bytes,", "slot * 2 * p.head_dim,", (STORE,),
          r"heap-buffer-overflow", "kv_store"),
    Fault("the scale of slot 0 for every slot", "forward", STORE, "part.value_scale)) + slot, h", "part.value_scale)), h", (STORE,),
          FAILED, "kv_store"),
    Fault("slots of a block count to 32", "forward", STORE, "slot = p.row_slot[row];", "slot = p.row_slot[row] % 32;", (STORE,),
          FAILED, "kv_store"),
    Fault("half the lanes look for the largest value", "forward", STORE, "for (int x = 16; x; x /= 2)", "for (int x = 8; x; x /= 2)",
          (STORE,), FAILED, "kv_store"),
    Fault("one head too many is stored", "asan", STORE, "work < p.row_count * heads; work += warps)",
          "work <= p.row_count * heads; work += warps)", (STORE,), r"heap-buffer-overflow", "kv_store"),
    Fault("queries past the last dim are written", "tsan", STORE, "if (at < pairs) ((uint32_t *)to)[at] = bf16",
          "((uint32_t *)to)[at] = bf16", (STORE,), RACE, "kv_store"),
    Fault("f16 values are not clamped", "forward", STORE, "return x > 65504.0f ? 65504.0f : x <", "return x <", (STORE,), FAILED,
          "kv_store"),
    Fault("every lane writes the scale", "tsan", STORE, "if (threadIdx.x % 32 == 0) *scale =", "*scale =", (STORE,), RACE, "kv_store"),
]

PLANNING = [
    Fault("a span that is shared in part is shared", "forward", PLAN,
          ": common / plan->span_blocks;", ": (common + plan->span_blocks - 1) / plan->span_blocks;", (PLAN,), FAILED, "device_plan"),
    Fault("the second partial lies on the first", "forward", PLAN,
          ": span - row->prefix_end + 1;", ": span - row->prefix_end;", (PLAN,), FAILED, "device_plan"),
    Fault("a row's range ends with the span before", "forward", PLAN,
          "limit = min_u32(p->limit, set->span_end * SPAN);", "limit = min_u32(p->limit - 1, set->span_end * SPAN);", (PLAN,), FAILED,
          "device_plan"),
]

# What only some head dimensions have: queries in shared memory, folds in cells, lanes past the last dim.
SHAPES = [
    Fault("the warps of a CTA share one place for their queries", "tsan", KERNEL,
          "+ warp * (layout::QUERY + layout::FOLD);", "+ warp * layout::FOLD;", F16, RACE, head_dim=256),
    Fault("no room in shared memory for the queries", "asan", KERNEL,
          "+ warps * (QUERY + FOLD); }", "+ warps * FOLD; }", F16, r"use-after-poison", head_dim=256),
    Fault("steps of a query lie on each other", "forward", TILE,
          "query_shared[k * 32 + threadIdx.x % 32] = fragment;", "query_shared[k * 16 + threadIdx.x % 32] = fragment;", F16, WRONG,
          head_dim=256),
    Fault("a wide item's spans are not folded where they have no place in shared memory", "forward", KERNEL,
          "if (!KEEPS_FOLD && !is_first) {", "if (!WIDE && !is_first) {", F16, WRONG, head_dim=256),
    Fault("lanes past the last dim write", "tsan", FOLD,
          "if (PAIRS % 32 == 0 || pair < PAIRS) to[pair]", "to[pair]", (FOLD,), RACE, head_dim=80),
    Fault("lanes past the last dim read", "asan", FOLD,
          "if (PAIRS % 32 == 0 || pair < PAIRS) {", "{", (FOLD,), r"heap-buffer-overflow", head_dim=80),
]

DEVICE = "base/cuda/device_cuda.c"
BROKEN = r"device_test\.c:\d+: |assert"
MOVING = [
    Fault("an event counts as complete with an older one", "forward", DEVICE,
          "lane->complete = oldest->sequence;", "lane->complete = lane->given;", (DEVICE,), BROKEN, "device"),
    Fault("one stream does not wait for the other", "forward", DEVICE,
          "cudaError_t code = cudaStreamWaitEvent(lane->stream, found, 0);", "cudaError_t code = found ? cudaSuccess : cudaErrorNotReady;",
          (DEVICE,), BROKEN, "device"),
    Fault("copies on another stream than their events", "forward", DEVICE,
          "cudaMemcpyDefault, lane->stream);", "cudaMemcpyDefault, 0);", (DEVICE,), BROKEN, "device"),
    Fault("what a query says is not looked at", "forward", DEVICE,
          "cudaEventQuery(oldest->event);", "(cudaEventQuery(oldest->event), cudaSuccess);", (DEVICE,), BROKEN, "device"),
    Fault("an idle stream is asked in place of the event", "forward", DEVICE,
          "cudaEventQuery(oldest->event);", "cudaStreamQuery(0);", (DEVICE,), BROKEN, "device"),
    Fault("the event behind the newest is asked", "streams", DEVICE,
          "cudaEventQuery(oldest->event);", "cudaEventQuery(lane->slots[(lane->first + lane->count) % EVENTS_PER_STREAM].event);",
          (DEVICE,), BROKEN, "device"),
    Fault("an answer of not ready is left behind as an error", "forward", DEVICE,
          "            (void)cudaGetLastError(); /* the runtime remembers even this as an error */\n", "", (DEVICE,),
          r"cudaErrorNotReady", "attention_law"),
    Fault("a device is destroyed while its streams work", "forward", DEVICE,
          "(void)cudaStreamSynchronize(lane->stream);", "", (DEVICE,), BROKEN, "device"),
]

PRIMITIVES = [
    Fault("registers of B exchanged in an MMA", "ptx", PRIMS,
          'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "\n'
          '                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"',
          'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "\n'
          '                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%9, %8}, {%0, %1, %2, %3};"',
          PRIMS_TEST, r"mma_f16_0", "prims"),
    Fault("registers of A exchanged in an MMA", "ptx", PRIMS,
          'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "\n'
          '                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}',
          'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "\n'
          '                 "{%0, %1, %2, %3}, {%4, %6, %5, %7}',
          PRIMS_TEST, r"mma_bf16_0", "prims"),
    Fault("a matrix is loaded without transposing", "ptx", PRIMS, "m8n8.x4.trans.shared.b16", "m8n8.x4.shared.b16",
          PRIMS_TEST, r"transposed0", "prims"),
    Fault("halves of a pair exchanged", "ptx", PRIMS,
          'asm("cvt.rn.f16x2.f32 %0, %1, %2;"', 'asm("cvt.rn.f16x2.f32 %0, %2, %1;"', PRIMS_TEST, r"f16_pair", "prims"),
    Fault("bytes past the valid ones are copied", "ptx", PRIMS,
          "[%0], [%1], 16, %2;", "[%0], [%1], 16;", PRIMS_TEST, r"copy1", "prims"),
    Fault("one group more may be under way", "ptx", PRIMS,
          'asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");', 'asm volatile("cp.async.wait_group %0;" ::"n"(N + 1) : "memory");',
          PRIMS_TEST, r"not waited for|group_old", "prims"),
    Fault("a difference the wrong way round", "ptx", PRIMS,
          'asm("sub.rn.f16x2 %0, %1, %2;"', 'asm("sub.rn.f16x2 %0, %2, %1;"', PRIMS_TEST, r"f16_sub", "prims"),
    Fault("registers of B exchanged in the kernel", "ptx", PRIMS,
          'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "\n'
          '                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"',
          'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "\n'
          '                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%9, %8}, {%0, %1, %2, %3};"',
          F16, WRONG),
]

FAULTS = SPAN + LOADER + ARITHMETIC + FOLDING + STORING + PLANNING + SHAPES + MOVING + PRIMITIVES
