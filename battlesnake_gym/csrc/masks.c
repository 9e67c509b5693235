/* The definition stands in masks.py. */
#include "masks.h"

#include <stdlib.h>
#include <string.h>

static bool is_within(int x, int y, const Record *record) {
    return x >= 0 && y >= 0 && x < record->width && y < record->height;
}

static int distance(int a, int b, int size, bool wrapped) {
    int apart = abs(a - b);
    return wrapped && size - apart < apart ? size - apart : apart;
}

/* Whether another snake, at least as long, can move its head to (x, y). */
static bool is_contested(const Rules *rules, const Record *record, int own, int x, int y) {
    for (int seat = 0; seat < record->num_snakes; seat++) {
        const Snake *other = &record->snakes[seat];
        if (seat == own || !other->alive || other->length < record->snakes[own].length) continue;
        if (distance(other->x, x, record->width, rules->wrapped) +
                distance(other->y, y, record->height, rules->wrapped) ==
            1)
            return true;
    }
    return false;
}

/* All that is wrong with moving to (x, y), of the `wanted` bits at least. */
static int faults_at(const Layout *layout, const Rules *rules, const Record *record, int own,
                     int x, int y, int wanted) {
    if (rules->wrapped) {
        x = x < 0 ? record->width - 1 : x == record->width ? 0 : x;
        y = y < 0 ? record->height - 1 : y == record->height ? 0 : y;
    }
    if (!is_within(x, y, record)) return FAULT_WALL;
    const Snake *snake = &record->snakes[own];
    int cell = y * record->width + x, faults = 0;
    uint16_t mark = record_marks(layout, record)[cell];
    int owner = mark_owner(record, mark);
    if (owner >= 0) {
        int age = mark_age(record, mark);
        if (owner == own && age == 1) faults |= FAULT_NECK;
        if (record->snakes[owner].length - age > 1) faults |= FAULT_BODY;
    }
    if (record_food(layout, record)[cell] == 0) {
        int damage = record_hazards(layout, record)[cell] * rules->hazard_damage;
        if (snake->health - 1 - damage <= 0) faults |= FAULT_HEALTH;
    }
    if (wanted & FAULT_HEAD && is_contested(rules, record, own, x, y)) faults |= FAULT_HEAD;
    return faults;
}

/* The allowed moves as bits. */
static int allowed(const int faults[4], const uint8_t *parts, int num_parts) {
    int moves = 15;
    for (int part = 0; part < num_parts; part++) {
        int left = moves;
        for (int move = 0; move < 4; move++)
            if (faults[move] & parts[part]) left &= ~(1 << move);
        if (left) moves = left;
    }
    return moves;
}

void mask_game(const Layout *layout, const Rules *rules, const Record *record,
               const uint8_t *parts, int num_parts, bool *out) {
    static const int step_x[4] = {0, 0, -1, 1}, step_y[4] = {1, -1, 0, 0};
    int wanted = 0;
    for (int part = 0; part < num_parts; part++) wanted |= parts[part];
    for (int seat = 0; seat < layout->max_snakes; seat++, out += 4) {
        memset(out, true, 4);
        if (seat >= record->num_snakes || !record->snakes[seat].alive || !wanted) continue;
        const Snake *snake = &record->snakes[seat];
        int faults[4];
        for (int move = 0; move < 4; move++)
            faults[move] = faults_at(layout, rules, record, seat, snake->x + step_x[move],
                                     snake->y + step_y[move], wanted);
        int moves = allowed(faults, parts, num_parts);
        for (int move = 0; move < 4; move++) out[move] = moves >> move & 1;
    }
}
