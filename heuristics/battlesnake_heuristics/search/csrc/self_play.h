/* Self-play: whole games of the search against itself, without the Python interpreter. */
#ifndef SELF_PLAY_H
#define SELF_PLAY_H

#include "search.h"

/* A self-play player: its evaluation and its limits per move. */
typedef struct {
    const int32_t *weights; /* [NUM_WEIGHTS] */
    const Network *network; /* network, or NULL for the handcrafted evaluation */
    int64_t max_nodes;      /* maximum nodes per move; 0: no limit */
    double time_limit_s;    /* CPU seconds per move; 0: no limit */
    int decoupled;          /* as in SearchRequest */
    float root_noise;       /* as in SearchRequest */
    /* Decoupled MCTS: 1 if snakes with equal players share one tree per turn. With two living
     * snakes, each snake has its own search again, with half of max_nodes. */
    int shared_tree;
} SelfPlayPlayer;

/* Settings of one game. All pointers are borrowed. */
typedef struct {
    SearchRequest start; /* rules and first position; hazards [planes][cells] */
    int turn;            /* turn of the first position, for shrinks; rows count turns from 0 */
    int food_chance;     /* percent per turn; food also appears if there is none */
    /* Number of turns between royale shrinks, 0 for none; number of hazard planes. */
    int shrink_every, planes;
    const SelfPlayPlayer *player[MAX_SNAKES]; /* by seat */
    /* Seed of food and random moves. */
    uint64_t seed;
    int random_opening_turns; /* maximum number of turns with random moves at the start */
    int node_doublings;       /* before this turn, max_nodes doubles for every earlier turn */
    /* Fraction of later moves that are random, scale 1/65536; only half of the games have such
     * moves. */
    int random_move_fraction;
    int max_turns;
} SelfPlayConfig;

/* Origin of a move. ROW_SEARCHED_RANDOM: searched, and then replaced by a random move. */
enum { ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM };

/* One sample: the position of a snake on a turn, and its move. */
typedef struct {
    int16_t inputs[NUM_INPUTS];
    int32_t value; /* value of the search in 1/1000 cell; 0 if not searched */
    int16_t turn;
    int16_t food; /* cell on which food appeared after the turn, or -1 */
    uint8_t seat, living, move, kind;
    uint8_t visits[4]; /* decoupled MCTS: fraction of the visits by move, scale 1/255; otherwise 0 */
} SelfPlayRow;

/* The record of one game. */
typedef struct {
    SelfPlayRow *rows; /* owned by the caller, who frees it; grouped by turn, then by seat */
    int64_t count, capacity;
    /* Number of nodes of all searches. */
    int64_t nodes;
    int turns;
    int finished; /* 0 if max_turns ended the game */
    /* The last survivor gets 1 point, or the snakes eliminated on the last turn share it. */
    float points[MAX_SNAKES];
} SelfPlayGame;

#endif
