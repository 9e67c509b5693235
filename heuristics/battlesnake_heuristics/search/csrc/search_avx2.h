/* search_body.h by what x86 processors with AVX2 have: for sets of cells that is vector registers,
 * and an instruction that counts bits. Nothing where the compiler knows no such processors. */
#include "processor.h"
#ifdef X86_VECTORS
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt"))), apply_to = function)
#include "search_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,bmi,bmi2,popcnt,lzcnt")
#include "search_body.h"
#endif
#endif
