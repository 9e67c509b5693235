/* Action masks of the kinds that battlesnake_gym/mdp/masks.py defines. */
#ifndef BATTLESNAKE_MASKS_H
#define BATTLESNAKE_MASKS_H

#include "game.h"

/* Faults of a move, as bits with the values of masks.py. */
enum { FAULT_WALL = 1, FAULT_NECK = 2, FAULT_BODY = 4, FAULT_HEALTH = 8, FAULT_HEAD = 16 };

/* Writes out[seat][move] for all seats of one game. A mask kind is a list of parts, which are
 * applied in order. A part that would exclude every remaining move is skipped. Eliminated seats may
 * choose every move. */
void mask_game(const Game *game, const uint8_t *parts, int num_parts, bool *out);

/* Returns the allowed moves of a living snake as bits. The function tests for contested cells only
 * if `opponent_near`. */
int allowed_moves(const Layout *layout, const Rules *rules, const Record *record, int seat,
                  const uint8_t *parts, int num_parts, bool opponent_near);

#endif
