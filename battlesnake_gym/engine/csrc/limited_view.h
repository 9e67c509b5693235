/* Limited view: the part of a position that one snake sees, as defined in
 * battlesnake_gym/boards/limited_view.py. */
#ifndef BATTLESNAKE_LIMITED_VIEW_H
#define BATTLESNAKE_LIMITED_VIEW_H

#include "game.h"

/* Coordinates of a hidden head. They are so far away that no distance test succeeds. */
enum { HIDDEN_COORDINATE = -1000 };

/* Returns whether the head of a snake is visible in the record. */
static inline bool head_is_visible(const Snake *snake) { return snake->x != HIDDEN_COORDINATE; }

/* Memory for the largest record. */
typedef union {
    Record record;
    _Alignas(64) char bytes[sizeof(Record) + MAX_SNAKES * sizeof(Snake) +
                            4 * (MAX_CELLS + PLANE_SLACK) + 64 + REDZONE];
} RecordBuffer;

/* Writes the position that the living snake at `seat` sees. The record of an opponent describes the
 * body of a request: each run of hidden segments counts as one segment without a cell. */
void limit_view(const Game *game, int seat, Record *out);

#endif
