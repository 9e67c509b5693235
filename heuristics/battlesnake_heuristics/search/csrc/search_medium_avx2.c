/* The search for boards of up to 384 cells on processors with AVX2. */
#define WORDS 6
#define CODE medium_avx2
#include "search_avx2.h"
