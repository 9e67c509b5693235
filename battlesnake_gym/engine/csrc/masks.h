/* Which moves a snake may choose: the kinds that battlesnake_gym/see/masks.py defines. */
#ifndef BATTLESNAKE_MASKS_H
#define BATTLESNAKE_MASKS_H

#include "engine.h"

/* What can be wrong with a move, as bits; the numbers of masks.py. */
enum { FAULT_WALL = 1, FAULT_NECK = 2, FAULT_BODY = 4, FAULT_HEALTH = 8, FAULT_HEAD = 16 };

/* Writes out[seat][move] for all seats of one game. The kind is given as the bits of its parts,
 * applied in order; a part that would leave no move is passed over. Seats that are out may choose
 * every move. */
void mask_game(const Layout *layout, const Rules *rules, const Record *record,
               const uint8_t *parts, int num_parts, bool *out);

/* The moves, as bits, that the kind leaves to a living snake; contested cells are looked for only where
 * `rival_near`. */
int allowed_moves(const Layout *layout, const Rules *rules, const Record *record, int seat,
                  const uint8_t *parts, int num_parts, bool rival_near);

#endif
