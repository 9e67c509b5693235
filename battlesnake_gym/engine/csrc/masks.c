/* Action masks, as defined in battlesnake_gym/mdp/masks.py. The code avoids branches, because the
 * processor cannot predict whether a cell is blocked. */
#include "masks.h"

#include "limited_view.h"

#include <stdlib.h>
#include <string.h>

/* Selects the `opponents` that are at least as long as the snake at `own`, and whose heads are
 * `least` to `most` steps away from (x, y). Sets of opponents have one bit per seat. */
static unsigned opponents_near(const Rules *rules, const Record *record, unsigned opponents,
                               int own, int x, int y, int least, int most) {
    unsigned found = 0;
    for (unsigned rest = opponents; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        const Snake *other = &record->snakes[seat];
        int apart = distance(other->x, x, record->width, rules->wrapped) +
                    distance(other->y, y, record->height, rules->wrapped);
        bool near = (apart >= least) & (apart <= most) &
                    (other->length >= record->snakes[own].length);
        found |= (unsigned)near << seat;
    }
    return found;
}

/* Returns the living opponents of a snake, as bits. */
static unsigned opponents_of(const Record *record, int own) {
    return record->alive_mask & ~(1u << own);
}

/* Returns the faults of a move to a cell of the board, except contested cells. */
static int faults_on(const Layout *layout, const Rules *rules, const Record *record, int own,
                     int cell) {
    uint16_t mark = record_marks(layout, record)[cell];
    int seat = mark_snake(mark), age = mark_age(record, mark);
    const Snake *owner = &record->snakes[seat];
    bool taken = age < owner->extent;
    bool neck = taken & (seat == own) & (age == 1);
    bool stays = taken & (owner->length - age > 1);
    bool fatal = health_after_turn(layout, rules, record, record->snakes[own].health, cell) <= 0;
    return neck * FAULT_NECK | stays * FAULT_BODY | fatal * FAULT_HEALTH;
}

/* Returns the faults of a move to (x, y); only `opponents`, as bits, contest cells. */
static int faults_at(const Layout *layout, const Rules *rules, const Record *record, int own, int x,
                     int y, unsigned opponents) {
    int width = record->width, height = record->height;
    if (rules->wrapped) {
        x = wrap(x, width);
        y = wrap(y, height);
    }
    bool within = ((unsigned)x < (unsigned)width) & ((unsigned)y < (unsigned)height);
    int faults = faults_on(layout, rules, record, own, within ? y * width + x : 0);
    if (opponents_near(rules, record, opponents, own, x, y, 1, 1)) faults |= FAULT_HEAD;
    return within ? faults : FAULT_WALL;
}

/* Returns the allowed moves as bits. */
static int allowed(const int faults[4], const uint8_t *parts, int num_parts) {
    int moves = 15;
    for (int part = 0; part < num_parts; part++) {
        int left = moves;
        for (int move = 0; move < 4; move++)
            left &= ~(((faults[move] & parts[part]) != 0) << move);
        moves = left ? left : moves;
    }
    return moves;
}

/* Returns the allowed moves of a living snake as bits; only `opponents` contest cells. */
static int moves_among(const Layout *layout, const Rules *rules, const Record *record, int seat,
                       const uint8_t *parts, int num_parts, unsigned opponents) {
    const Snake *snake = &record->snakes[seat];
    int faults[4];
    for (int move = 0; move < 4; move++)
        faults[move] = faults_at(layout, rules, record, seat, snake->x + DX[move],
                                 snake->y + DY[move], opponents);
    return allowed(faults, parts, num_parts);
}

int allowed_moves(const Layout *layout, const Rules *rules, const Record *record, int seat,
                  const uint8_t *parts, int num_parts, bool opponent_near) {
    unsigned opponents = opponent_near ? opponents_of(record, seat) : 0;
    return moves_among(layout, rules, record, seat, parts, num_parts, opponents);
}

/* Returns the opponents, as bits, that contest a cell beside the head of a snake. */
static unsigned find_contestants(const Rules *rules, const Record *record, int seat) {
    const Snake *snake = &record->snakes[seat];
    return opponents_near(rules, record, opponents_of(record, seat), seat, snake->x, snake->y, 0,
                          2);
}

/* Returns whether a snake with limited view sees all cells beside its head. */
static bool sees_neighbors(const Rules *rules, const Record *record, int seat) {
    const Snake *snake = &record->snakes[seat];
    bool inside = (snake->x > 0) & (snake->x < record->width - 1) & (snake->y > 0) &
                  (snake->y < record->height - 1);
    return (rules->view_reach > 1) & (!rules->wrapped | inside);
}

/* Returns the allowed moves of a living snake as bits; `wanted` is the union of all parts.
 *
 * With a limited view, hidden segments change only the lengths of opponents, which only FAULT_HEAD
 * compares. A limited view never makes an opponent longer. */
static int mask_seat(const Game *game, int seat, const uint8_t *parts, int num_parts, int wanted) {
    const Record *record = game->record;
    const Rules *rules = game->rules;
    RecordBuffer view;
    unsigned contestants = wanted & FAULT_HEAD ? find_contestants(rules, record, seat) : 0;
    if (rules->view_reach > 2 && !rules->wrapped) { /* the heads of all contestants are visible */
        for (unsigned rest = contestants; rest; rest &= rest - 1)
            if (seems_shorter(game, seat, __builtin_ctz(rest))) contestants ^= rest & -rest;
    } else if (rules->view_reach && (contestants || !sees_neighbors(rules, record, seat))) {
        limit_view(game, seat, &view.record);
        record = &view.record;
        contestants = wanted & FAULT_HEAD ? find_contestants(rules, record, seat) : 0;
    }
    return moves_among(game->layout, rules, record, seat, parts, num_parts, contestants);
}

void mask_game(const Game *game, const uint8_t *parts, int num_parts, bool *out) {
    const Record *record = game->record;
    int wanted = 0;
    for (int part = 0; part < num_parts; part++) wanted |= parts[part];
    for (int seat = 0; seat < game->layout->max_snakes; seat++, out += 4) {
        memset(out, true, 4);
        if (seat >= record->num_snakes || !record->snakes[seat].alive || !wanted) continue;
        int moves = mask_seat(game, seat, parts, num_parts, wanted);
        for (int move = 0; move < 4; move++) out[move] = moves >> move & 1;
    }
}
