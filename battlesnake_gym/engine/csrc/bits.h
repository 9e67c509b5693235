/* A set of cells as WORDS machine words, for the engine and for the search. Included once for each
 * size by files that have <stdint.h>. */
typedef struct {
    uint64_t w[WORDS];
} Bits;

static inline Bits bits_none(void) {
    Bits r;
    for (int i = 0; i < WORDS; i++) r.w[i] = 0;
    return r;
}
static inline Bits bits_and(Bits a, Bits b) {
    for (int i = 0; i < WORDS; i++) a.w[i] &= b.w[i];
    return a;
}
static inline Bits bits_or(Bits a, Bits b) {
    for (int i = 0; i < WORDS; i++) a.w[i] |= b.w[i];
    return a;
}
static inline Bits bits_minus(Bits a, Bits b) {
    for (int i = 0; i < WORDS; i++) a.w[i] &= ~b.w[i];
    return a;
}
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

/* Shifts by 1 to 63 cells, towards higher and lower cell numbers. */
static inline Bits bits_up(Bits a, int n) {
    for (int i = WORDS - 1; i > 0; i--) a.w[i] = a.w[i] << n | a.w[i - 1] >> (64 - n);
    a.w[0] <<= n;
    return a;
}
static inline Bits bits_down(Bits a, int n) {
    for (int i = 0; i < WORDS - 1; i++) a.w[i] = a.w[i] >> n | a.w[i + 1] << (64 - n);
    a.w[WORDS - 1] >>= n;
    return a;
}
/* The same by any number of cells. */
static inline Bits bits_far_up(Bits a, int n) {
    for (; n > 32; n -= 32) a = bits_up(a, 32);
    return n ? bits_up(a, n) : a;
}
static inline Bits bits_far_down(Bits a, int n) {
    for (; n > 32; n -= 32) a = bits_down(a, 32);
    return n ? bits_down(a, n) : a;
}

/* All cells one step away from any of `cells`; of a board with these columns at its borders. */
static inline __attribute__((always_inline)) Bits bits_beside(Bits cells, Bits board, Bits west,
                                                              Bits east, int width, int height,
                                                              int wrapped) {
    Bits sides = bits_or(bits_up(bits_minus(cells, east), 1), bits_down(bits_minus(cells, west), 1));
    Bits steps = bits_or(sides, bits_or(bits_up(cells, width), bits_down(cells, width)));
    if (wrapped) {
        int lift = width * (height - 1), row = width - 1;
        steps = bits_or(steps, bits_or(bits_far_up(cells, lift), bits_far_down(cells, lift)));
        steps = bits_or(steps, bits_or(bits_far_up(bits_and(cells, west), row),
                                       bits_far_down(bits_and(cells, east), row)));
    }
    return bits_and(steps, board);
}
