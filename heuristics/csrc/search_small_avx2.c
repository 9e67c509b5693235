/* The search for boards of up to 128 cells on processors with AVX2. */
#include "avx2.h"
#ifdef HAVE_AVX2
#define WORDS 2
#define CODE small_avx2
#include "search_body.h"
#endif
