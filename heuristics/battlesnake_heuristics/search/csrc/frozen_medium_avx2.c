/* Kernel of the frozen search for boards of up to 384 cells, with AVX2. */
#define WORDS 6
#define FROZEN 1
#define KERNEL frozen_medium_avx2
#include "search_kernel_avx2.h"
