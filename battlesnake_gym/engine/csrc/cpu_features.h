/* Detects the vector extensions that the x86-64 processor and the operating system support. The
 * code executes CPUID directly, because __builtin_cpu_supports() reports no extensions with the Zig
 * compiler. */
#ifndef CPU_FEATURES_H
#define CPU_FEATURES_H

#if defined(__x86_64__) && defined(__GNUC__)
#define X86_VECTORS 1
#include <cpuid.h>

enum { HAS_AVX2 = 1, HAS_AVX512 = 2 };

/* Returns the features as HAS_... bits. HAS_AVX2 includes BMI, BMI2, LZCNT and POPCNT; HAS_AVX512
 * includes F, BW and VL. */
static inline int query_cpu_features(void) {
    enum { KEPT = 1 << 27, POPCNT = 1 << 23, LZCNT = 1 << 5 };
    enum { AVX2 = 1 << 5 | 1 << 3 | 1 << 8, AVX512F = 1 << 16, BW = 1 << 30 };
    unsigned a, b, c, d, features, more, kept = 0, kept_high;
    if (!__get_cpuid(1, &a, &b, &features, &d) || !(features & KEPT)) return 0;
    if (!__get_cpuid(0x80000001, &a, &b, &more, &d) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(kept_high) : "c"(0));
    int found = 0;
    if ((kept & 6) == 6 && (b & AVX2) == AVX2 && features & POPCNT && more & LZCNT)
        found = HAS_AVX2;
    if (found && (kept & 0xE0) == 0xE0 && b & AVX512F && b & BW && b >> 31) found |= HAS_AVX512;
    return found;
}

/* Returns whether the processor has all `wanted` features. */
static inline int cpu_has(int wanted) {
    static int found = -1; /* cached: CPUID is slow */
    if (found < 0) found = query_cpu_features();
    return (found & wanted) == wanted;
}
#endif

#endif
