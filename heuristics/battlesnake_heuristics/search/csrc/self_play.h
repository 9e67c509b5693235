/* Self-play: whole games of the search against itself, without the Python interpreter. */
#ifndef SELF_PLAY_H
#define SELF_PLAY_H

#include "search.h"

/* A self-play player: its evaluation and its limits per move. */
typedef struct {
    const int32_t *weights; /* [NUM_WEIGHTS] */
    const Network *network; /* or NULL */
    int64_t max_nodes;      /* maximum nodes per move; 0: no limit */
    double time_limit_s;    /* CPU seconds per move; 0: no limit */
    int decoupled;          /* as in SearchRequest */
} SelfPlayPlayer;

/* The settings of one game. All pointers are borrowed. */
typedef struct {
    SearchRequest start; /* rules and first position; hazards [planes][cells] */
    int turn;            /* turn of that position, for shrinks; rows count turns from 0 */
    int food_chance;     /* percent per turn; food also appears when there is none */
    /* Royale: turns between shrinks, 0 for none; number of hazard planes. */
    int shrink_every, planes;
    const SelfPlayPlayer *player[MAX_SNAKES]; /* by seat */
    /* Seed of food and random moves. */
    uint64_t seed;
    int random_opening_turns; /* maximum number of turns with random moves at the start */
    int node_doublings;       /* before this turn, max_nodes doubles for every earlier turn */
    /* Later moves replaced by random ones, scale 1/65536; in half of the games. */
    int random_move_fraction;
    int max_turns;
} SelfPlayConfig;

/* How the move was chosen; the last: searched, then replaced by a random move. */
enum { ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM };

/* One sample: what a snake saw on a turn, and its move. */
typedef struct {
    int16_t inputs[NUM_INPUTS];
    int32_t value; /* value of the search in 1/1000 cell; 0 if not searched */
    int16_t turn;
    int16_t food; /* cell on which food appeared after the turn, or -1 */
    uint8_t seat, living, move, kind;
} SelfPlayRow;

/* The record of one game. */
typedef struct {
    SelfPlayRow *rows; /* owned by the caller, to be freed; grouped by turn, then by seat */
    int64_t count, capacity;
    /* Nodes of all searches. */
    int64_t nodes;
    int turns;
    int finished; /* 0 if max_turns ended the game */
    /* 1 point for the last survivor, shared by those eliminated on the last turn. */
    float points[MAX_SNAKES];
} SelfPlayGame;

#endif
