/* Self-play: whole games of the search against itself, without the Python interpreter. */
#ifndef SELF_PLAY_H
#define SELF_PLAY_H

#include "search.h"

/* A player of self-play games: evaluation, limits per move, and options of decoupled MCTS. */
typedef struct {
    const int32_t *weights; /* [NUM_WEIGHTS] */
    const Network *network; /* network, or NULL for the handcrafted evaluation */
    int64_t max_nodes;      /* maximum nodes per move; 0: no limit */
    double time_limit_s;    /* CPU seconds per move; 0: no limit */
    int min_decoupled_snakes; /* as in SearchRequest */
    float root_noise;       /* weight of Dirichlet noise at the root, 0 to 1 */
    /* Decoupled MCTS: 1 if snakes with equal players share one tree per turn. With two living
     * snakes, each snake again runs a separate search with half of max_nodes. */
    int shared_tree;
} SelfPlayPlayer;

/* Settings of one game. All pointers are borrowed. */
typedef struct {
    SearchRequest start; /* rules and first position; hazards [planes][cells] */
    int turn;            /* turn of the first row, for hazard shrinks; rows count from 0 */
    int food_chance;     /* percent per turn; food always appears if there is none */
    /* Number of turns between royale shrinks, 0 for none; number of hazard planes. */
    int shrink_every, planes;
    const SelfPlayPlayer *player[MAX_SNAKES]; /* players by seat */
    /* Seed for food placement and random moves. */
    uint64_t seed;
    int random_opening_turns; /* maximum number of turns with random moves at the start */
    /* Number of first turns with a higher node limit. The limit is 2 * max_nodes on the last of
     * these turns, 4 * max_nodes on the turn before, and so on. */
    int node_doublings;
    /* Fraction of later moves that are random, scale 1/65536; only half of the games have such
     * moves. */
    int random_move_fraction;
    int max_turns;
    const uint8_t *first_moves; /* moves of the first turn by seat, after which no food appears; or NULL */
    int only_seat; /* the game ends if this seat is eliminated; -1: never */
} SelfPlayConfig;

/* Origin of a move. The move of ROW_SEARCHED_RANDOM was searched and then replaced by a random
 * move. */
enum { ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM };

/* One sample: the position of a snake on a turn, and its move. */
typedef struct {
    int16_t inputs[NUM_INPUTS];
    int32_t value; /* value of the search in 1/1000 cell; 0 if not searched */
    int16_t turn;
    int16_t food; /* cell on which food appeared after the turn, or -1 */
    uint8_t seat, living, move, kind;
    /* Decoupled MCTS: fraction of the visits by move, scale 1/255; otherwise 0. */
    uint8_t visits[4];
} SelfPlayRow;

/* The record of one game. */
typedef struct {
    SelfPlayRow *rows; /* the caller frees this array; ordered by turn, then by seat */
    int64_t count, capacity;
    /* Number of nodes of all searches. */
    int64_t nodes;
    int turns;
    int finished; /* 0 if max_turns ended the game */
    /* Points by seat. The last survivors share one point. */
    float points[MAX_SNAKES];
} SelfPlayGame;

#endif
