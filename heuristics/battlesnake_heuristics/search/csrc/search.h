/* The search behind battlesnake_heuristics/search/search.py: what goes in, what comes out, and the
 * knobs of the evaluation. Cells are y * width + x; moves are 0 up, 1 down, 2 left, 3 right. */
#ifndef SEARCH_H
#define SEARCH_H

#include <stdint.h>

#include "network.h"

#define MAX_SNAKES 16
#define MAX_CELLS 625
#define MAX_DEPTH 120
#define OFF_BOARD 0xFFFF
#define WIN 1000000     /* a win now; one a turn later is worth one less */
#define PROVEN 900000   /* beyond this a value is a decided game, not an estimate */
#define MOST_DAMAGE 1000 /* of a layer of hazard; more than 100 is as much as 100 */

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

typedef struct {
    int width, height, snakes;      /* snake 0 is the one that thinks */
    int wrapped, constrictor, solo;
    int damage;                     /* health a layer of hazard takes */
    const int32_t *lengths;         /* [snakes], stacked segments included */
    const int32_t *health;          /* [snakes], 0 for a snake that is out */
    const uint16_t *bodies;         /* the cells of all bodies, head first, one after the other */
    const uint8_t *food;            /* [cells], 1 where food lies */
    const uint8_t *hazards;         /* [cells], layers of hazard */
    const int32_t *weights;         /* [WEIGHTS] */
    const Network *network;         /* values positions instead of most weights; may be NULL */
    double seconds;                 /* time to think; not positive: no limit */
    int64_t nodes;                  /* positions to evaluate at most; not positive: no limit */
    int first_depth;                /* turns to look ahead at first: 1, or more beside another search */
    int exact;                      /* every score must be exact, not only the best move's */
    int decoupled;                  /* among several, valued by a network: each snake picks for itself */
    int of_2026;                    /* as the ladder's rungs: nothing since that changes a move */
    int max_depth;                  /* turns to look ahead at most */
    int (*interrupted)(void *);     /* asked now and then; not 0: give up. May be NULL */
    void *caller;                   /* what it is given */
} Question;

typedef struct {
    int move;                       /* the best one */
    int depth;                      /* turns that were searched to the end */
    int proven;                     /* 1: the value is that of a decided game */
    int64_t evaluated, visited;     /* leaf positions and all positions */
    int32_t scores[4];              /* value of each move: exact for the best, a bound for others */
    uint8_t searched[4];            /* whether the move was looked at */
    uint32_t visits[4];             /* of a decoupled search: how often it was tried */
    int line_length;                /* turns of the principal variation */
    uint8_t line[MAX_DEPTH][MAX_SNAKES]; /* the expected moves of all snakes, 4 for the dead */
} Answer;

/* A position as the rules see it, to be held against them. */
typedef struct {
    uint64_t key;                   /* equal for equal positions */
    uint8_t alive[MAX_SNAKES];
    int32_t health[MAX_SNAKES], length[MAX_SNAKES];
    uint16_t body[MAX_SNAKES][MAX_CELLS + MAX_DEPTH]; /* head first, stacked segments included */
    uint8_t food[MAX_CELLS];
} Outcome;

extern int search_cpu_clock; /* 1: seconds are CPU time of this process */
extern double search_pace;   /* of a core, near the deadline; not positive: a search never rests */
extern double search_calm[2]; /* CPU time, and the seconds left, when a search began to rest */

#endif
