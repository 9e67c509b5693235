/* Kernel of the frozen search for boards of up to 128 cells, with AVX2. */
#define WORDS 2
#define FROZEN 1
#define KERNEL frozen_small_avx2
#include "search_kernel_avx2.h"
