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

enum { AGE_WORDS = MAX_CELLS / 64 + 1 };

/* The body of an opponent in a request. `ages` has one bit per visible age. After list_elements(),
 * `elements` has one bit per element of the list: the visible ages, and the first age of each
 * hidden run. */
typedef struct {
    uint64_t ages[AGE_WORDS], elements[AGE_WORDS];
    int num_elements, stacked;
} SentBody;

/* Fills the other fields from `ages`. */
INLINE void list_elements(const Snake *snake, SentBody *body) {
    int last = (snake->extent - 1) / 64;
    uint64_t carry = 1; /* the head starts a run */
    body->num_elements = 0;
    for (int word = 0; word <= last; word++) {
        uint64_t seen = body->ages[word], elements = seen | seen << 1 | carry;
        if (word == last) elements &= ~0ull >> (63 - (snake->extent - 1) % 64);
        carry = seen >> 63;
        body->elements[word] = elements;
        body->num_elements += __builtin_popcountll(elements);
    }
    bool tail_is_seen = body->ages[last] >> (snake->extent - 1) % 64 & 1;
    body->stacked = tail_is_seen ? snake->length - snake->extent : 0;
}

/* Returns whether an opponent that is at least as long as the snake at `seat` has fewer segments
 * than this snake in its request. The head of the opponent must be visible, and the board must have
 * walls. */
bool seems_shorter(const Game *game, int seat, int opponent);

#endif
