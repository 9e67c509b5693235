/* Search kernel for boards of up to 384 cells, with AVX2. */
#define WORDS 6
#define KERNEL medium_avx2
#include "search_kernel_avx2.h"
