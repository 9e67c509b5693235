#include "named.h"

#include <math.h>

#include "rand.h"

double named_fade[2 * MAX_CELLS];

void named_init(void) {
    volatile double base = 0.9; /* so that the same library computes it as for Python */
    for (int turns = 0; turns < 2 * MAX_CELLS; turns++) named_fade[turns] = pow(base, turns);
}

void named_choices(const Layout *layout, const Rules *rules, const Record *record,
                   const uint8_t *kinds, uint8_t *out) {
    int cells = record->width * record->height;
    (cells <= 128   ? named_choices_small
     : cells <= 384 ? named_choices_medium
                    : named_choices_large)(layout, rules, record, kinds, out);
}

void named_moves(const Layout *layout, const Rules *rules, const Record *record,
                 const uint8_t *kinds, uint8_t *out) {
    uint8_t liked[MAX_SNAKES];
    named_choices(layout, rules, record, kinds, liked);
    for (int seat = 0; seat < record->num_snakes; seat++) {
        if (kinds[seat] == NAMED_NOBODY || !record->snakes[seat].alive) continue;
        Rand rand;
        rand_fast(&rand, record->seed, record->turn);
        rand.state ^= (uint64_t)(seat + 1) * 0x5851F42D4C957F2Du; /* not the stream of the food */
        int which = (int)rand_bounded(&rand, (uint32_t)__builtin_popcount(liked[seat]));
        int moves = liked[seat];
        for (; which > 0; which--) moves &= moves - 1;
        out[seat] = (uint8_t)__builtin_ctz((unsigned)moves);
    }
}
