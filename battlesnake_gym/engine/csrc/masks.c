/* Action masks, as defined in battlesnake_gym/mdp/masks.py. The code avoids branches, because the
 * processor cannot predict whether a cell is blocked. */
#include "masks.h"

#include "limited_view.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether the head of an opponent of at least equal length is `least` to `most` steps away
 * from (x, y). */
static bool has_opponent_head(const Rules *rules, const Record *record, int own, int x, int y,
                              int least, int most) {
    bool found = false;
    for (int seat = 0; seat < record->num_snakes; seat++) {
        const Snake *other = &record->snakes[seat];
        int apart = distance(other->x, x, record->width, rules->wrapped) +
                    distance(other->y, y, record->height, rules->wrapped);
        found |= (seat != own) & other->alive & (apart >= least) & (apart <= most) &
                 (other->length >= record->snakes[own].length);
    }
    return found;
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

/* Returns the faults of a move to (x, y); tests for contested cells only if `opponent_near`. */
static int faults_at(const Layout *layout, const Rules *rules, const Record *record, int own, int x,
                     int y, bool opponent_near) {
    int width = record->width, height = record->height;
    if (rules->wrapped) {
        x = wrap(x, width);
        y = wrap(y, height);
    }
    bool within = ((unsigned)x < (unsigned)width) & ((unsigned)y < (unsigned)height);
    int faults = faults_on(layout, rules, record, own, within ? y * width + x : 0);
    if (opponent_near && has_opponent_head(rules, record, own, x, y, 1, 1)) faults |= FAULT_HEAD;
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

int allowed_moves(const Layout *layout, const Rules *rules, const Record *record, int seat,
                  const uint8_t *parts, int num_parts, bool opponent_near) {
    const Snake *snake = &record->snakes[seat];
    int faults[4];
    for (int move = 0; move < 4; move++)
        faults[move] = faults_at(layout, rules, record, seat, snake->x + DX[move],
                                 snake->y + DY[move], opponent_near);
    return allowed(faults, parts, num_parts);
}

/* Returns the allowed moves of a living snake as bits; `wanted` is the union of all parts. */
static int mask_seat(const Layout *layout, const Rules *rules, const Record *record, int seat,
                     const uint8_t *parts, int num_parts, int wanted) {
    const Snake *snake = &record->snakes[seat];
    bool opponent_near =
        wanted & FAULT_HEAD && has_opponent_head(rules, record, seat, snake->x, snake->y, 0, 2);
    return allowed_moves(layout, rules, record, seat, parts, num_parts, opponent_near);
}

/* Returns whether a snake with limited view sees all cells beside its head. */
static bool sees_neighbors(const Rules *rules, const Record *record, const Snake *snake) {
    bool inside = (snake->x > 0) & (snake->x < record->width - 1) & (snake->y > 0) &
                  (snake->y < record->height - 1);
    return (rules->view_reach > 1) & (!rules->wrapped | inside);
}

/* Returns the allowed moves of a living snake with limited view, like mask_seat(). Hidden segments
 * change only the lengths of opponents, which only FAULT_HEAD compares. A limited view never makes
 * an opponent longer. */
static int mask_limited_seat(const Game *game, int seat, const uint8_t *parts, int num_parts,
                             int wanted) {
    const Record *record = game->record;
    const Snake *snake = &record->snakes[seat];
    RecordBuffer view;
    if (!sees_neighbors(game->rules, record, snake) ||
        (wanted & FAULT_HEAD &&
         has_opponent_head(game->rules, record, seat, snake->x, snake->y, 0, 2))) {
        limit_view(game, seat, &view.record);
        record = &view.record;
    }
    return mask_seat(game->layout, game->rules, record, seat, parts, num_parts, wanted);
}

void mask_game(const Game *game, const uint8_t *parts, int num_parts, bool *out) {
    const Record *record = game->record;
    int wanted = 0;
    for (int part = 0; part < num_parts; part++) wanted |= parts[part];
    for (int seat = 0; seat < game->layout->max_snakes; seat++, out += 4) {
        memset(out, true, 4);
        if (seat >= record->num_snakes || !record->snakes[seat].alive || !wanted) continue;
        int moves = game->rules->view_reach
                        ? mask_limited_seat(game, seat, parts, num_parts, wanted)
                        : mask_seat(game->layout, game->rules, record, seat, parts, num_parts,
                                    wanted);
        for (int move = 0; move < 4; move++) out[move] = moves >> move & 1;
    }
}
