/* Template of sets of cells. WORD is a 64-bit word, or a vector of 64-bit words whose lanes contain
 * separate sets. A file includes this template once per kind, after it defines WORD, SET (the type)
 * and WITH(name) (the function names). Cell i is bit i % 64 of word i / 64. */
typedef struct {
    WORD w[WORDS];
} SET;

/* Returns the empty set. */
static inline ALWAYS_INLINE SET WITH(none)(void) {
    SET r;
    for (int i = 0; i < WORDS; i++) r.w[i] = (WORD){0};
    return r;
}
/* Returns the intersection. */
static inline ALWAYS_INLINE SET WITH(and)(SET a, SET b) {
    for (int i = 0; i < WORDS; i++) a.w[i] &= b.w[i];
    return a;
}
/* Returns the union. */
static inline ALWAYS_INLINE SET WITH(or)(SET a, SET b) {
    for (int i = 0; i < WORDS; i++) a.w[i] |= b.w[i];
    return a;
}
/* Returns the cells of `a` that are not in `b`. */
static inline ALWAYS_INLINE SET WITH(minus)(SET a, SET b) {
    for (int i = 0; i < WORDS; i++) a.w[i] &= ~b.w[i];
    return a;
}

/* Shift all cells by 1 to 63 indices: up() to higher indices, and down() to lower indices. */
static inline ALWAYS_INLINE SET WITH(up)(SET a, int n) {
    for (int i = WORDS - 1; i > 0; i--) a.w[i] = a.w[i] << n | a.w[i - 1] >> (64 - n);
    a.w[0] <<= n;
    return a;
}
/* See up(). */
static inline ALWAYS_INLINE SET WITH(down)(SET a, int n) {
    for (int i = 0; i < WORDS - 1; i++) a.w[i] = a.w[i] >> n | a.w[i + 1] << (64 - n);
    a.w[WORDS - 1] >>= n;
    return a;
}
/* Shifts by any number of cells; up() and down() allow at most 63 cells. */
static inline ALWAYS_INLINE SET WITH(far_up)(SET a, int n) {
    for (; n > 32; n -= 32) a = WITH(up)(a, 32);
    return n ? WITH(up)(a, n) : a;
}
/* See far_up(). */
static inline ALWAYS_INLINE SET WITH(far_down)(SET a, int n) {
    for (; n > 32; n -= 32) a = WITH(down)(a, 32);
    return n ? WITH(down)(a, n) : a;
}

/* Returns the cells of `open` that are one step away from a cell of `cells`. `west` and `east` are
 * the border columns of the board. */
static inline ALWAYS_INLINE SET WITH(beside)(SET cells, SET open, SET west, SET east, int width,
                                             int height, int wrapped) {
    SET sides = WITH(or)(WITH(up)(WITH(minus)(cells, east), 1), WITH(down)(WITH(minus)(cells, west), 1));
    SET steps = WITH(or)(sides, WITH(or)(WITH(up)(cells, width), WITH(down)(cells, width)));
    if (wrapped) {
        int lift = width * (height - 1), row = width - 1;
        steps = WITH(or)(steps, WITH(or)(WITH(far_up)(cells, lift), WITH(far_down)(cells, lift)));
        steps = WITH(or)(steps, WITH(or)(WITH(far_up)(WITH(and)(cells, west), row),
                                         WITH(far_down)(WITH(and)(cells, east), row)));
    }
    return WITH(and)(steps, open);
}
#undef WORD
#undef SET
#undef WITH
