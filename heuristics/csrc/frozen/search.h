/* The search of 2026, kept as it was: the upper rungs of the ladder (heuristics/ladder.py).
 *
 * This folder is a copy of the search in csrc at the time when the ladder was measured. A rung has
 * an Elo that does not move, so what plays on it must not move either: improvements go into csrc,
 * and nothing is shared with it. Only two things differ from the original, and no answer with
 * them: the table stays allocated and only what was written is cleared, which is most of the price
 * of a search of ten positions, and time may be CPU time. tests/heuristics/test_frozen.py pins the
 * answers.
 *
 * Here: what goes in, what comes out, and the knobs of the evaluation. Cells are y * width + x;
 * moves are 0 up, 1 down, 2 left, 3 right. */
#ifndef SEARCH_2026_H
#define SEARCH_2026_H

#include <stdint.h>

#define MAX_SNAKES 16
#define MAX_CELLS 625
#define MAX_DEPTH 120
#define OFF_BOARD 0xFFFF
#define WIN 1000000     /* a win now; one a turn later is worth one less */
#define PROVEN 900000   /* beyond this a value is a decided game, not an estimate */

/* Weights of the evaluation, in thousandths of a cell of territory. */
enum {
    W_TERRITORY,     /* a cell that only we reach first */
    W_HAZARD_CELL,   /* what is taken off for a cell of territory in hazard */
    W_LENGTH,        /* a segment longer than the longest rival, while the lead is small */
    W_LEAD,          /* segments of lead that still count */
    W_LONGEST,       /* being strictly longer than every rival */
    W_FOOD_NEAR,     /* food in our territory: this much over its distance */
    W_HUNGER,        /* the same, for each point of health below HUNGRY */
    W_HUNGRY,        /* health below which hunger counts (a health, not thousandths) */
    W_STARVING,      /* no food within health */
    W_CRAMPED,       /* a segment of ours that our territory has no room for */
    W_RIVAL,         /* a rival out of the game */
    W_DRAW,          /* what a drawn game costs */
    WEIGHTS
};

typedef struct Entry {
    uint64_t key;
    int32_t value;
    int16_t depth;
    uint8_t bound, move;
} Entry;

#define TABLE_SIZE (1u << 20)
#define MOST_WRITTEN (1u << 16) /* beyond this clearing all of the table is as fast */

/* The table of one thread; empty between calls. */
typedef struct {
    Entry table[TABLE_SIZE];
    uint32_t written[MOST_WRITTEN]; /* the first entries that are in use */
    uint32_t writes;                /* how many are */
} Workspace;

typedef struct {
    int width, height, snakes;      /* snake 0 is the one that thinks */
    int wrapped, constrictor, solo;
    int damage;                     /* health a layer of hazard takes */
    const int32_t *lengths;         /* [snakes], stacked segments included */
    const int32_t *health;          /* [snakes] */
    const uint16_t *bodies;         /* the cells of all bodies, head first, one after the other */
    const uint8_t *food;            /* [cells], 1 where food lies */
    const uint8_t *hazards;         /* [cells], layers of hazard */
    const int32_t *weights;         /* [WEIGHTS] */
    double seconds;                 /* time to think; not positive: no limit */
    int64_t nodes;                  /* positions to evaluate at most; not positive: no limit */
    int max_depth;                  /* turns to look ahead at most */
    Workspace *workspace;
} Question;

typedef struct {
    int move;                       /* the best one */
    int depth;                      /* turns that were searched to the end */
    int proven;                     /* 1: the value is that of a decided game */
    int64_t evaluated, visited;     /* leaf positions and all positions */
    int32_t scores[4];              /* value of each move: exact for the best, a bound for others */
    uint8_t searched[4];            /* whether the move was looked at */
    int line_length;                /* turns of the principal variation */
    uint8_t line[MAX_DEPTH][MAX_SNAKES]; /* the expected moves of all snakes, 4 for the dead */
} Answer;

extern int search_2026_cpu_clock; /* 1: seconds are CPU time of this process */

/* Think; returns 0, or -1 without memory. Keeps nothing between calls and calls no Python. */
int search_2026_small(const Question *question, Answer *answer);   /* up to 128 cells */
int search_2026_medium(const Question *question, Answer *answer);  /* up to 384 cells */
int search_2026_large(const Question *question, Answer *answer);   /* up to 640 cells */

#endif
