/* The search for the page. Kept apart from the engine, whose names it shares. */
#ifndef THINKER_H
#define THINKER_H

#include <stdint.h>

/* A position as the search takes it: living snakes only, the one that thinks first. */
typedef struct {
    int width, height, wrapped, constrictor, solo, damage, snakes, segments;
    int32_t lengths[16], health[16];
    uint16_t bodies[16 * 625];
    const uint8_t *food, *hazards;
    int trained; /* whether the learned evaluation is for this game */
} Seen;

/* Thinks for `seconds` at most, or about `positions` positions where those are not positive.
 * Afterwards `report_at` points at int32: depth, positions valued, then the value of each of the four
 * moves in thousandths of a cell of territory (INT32_MIN: not looked at). */
int find_move(const Seen *seen, double seconds, int positions);
int32_t *report_at(void);

#endif
