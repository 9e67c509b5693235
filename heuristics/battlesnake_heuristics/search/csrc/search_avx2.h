/* search_body.h by what x86 processors with AVX2 have: for sets of cells that is vector registers,
 * and an instruction that counts bits. Nothing where the compiler knows no such processors. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#pragma GCC target("avx2,bmi,bmi2,popcnt,lzcnt")
#include "search_body.h"
#endif
