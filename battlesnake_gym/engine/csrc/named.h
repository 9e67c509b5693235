/* The cheap named snakes of battlesnake_heuristics, for all seats of a batch at once. They are
 * defined in battlesnake_heuristics/named.py; tests hold the choices here equal to it. */
#ifndef BATTLESNAKE_NAMED_H
#define BATTLESNAKE_NAMED_H

#include "engine.h"

/* Who plays a seat; the numbers of snakes.engine_code. */
enum {
    NAMED_NOBODY,
    NAMED_RANDOM,
    NAMED_SAFE_RANDOM,
    NAMED_HUNGRY,
    NAMED_CAUTIOUS,
    NAMED_HUNTER,
    NAMED_TERRITORY,
    NUM_NAMED,
};

/* 0.9 ** turns, as Python computes it. */
extern double named_fade[2 * MAX_CELLS];

/* Computes it; call once before any other function. */
void named_init(void);

typedef void NamedFunction(const Layout *layout, const Rules *rules, const Record *record,
                           const uint8_t *kinds, uint8_t *out);

/* Writes out[seat] for the living seats whose kinds[seat] is not NAMED_NOBODY: as bits, the moves
 * that this snake likes best, all of them equally. The other seats are left as they are. */
NamedFunction named_choices;

/* The same, with one of these moves drawn: from the game's seed, its turn and the seat alone. */
NamedFunction named_moves;

/* `named_choices` for boards of up to 128, 384 and 640 cells. */
NamedFunction named_choices_small, named_choices_medium, named_choices_large;

#endif
