/* A set of cells as WORDS machine words, for the engine and for the search. Included once for each
 * size by files that have <stdint.h>. */
#define ALWAYS_INLINE __attribute__((always_inline))

#define WORD uint64_t
#define SET Bits
#define WITH(name) bits_##name
#include "words.h"

static inline int bits_any(Bits a) {
    uint64_t r = 0;
    for (int i = 0; i < WORDS; i++) r |= a.w[i];
    return r != 0;
}
static inline int bits_count(Bits a) {
    int r = 0;
    for (int i = 0; i < WORDS; i++) r += __builtin_popcountll(a.w[i]);
    return r;
}
static inline int bits_has(const Bits *a, int cell) { return (a->w[cell >> 6] >> (cell & 63)) & 1; }
static inline void bits_add(Bits *a, int cell) { a->w[cell >> 6] |= 1ull << (cell & 63); }
static inline void bits_drop(Bits *a, int cell) { a->w[cell >> 6] &= ~(1ull << (cell & 63)); }
