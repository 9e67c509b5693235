/* Search kernel for boards of up to 640 cells, with AVX2. */
#define WORDS 10
#define KERNEL large_avx2
#include "search_kernel_avx2.h"
