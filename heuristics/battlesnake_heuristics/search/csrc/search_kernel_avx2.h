/* Compiles search_kernel.h for x86-64 processors with AVX2. A vector register can then store a
 * whole set of cells, and one instruction counts bits. The file is empty for other targets. */
#include "cpu_features.h"
#ifdef X86_VECTORS
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt"))), apply_to = function)
#include "search_kernel.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,bmi,bmi2,popcnt,lzcnt")
#include "search_kernel.h"
#endif
#endif
