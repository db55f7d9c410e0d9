/* cpu_features.c - asks the processor (cpuid), the kernel's saved state (xgetbv) and, for AMX, the kernel itself.
 *
 * A feature counts only when the kernel saves its registers. Not remembered here: callers ask once and pass it on.
 */
#include "base/cpu_features.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cgroup_internal.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum {
    CPUID_7_EDX_AMX_TILE = 1 << 24, /* compilers name these two differently */
    CPUID_7_EDX_AMX_INT8 = 1 << 25,
    ARCH_REQ_XCOMP_PERM_CODE = 0x1023, /* <asm/prctl.h> of kernels since 5.16 */
    XFEATURE_XTILEDATA = 18,
    XCR0_YMM = 0x6,       /* sse, ymm */
    XCR0_ZMM = 0xe6,      /* sse, ymm, opmask, both zmm halves */
    XCR0_AMX = 0x3 << 17, /* tile configuration and data */
};

static uint64_t xgetbv(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_bits(uint64_t value, uint32_t bits) { return (value & bits) == bits; }

static void model_name(char model[64]) {
    unsigned r[12] = {0};
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3])) return;
    const char *name = (const char *)r;
    while (*name == ' ' && name < (const char *)r + 47) name++;
    size_t length = strnlen(name, (size_t)((const char *)r + 48 - name));
    while (length && name[length - 1] == ' ') length--;
    if (length) {
        memcpy(model, name, length);
        model[length] = 0;
    }
}

static bool amx_permitted(void) { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_CODE, XFEATURE_XTILEDATA) == 0; }

static void features_read(qr_cpu_features *features) {
    unsigned a, b, c, d, b7, c7, d7;
    model_name(features->model);
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return;
    bool base_ok = has_bits(c, bit_AVX | bit_FMA | bit_F16C);
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return;
    uint64_t saved = xgetbv();
    features->avx2 = base_ok && (b7 & bit_AVX2) && has_bits(saved, XCR0_YMM);
    features->avx512 =
        features->avx2 && has_bits(saved, XCR0_ZMM) && has_bits(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
    features->avx512_vnni = features->avx512 && (c7 & bit_AVX512VNNI);
    features->amx_int8 = features->avx512_vnni && has_bits(d7, CPUID_7_EDX_AMX_TILE | CPUID_7_EDX_AMX_INT8) &&
                         has_bits(saved, XCR0_AMX) && amx_permitted();
}
#else
static void features_read(qr_cpu_features *features) { (void)features; }
#endif

void qr_cpu_features_detect(qr_cpu_features *features) {
    *features = (qr_cpu_features){.model = "unknown processor"};
    features_read(features);
}

static unsigned affinity_count(void) {
    enum { CPUS_MAX = 8192 };
    cpu_set_t set[CPUS_MAX / CPU_SETSIZE];
    CPU_ZERO_S(sizeof set, set);
    if (sched_getaffinity(0, sizeof set, set) != 0) return 1;
    int count = CPU_COUNT_S(sizeof set, set);
    return count > 0 ? (unsigned)count : 1;
}

unsigned qr_cpu_count(void) {
    unsigned cores = affinity_count();
    uint64_t quota = qr_cgroup_cpu_millicores("");
    if (quota / 1000 >= cores) return cores;
    unsigned allowed = (unsigned)((quota + 999) / 1000);
    return allowed ? allowed : 1;
}
