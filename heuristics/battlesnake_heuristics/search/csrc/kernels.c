/* Selection of the kernel of a search by board size and instruction set, and settings of all
 * searches of the process. */
#include <string.h>

#include "cpu_features.h"
#include "kernels.h"

int search_uses_cpu_clock;
double search_throttle_fraction, search_throttle_start[2];

#ifdef X86_VECTORS
static int has_avx2(void) { return cpu_has(HAS_AVX2); }
#else
static int has_avx2(void) { return 0; }
#endif

/* This flag is 1 if select_isa() selected AVX2. */
static int uses_avx2;

const char *select_isa(const char *name) {
    int best = !strcmp(name, "best");
    if ((best || !strcmp(name, "avx2")) && has_avx2()) {
        uses_avx2 = 1;
        return "avx2";
    }
    if (!best && strcmp(name, "plain")) return NULL;
    uses_avx2 = 0;
    return "plain";
}

/* Returns the index of the smallest kernel for a board of `cells` cells. */
static int size_index(int cells) { return cells <= 128 ? 0 : cells <= 384 ? 1 : 2; }

const Kernel *kernel_for(int cells) {
    static const Kernel *const plain[] = {&small_plain, &medium_plain, &large_plain};
#ifdef X86_VECTORS
    static const Kernel *const avx2[] = {&small_avx2, &medium_avx2, &large_avx2};
    if (uses_avx2) return avx2[size_index(cells)];
#endif
    return plain[size_index(cells)];
}

#ifndef __wasi__ /* the web page never runs the frozen search */
const Kernel *frozen_kernel_for(int cells) {
    static const Kernel *const plain[] = {&frozen_small_plain, &frozen_medium_plain,
                                          &frozen_large_plain};
#ifdef X86_VECTORS
    static const Kernel *const avx2[] = {&frozen_small_avx2, &frozen_medium_avx2,
                                         &frozen_large_avx2};
    if (uses_avx2) return avx2[size_index(cells)];
#endif
    return plain[size_index(cells)];
}
#endif
