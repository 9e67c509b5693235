/* The search for boards of up to 128 cells on processors with AVX2. */
#define WORDS 2
#define CODE small_avx2
#include "search_avx2.h"
