/* Interface of the search for battlesnake_heuristics/search/search.py: request, result and
 * evaluation weights. Cells are y * width + x; moves are 0 up, 1 down, 2 left, 3 right. The unit of
 * values is 1/1000 cell of territory. */
#ifndef SEARCH_H
#define SEARCH_H

#include <stdint.h>

#include "network.h"

/* Limits of a request. */
#define MAX_SNAKES 16
#define MAX_CELLS 625
#define MAX_DEPTH 120
#define OFF_BOARD 0xFFFF
#define WIN 1000000     /* value of an immediate win, minus 1 per turn of distance */
#define PROVEN 900000   /* minimum absolute value of forced wins and losses */
#define MAX_DAMAGE 1000 /* maximum damage per hazard layer; more than 100 equals 100 */

/* Weights of the handcrafted evaluation, in 1/1000 cell of territory unless noted. */
enum {
    W_TERRITORY,           /* value of a cell that only we reach first */
    W_HAZARD_CELL,         /* penalty of an owned cell with hazard */
    W_LENGTH,              /* value per segment of lead over the longest opponent */
    W_LEAD_CAP,            /* maximum number of segments of lead that count */
    W_LONGEST,             /* bonus if we are strictly longer than every opponent */
    W_FOOD_NEAR,           /* value of our nearest food, divided by its distance in turns + 1 */
    W_HUNGER,              /* addition to W_FOOD_NEAR per health point below W_HUNGER_THRESHOLD */
    W_HUNGER_THRESHOLD,    /* health below which W_HUNGER applies */
    W_STARVING,            /* penalty, divided by health + 1, if we starve before we reach food */
    W_CRAMPED,             /* penalty per segment that does not fit in our territory */
    W_ELIMINATED_OPPONENT, /* bonus per eliminated opponent */
    W_DRAW,                /* penalty of a drawn game */
    NUM_WEIGHTS
};

enum { EXACT_FORCED = 2 };

/* A search request. All pointers are borrowed and must stay valid during the search. */
typedef struct {
    int width, height, snakes; /* board size in cells; number of snakes; snake 0 is ours */
    /* Flags of the rules. */
    int wrapped, constrictor, solo;
    int damage;        /* health lost per hazard layer, within +-MAX_DAMAGE */
    const int32_t *lengths; /* [snakes], including stacked segments */
    const int32_t *health; /* [snakes], 0 to 100; 0 if eliminated */
    const uint16_t *bodies; /* cells of all bodies in snake order, head first */
    const uint8_t *food; /* [cells], 1 for food */
    const uint8_t *hazards; /* [cells], number of hazard layers */
    const int32_t *weights; /* [NUM_WEIGHTS] */
    const Network *network; /* learned evaluation, or NULL for the handcrafted evaluation */
    double time_limit_s; /* time limit in seconds; 0: none */
    int64_t max_nodes; /* maximum number of nodes; 0: no limit */
    int first_depth;   /* first depth of iterative deepening; above 1 in a helper thread */
    /* 1: all scores are exact, not only the score of the best move. EXACT_FORCED: the score of a
     * forced move, too, although the move needs no search. */
    int exact_scores;
    /* Minimum number of living snakes for decoupled MCTS, which also needs a network; 0: never. */
    int min_decoupled_snakes;
    int max_depth;     /* maximum depth in turns, 1 to MAX_DEPTH */
    int all_snakes;    /* decoupled MCTS: 1 if the tree serves all snakes, not only snake 0 */
    /* Decoupled MCTS: 1 if the search continues a kept tree of its game and keeps its own tree. */
    int keep_tree;
    /* Decoupled MCTS: weight of Dirichlet noise in the priors of the root, 0 to 1. */
    float root_noise;
    uint64_t noise_seed; /* seed of the noise */
    int (*should_stop)(void *); /* polled callback, or NULL; a nonzero result stops */
    void *should_stop_arg; /* argument of should_stop */
} SearchRequest;

/* Choice of one snake at the root of decoupled MCTS. */
typedef struct {
    int move;           /* most visited move */
    int32_t value;      /* mean value of that move, in 1/1000 cell */
    uint32_t visits[4]; /* visits by move */
} RootChoice;

/* A principal variation. */
typedef struct {
    int length;                           /* in turns */
    uint8_t moves[MAX_DEPTH][MAX_SNAKES]; /* moves of all snakes, 4 for eliminated snakes */
} Line;

/* The result of a search. */
typedef struct {
    int move;             /* index of the best move */
    int depth;            /* last completed depth in turns; decoupled: length of the line */
    int proven;           /* 1 if the value is a forced win or loss */
    int64_t leaf_evals, nodes; /* numbers of leaf evaluations and of all nodes */
    /* By move, in 1/1000 cell. The score of the best move is exact; other scores are bounds. */
    int32_t scores[4];
    uint8_t has_score[4]; /* by move: 1 if scores[] is set */
    RootChoice choices[MAX_SNAKES]; /* by snake: choices of decoupled MCTS, or 0 */
    /* Lines by our first move: of the best move and, with exact scores, of every scored move. */
    Line lines[4];
} SearchResult;

/* A position with explicit bodies, for tests that compare the search with the rules. */
typedef struct {
    uint64_t key; /* hash, equal for equal positions */
    uint8_t alive[MAX_SNAKES];
    int32_t health[MAX_SNAKES], length[MAX_SNAKES];
    uint16_t body[MAX_SNAKES][MAX_CELLS + MAX_DEPTH]; /* head first, including stacked segments */
    uint8_t food[MAX_CELLS];
} RulesPosition;

extern int search_uses_cpu_clock; /* 1: time limits count the CPU time of the process */
extern double search_throttle_fraction; /* fraction of a core near the deadline; 0: no throttling */
/* CPU time and time left at the last start of throttling, in seconds. */
extern double search_throttle_start[2];

#endif
