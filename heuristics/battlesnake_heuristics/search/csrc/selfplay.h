/* Whole games of the search against itself, without the interpreter: what goes in and comes out. */
#ifndef SELFPLAY_H
#define SELFPLAY_H

#include "search.h"

/* Who thinks: weights or a network, and for how long. */
typedef struct {
    const int32_t *weights; /* [WEIGHTS] */
    const Network *network; /* or NULL */
    int64_t nodes;          /* positions a move; 0: no limit */
    double seconds;         /* CPU seconds a move; 0: no limit */
    int decoupled;          /* as of a question */
} Player;

typedef struct {
    Question start;                     /* its rules, and the position; hazards [planes][cells] */
    int turn;                           /* of that position, for shrinks; rows count from 0 */
    int food_chance;                    /* in a hundred, where there is food; without any it comes */
    int shrink_every, planes;           /* royale: turns between two shrinks (0: none) */
    const Player *player[MAX_SNAKES];   /* by seat */
    uint64_t seed;
    int opening;                        /* turns that all move at random */
    int careful;                        /* first turns: twice the positions, twice that before, ... */
    int random_share;                   /* moves at random afterwards, in 65536 */
    int max_turns;
} GamePlan;

enum { MOVED_AT_RANDOM, SEARCHED, SEARCHED_IN_VAIN }; /* the last: and then moved at random */

/* A snake's view of a turn and what it did then. */
typedef struct {
    int16_t inputs[INPUTS];
    int32_t value;      /* the search's, in thousandths of a cell; 0 where it was not asked */
    int16_t turn;
    int16_t food;       /* the cell on which food appeared after the turn, or -1 */
    uint8_t seat, living, move, kind;
} Row;

typedef struct {
    Row *rows;          /* to be freed; those of a turn together, by seat */
    int64_t count, room;
    int64_t visited;
    int turns;
    int finished;       /* 0: stopped by max_turns */
    float points[MAX_SNAKES]; /* 1 for the last one alive, shared by those who died last */
} GameRecord;

#endif
