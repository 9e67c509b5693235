/* Search kernel for boards of up to 128 cells, with AVX2. */
#define WORDS 2
#define KERNEL small_avx2
#include "search_kernel_avx2.h"
