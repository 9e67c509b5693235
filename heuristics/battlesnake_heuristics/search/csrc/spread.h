/* How snakes spread over the board, LANES of them side by side in the lanes of vectors, in ROWS of as many.
 * Included by evaluate.h for up to two snakes, for up to four and for more. */
#pragma GCC diagnostic ignored "-Wpsabi" /* all that hand over lanes are inlined */
#define JOINED(name, lanes, rows) name##lanes##_##rows
#define NAMED(name, lanes, rows) JOINED(name, lanes, rows)
#define LANE NAMED(Lane, LANES, ROWS)
#define NUMBER NAMED(Number, LANES, ROWS)
#define SETS NAMED(Sets, LANES, ROWS)
#define SETS_(name) NAMED(sets_##name##_, LANES, ROWS)

typedef uint64_t LANE __attribute__((vector_size(8 * LANES)));
typedef int64_t NUMBER __attribute__((vector_size(8 * LANES)));
#define WORD LANE
#define SET SETS
#define WITH SETS_
#include "words.h"

static inline ALWAYS_INLINE LANE SETS_(lanes)(const uint64_t *words) {
#if LANES == 2
    return (LANE){words[0], words[1]};
#else
    return (LANE){words[0], words[1], words[2], words[3]};
#endif
}

/* Each lane's neighbour. */
static inline ALWAYS_INLINE LANE SETS_(turned)(LANE v) {
#if LANES == 2
    return (LANE){v[1], v[0]};
#else
    return (LANE){v[1], v[2], v[3], v[0]};
#endif
}

static inline ALWAYS_INLINE SETS SETS_(in_all)(Bits cells) {
    SETS r;
    for (int i = 0; i < WORDS; i++) r.w[i] = (LANE){0} + cells.w[i];
    return r;
}

static inline ALWAYS_INLINE Bits SETS_(lane)(const SETS *sets, int lane) {
    Bits r;
    for (int i = 0; i < WORDS; i++) r.w[i] = sets->w[i][lane];
    return r;
}

/* All bits of the lanes in which a cell is in the set. */
static inline ALWAYS_INLINE LANE SETS_(any)(SETS sets) {
    LANE any = sets.w[0];
    for (int i = 1; i < WORDS; i++) any |= sets.w[i];
    return (LANE)(any != 0);
}

/* Cells that several snakes reach in the same turn go to the one that is longer than all others, or to
 * none. Returns, in every lane, the cells that any reaches. */
static inline ALWAYS_INLINE SETS SETS_(settle)(const SETS *reached, const NUMBER *length, int rows,
                                               SETS *won) {
    SETS fresh = SETS_(none)();
    for (int a = 0; a < rows; a++) {
        SETS lost = fresh = SETS_(none)();
        for (int b = 0; b < rows; b++) {
            NUMBER rival = length[b];
            SETS theirs = reached[b];
            for (int turn = 0; turn < LANES; turn++) {
                LANE yields = turn || a != b ? (LANE)(rival >= length[a]) : (LANE){0};
                for (int i = 0; i < WORDS; i++) {
                    lost.w[i] |= theirs.w[i] & yields;
                    fresh.w[i] |= theirs.w[i];
                    theirs.w[i] = SETS_(turned)(theirs.w[i]);
                }
                rival = (NUMBER)SETS_(turned)((LANE)rival);
            }
        }
        for (int i = 0; i < WORDS; i++) won[a].w[i] = reached[a].w[i] & ~lost.w[i];
    }
    return fresh;
}

/* The same for pairs. Of three, as the search of 2026 had it, the last could get a cell that two longer
 * ones lost. */
static inline void SETS_(settle_pairs)(SETS *won, const NUMBER *length, int count) {
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            SETS *ours = &won[i / LANES], *theirs = &won[j / LANES];
            int64_t more = length[i / LANES][i % LANES] - length[j / LANES][j % LANES];
            for (int k = 0; k < WORDS; k++) {
                uint64_t both = ours->w[k][i % LANES] & theirs->w[k][j % LANES];
                if (more <= 0) ours->w[k][i % LANES] &= ~both;
                if (more >= 0) theirs->w[k][j % LANES] &= ~both;
            }
        }
}

/* Each turn the snakes reach cells one step further, if these are free by then. */
static inline ALWAYS_INLINE void SETS_(spread)(const Search *search, const Position *at,
                                               const int *alive, int count, Territory *out) {
    Bits free = bits_minus(search->board, at->occupied);
    SETS owned[ROWS], reached[ROWS], won[ROWS], taken = SETS_(none)(), food = SETS_(in_all)(at->food);
    const SETS west = SETS_(in_all)(search->left_column), east = SETS_(in_all)(search->right_column);
    NUMBER length[ROWS];
    LANE unfed[ROWS], waited[ROWS], last[ROWS];
    const Question *ask = search->ask;
    const int rows = ROWS == 1 ? 1 : (count + LANES - 1) / LANES;
    for (int row = 0; row < rows; row++) {
        uint64_t head[WORDS][LANES], segments[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int i = row * LANES + lane, s = i < count ? alive[i] : 0, cell = head_of(search, at, s);
            segments[lane] = i < count ? at->snake[s].length : 0;
            for (int w = 0; w < WORDS; w++)
                head[w][lane] = i < count && cell >> 6 == w ? 1ull << (cell & 63) : 0;
        }
        for (int w = 0; w < WORDS; w++) owned[row].w[w] = SETS_(lanes)(head[w]);
        length[row] = (NUMBER)SETS_(lanes)(segments);
        waited[row] = last[row] = (LANE){0};
        unfed[row] = ~(LANE){0};
    }
    out->soon[0] = out->later[0] = 0; /* the head's cell is its own, so 0 is none yet */
    int bodies = !ask->constrictor;
    for (int turn = 1; turn < UNREACHED; turn++) {
        if (bodies) bodies = free_tails(search, at, alive, count, turn, &free);
        SETS open = SETS_(minus)(SETS_(in_all)(free), taken);
        for (int row = 0; row < rows; row++)
            reached[row] = SETS_(beside)(owned[row], open, west, east, ask->width, ask->height,
                                         ask->wrapped);
        if (turn == 1)
            for (int i = 0; i < count; i++)
                out->moves[i] = bits_count(SETS_(lane)(&reached[i / LANES], i % LANES));
        SETS fresh = SETS_(settle)(reached, length, rows, won);
        if (turn > 3 && !bits_any(SETS_(lane)(&fresh, 0))) break;
        if (LANES > 2 && ask->of_2026) {
            memcpy(won, reached, rows * sizeof *won);
            SETS_(settle_pairs)(won, length, count);
        }
        taken = SETS_(or)(taken, fresh);
        for (int row = 0; row < rows; row++) {
            owned[row] = SETS_(or)(owned[row], won[row]);
            unfed[row] &= ~SETS_(any)(SETS_(and)(won[row], food));
            waited[row] -= unfed[row];
            LANE more = SETS_(any)(won[row]);
            last[row] = (last[row] & ~more) | (more & (uint64_t)turn);
        }
        if (turn == SOON || turn == LATER)
            for (int i = 0; i < count; i++)
                (turn == SOON ? out->soon : out->later)[i] =
                    bits_count(SETS_(lane)(&owned[i / LANES], i % LANES));
    }
    for (int i = 0; i < count; i++) {
        int row = i / LANES, lane = i % LANES;
        out->owned[i] = SETS_(lane)(&owned[row], lane);
        out->food_at[i] = unfed[row][lane] ? UNREACHED : waited[row][lane] + 1;
        out->last[i] = last[row][lane];
        out->cells[i] = bits_count(out->owned[i]);
    }
    out->taken = SETS_(lane)(&taken, 0);
    if (!out->soon[0]) memcpy(out->soon, out->cells, sizeof out->soon);
    if (!out->later[0]) memcpy(out->later, out->cells, sizeof out->later);
}
#undef SETS_
#undef SETS
#undef NUMBER
#undef LANE
#undef NAMED
#undef JOINED
#undef LANES
#undef ROWS
