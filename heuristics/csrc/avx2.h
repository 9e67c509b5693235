/* Lets the compiler use what x86 processors with AVX2 have, in all that follows in the file: for
 * sets of cells that is vector registers, and an instruction that counts bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_AVX2
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#pragma GCC target("avx2,bmi,bmi2,popcnt,lzcnt")
#endif
