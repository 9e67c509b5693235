/* Territory computation: simultaneous floods from all heads, with LANES snakes in the lanes of a
 * vector and ROWS vectors. evaluate.h includes this template for up to two, up to four and more
 * snakes. */
#pragma GCC diagnostic ignored "-Wpsabi" /* all functions with vector arguments are inlined */
#define LANE_NAME_(name, lanes, rows) name##lanes##_##rows
#define LANE_NAME(name, lanes, rows) LANE_NAME_(name, lanes, rows)
#define LANE_U64 LANE_NAME(Lane, LANES, ROWS)
#define LANE_I64 LANE_NAME(Number, LANES, ROWS)
#define LANE_SETS LANE_NAME(Sets, LANES, ROWS)
#define LANE_FN(name) LANE_NAME(sets_##name##_, LANES, ROWS)

typedef uint64_t LANE_U64 __attribute__((vector_size(8 * LANES)));
typedef int64_t LANE_I64 __attribute__((vector_size(8 * LANES)));
#define WORD LANE_U64
#define SET LANE_SETS
#define WITH LANE_FN
#include "bitset_template.h"

/* Loads one word per lane. */
static inline ALWAYS_INLINE LANE_U64 LANE_FN(lanes)(const uint64_t *words) {
#if LANES == 2
    return (LANE_U64){words[0], words[1]};
#else
    return (LANE_U64){words[0], words[1], words[2], words[3]};
#endif
}

/* Rotates the lanes by one. */
static inline ALWAYS_INLINE LANE_U64 LANE_FN(rotate_lanes)(LANE_U64 v) {
#if LANES == 2
    return (LANE_U64){v[1], v[0]};
#else
    return (LANE_U64){v[1], v[2], v[3], v[0]};
#endif
}

/* Copies a set to every lane. */
static inline ALWAYS_INLINE LANE_SETS LANE_FN(in_all)(Bits cells) {
    LANE_SETS r;
    for (int i = 0; i < WORDS; i++) r.w[i] = (LANE_U64){0} + cells.w[i];
    return r;
}

/* Returns the set in one lane. */
static inline ALWAYS_INLINE Bits LANE_FN(lane)(const LANE_SETS *sets, int lane) {
    Bits r;
    for (int i = 0; i < WORDS; i++) r.w[i] = sets->w[i][lane];
    return r;
}

/* Returns all ones in the lanes whose set is not empty. */
static inline ALWAYS_INLINE LANE_U64 LANE_FN(any)(LANE_SETS sets) {
    LANE_U64 any = sets.w[0];
    for (int i = 1; i < WORDS; i++) any |= sets.w[i];
    return (LANE_U64)(any != 0);
}

/* Resolves cells that several snakes reach on the same turn: each cell belongs to the strictly
 * longest of these snakes, or to no snake. Writes the cells of each snake to `won`; returns, in
 * every lane, the cells reached by any snake. */
static inline ALWAYS_INLINE LANE_SETS LANE_FN(resolve_contested)(const LANE_SETS *reached,
                                                                 const LANE_I64 *length, int rows,
                                                                 LANE_SETS *won) {
    LANE_SETS newly_reached = LANE_FN(none)();
    for (int a = 0; a < rows; a++) {
        LANE_SETS lost_cells = newly_reached = LANE_FN(none)();
        for (int b = 0; b < rows; b++) {
            LANE_I64 opponent_length = length[b];
            LANE_SETS theirs = reached[b];
            for (int turn = 0; turn < LANES; turn++) {
                LANE_U64 yields =
                    turn || a != b ? (LANE_U64)(opponent_length >= length[a]) : (LANE_U64){0};
                for (int i = 0; i < WORDS; i++) {
                    lost_cells.w[i] |= theirs.w[i] & yields;
                    newly_reached.w[i] |= theirs.w[i];
                    theirs.w[i] = LANE_FN(rotate_lanes)(theirs.w[i]);
                }
                opponent_length = (LANE_I64)LANE_FN(rotate_lanes)((LANE_U64)opponent_length);
            }
        }
        for (int i = 0; i < WORDS; i++) won[a].w[i] = reached[a].w[i] & ~lost_cells.w[i];
    }
    return newly_reached;
}

/* Resolves contested cells pair by pair, as in the frozen search. With three snakes, the last snake
 * can win a cell that two longer snakes lose to each other. */
static inline void LANE_FN(resolve_contested_frozen)(LANE_SETS *won, const LANE_I64 *length,
                                                     int count) {
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            LANE_SETS *ours = &won[i / LANES], *theirs = &won[j / LANES];
            int64_t more = length[i / LANES][i % LANES] - length[j / LANES][j % LANES];
            for (int k = 0; k < WORDS; k++) {
                uint64_t both = ours->w[k][i % LANES] & theirs->w[k][j % LANES];
                if (more <= 0) ours->w[k][i % LANES] &= ~both;
                if (more >= 0) theirs->w[k][j % LANES] &= ~both;
            }
        }
}

/* Computes the territories. On each turn, every snake reaches the free neighbors of its cells. */
static inline ALWAYS_INLINE void LANE_FN(spread)(const Search *search, const Position *pos,
                                                 const int *alive, int count, Territory *out) {
    Bits free = bits_minus(search->board, pos->occupied);
    LANE_SETS owned[ROWS], reached[ROWS], won[ROWS];
    LANE_SETS reached_by_any = LANE_FN(none)(), food = LANE_FN(in_all)(pos->food);
    const LANE_SETS west = LANE_FN(in_all)(search->left_column);
    const LANE_SETS east = LANE_FN(in_all)(search->right_column);
    LANE_I64 length[ROWS];
    LANE_U64 no_food_yet[ROWS], turns_without_food[ROWS], turns_without_cell[ROWS];
    const SearchRequest *request = search->request;
    const int rows = ROWS == 1 ? 1 : (count + LANES - 1) / LANES;
    for (int row = 0; row < rows; row++) {
        uint64_t head[WORDS][LANES], segments[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int i = row * LANES + lane, s = i < count ? alive[i] : 0;
            Bits cell = i < count ? search->cell_bits[head_of(search, pos, s)] : bits_none();
            segments[lane] = i < count ? pos->snake[s].length : 0;
            for (int w = 0; w < WORDS; w++) head[w][lane] = cell.w[w];
        }
        for (int w = 0; w < WORDS; w++) owned[row].w[w] = LANE_FN(lanes)(head[w]);
        length[row] = (LANE_I64)LANE_FN(lanes)(segments);
        turns_without_food[row] = turns_without_cell[row] = (LANE_U64){0};
        no_food_yet[row] = ~(LANE_U64){0};
    }
    out->soon[0] = out->later[0] = 0; /* 0 means not set, because the own head is always one cell */
    Tail tails[MAX_SNAKES];
    const int last_vacated =
        request->constrictor ? 0 : init_tails(search, pos, alive, count, tails);
    int turn = 1;
    for (; turn < UNREACHED; turn++) {
        if (turn <= last_vacated) free = free_tails(search, tails, count, turn, free);
        LANE_SETS open = LANE_FN(minus)(LANE_FN(in_all)(free), reached_by_any);
        for (int row = 0; row < rows; row++)
            reached[row] = LANE_FN(beside)(owned[row], open, west, east, request->width,
                                           request->height, request->wrapped);
        if (turn == 1)
            for (int i = 0; i < count; i++)
                out->num_exits[i] = bits_count(LANE_FN(lane)(&reached[i / LANES], i % LANES));
        LANE_SETS newly_reached = LANE_FN(resolve_contested)(reached, length, rows, won);
        if (turn > 3 && !bits_any(LANE_FN(lane)(&newly_reached, 0))) break;
        if (LANES > 2 && FROZEN) {
            memcpy(won, reached, rows * sizeof *won);
            LANE_FN(resolve_contested_frozen)(won, length, count);
        }
        reached_by_any = LANE_FN(or)(reached_by_any, newly_reached);
        for (int row = 0; row < rows; row++) {
            owned[row] = LANE_FN(or)(owned[row], won[row]);
            no_food_yet[row] &= ~LANE_FN(any)(LANE_FN(and)(won[row], food));
            turns_without_food[row] -= no_food_yet[row];
            turns_without_cell[row] = (turns_without_cell[row] + 1) & ~LANE_FN(any)(won[row]);
        }
        if (turn == SOON_TURNS || turn == LATER_TURNS)
            for (int i = 0; i < count; i++)
                (turn == SOON_TURNS ? out->soon : out->later)[i] =
                    bits_count(LANE_FN(lane)(&owned[i / LANES], i % LANES));
    }
    for (int i = 0; i < count; i++) {
        int row = i / LANES, lane = i % LANES;
        out->owned[i] = LANE_FN(lane)(&owned[row], lane);
        out->turns_to_food[i] =
            no_food_yet[row][lane] ? UNREACHED : turns_without_food[row][lane] + 1;
        out->last_turn[i] = turn - 1 - (int)turns_without_cell[row][lane];
        out->cells[i] = bits_count(out->owned[i]);
    }
    out->reached_by_any = LANE_FN(lane)(&reached_by_any, 0);
    if (!out->soon[0]) memcpy(out->soon, out->cells, sizeof out->soon);
    if (!out->later[0]) memcpy(out->later, out->cells, sizeof out->later);
}
#undef LANE_FN
#undef LANE_SETS
#undef LANE_I64
#undef LANE_U64
#undef LANE_NAME
#undef LANE_NAME_
#undef LANES
#undef ROWS
