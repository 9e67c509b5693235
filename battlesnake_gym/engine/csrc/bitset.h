/* A set of cells in WORDS words of 64 bits, for the engine and the search. A file includes this
 * header once per board size, after <stdint.h>. */
#define ALWAYS_INLINE __attribute__((always_inline))

#define WORD uint64_t
#define SET Bits
#define WITH(name) bits_##name
#include "bitset_template.h"

/* Returns 1 if the set is not empty. */
static inline int bits_any(Bits a) {
    uint64_t r = 0;
    for (int i = 0; i < WORDS; i++) r |= a.w[i];
    return r != 0;
}
/* Returns the number of cells in the set. */
static inline int bits_count(Bits a) {
    int r = 0;
    for (int i = 0; i < WORDS; i++) r += __builtin_popcountll(a.w[i]);
    return r;
}
/* Returns 1 if the set contains the cell. */
static inline int bits_has(const Bits *a, int cell) { return (a->w[cell >> 6] >> (cell & 63)) & 1; }
/* Adds a cell to the set. */
static inline void bits_add(Bits *a, int cell) { a->w[cell >> 6] |= 1ull << (cell & 63); }
/* Removes a cell from the set. */
static inline void bits_remove(Bits *a, int cell) { a->w[cell >> 6] &= ~(1ull << (cell & 63)); }
