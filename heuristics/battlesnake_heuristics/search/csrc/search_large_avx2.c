/* The search for boards of up to 640 cells on processors with AVX2. */
#define WORDS 10
#define CODE large_avx2
#include "search_avx2.h"
