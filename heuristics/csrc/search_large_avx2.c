/* The search for boards of up to 640 cells on processors with AVX2. */
#include "avx2.h"
#ifdef HAVE_AVX2
#define WORDS 10
#define CODE large_avx2
#include "search_body.h"
#endif
