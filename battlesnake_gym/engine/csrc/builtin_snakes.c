/* Built-in snakes: the discount table, dispatch by board size, and the random choice among equal
 * moves. */
#include "builtin_snakes.h"

#include <math.h>

#include "rand.h"

double discount_powers[2 * MAX_CELLS];

void builtin_init(void) {
    /* `volatile` prevents constant folding: as in Python, pow() must compute the result. */
    volatile double base = 0.9;
    for (int turns = 0; turns < 2 * MAX_CELLS; turns++) discount_powers[turns] = pow(base, turns);
}

void builtin_choices(const Layout *layout, const Rules *rules, const Record *record,
                     const uint8_t *kinds, uint8_t *out) {
    int cells = record->width * record->height;
    (cells <= 128   ? builtin_choices_small
     : cells <= 384 ? builtin_choices_medium
                    : builtin_choices_large)(layout, rules, record, kinds, out);
}

void builtin_moves(const Layout *layout, const Rules *rules, const Record *record,
                   const uint8_t *kinds, uint8_t *out) {
    uint8_t liked[MAX_SNAKES];
    builtin_choices(layout, rules, record, kinds, liked);
    for (int seat = 0; seat < record->num_snakes; seat++) {
        if (kinds[seat] == BUILTIN_NONE || !record->snakes[seat].alive) continue;
        Rand rand;
        rand_fast(&rand, record->seed, record->turn);
        /* The stream is independent of the food stream. */
        rand.state ^= (uint64_t)(seat + 1) * 0x5851F42D4C957F2Du;
        int which = (int)rand_bounded(&rand, (uint32_t)__builtin_popcount(liked[seat]));
        int moves = liked[seat];
        for (; which > 0; which--) moves &= moves - 1;
        out[seat] = (uint8_t)__builtin_ctz((unsigned)moves);
    }
}
