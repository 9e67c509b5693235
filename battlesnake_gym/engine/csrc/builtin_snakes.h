/* Fast implementations of built-in snakes, which choose the moves of all seats of a batch in one
 * call. battlesnake_heuristics/builtin_snakes.py defines the same snakes in Python, and tests
 * compare the choices. */
#ifndef BATTLESNAKE_BUILTIN_SNAKES_H
#define BATTLESNAKE_BUILTIN_SNAKES_H

#include "engine.h"

/* Kind of the snake at a seat, with the codes of snakes.engine_code. */
enum {
    BUILTIN_NONE,
    BUILTIN_RANDOM,
    BUILTIN_SAFE_RANDOM,
    BUILTIN_HUNGRY,
    BUILTIN_CAUTIOUS,
    BUILTIN_HUNTER,
    BUILTIN_TERRITORY,
    NUM_BUILTIN,
};

/* 0.9 ** turns, with the same rounding as in Python. */
extern double discount_powers[2 * MAX_CELLS];

/* Fills the table of discounts. The function must be called before all other functions. Not
 * thread-safe. */
void builtin_init(void);

/* Writes out[seat] for the living seats whose kinds[seat] is not BUILTIN_NONE; other seats stay
 * unchanged. */
typedef void BuiltinFunction(const Layout *layout, const Rules *rules, const Record *record,
                             const uint8_t *kinds, uint8_t *out);

/* Writes the best moves as bits: all moves with the highest preference. */
BuiltinFunction builtin_choices;

/* Writes the index of one of the best moves, drawn from the game's seed, the turn and the seat. */
BuiltinFunction builtin_moves;

/* Variants of builtin_choices for boards of up to 128, 384 and 640 cells. */
BuiltinFunction builtin_choices_small, builtin_choices_medium, builtin_choices_large;

#endif
