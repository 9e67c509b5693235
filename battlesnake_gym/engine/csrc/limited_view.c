/* Limited view of a record. */
#include "limited_view.h"

#include <stdlib.h>
#include <string.h>

/* A visible cell of an opponent's body. */
typedef struct {
    int16_t cell, age;
    int8_t seat;
} SeenCell;

/* The visible segments of all opponents, and one bit per visible age of each opponent. */
typedef struct {
    int count;
    SeenCell cells[MAX_CELLS];
    uint64_t ages[MAX_SNAKES][MAX_CELLS / 64 + 1];
} SeenBodies;

/* Removes the food and the opponents' segments of a row, except in the columns [from, to). */
static void hide_row(const Layout *layout, Record *out, int seat, int y, int from, int to) {
    uint16_t *marks = record_marks(layout, out) + cell_at(out, 0, y);
    uint8_t *food = record_food(layout, out) + cell_at(out, 0, y);
    for (int x = 0; x < out->width; x++) {
        bool hidden = (x < from) | (x >= to);
        marks[x] &= (uint16_t)-(!hidden | (mark_snake(marks[x]) == seat));
        food[x] &= (uint8_t)-!hidden;
    }
}

/* Adds the opponents' segments in the columns [from, to) of a row. */
static void collect_row(const Layout *layout, const Record *record, int seat, int y, int from,
                        int to, SeenBodies *seen) {
    for (int cell = cell_at(record, from, y); cell < cell_at(record, to, y); cell++) {
        uint16_t mark = record_marks(layout, record)[cell];
        int owner = mark_owner(record, mark);
        if (owner < 0 || owner == seat) continue;
        int age = mark_age(record, mark);
        seen->ages[owner][age / 64] |= 1ull << age % 64;
        seen->cells[seen->count++] = (SeenCell){(int16_t)cell, (int16_t)age, (int8_t)owner};
    }
}

/* Sets length, extent and head of an opponent as in the body of a request, and writes the index of
 * each visible segment in this body, by age. */
static void limit_snake(Snake *snake, const uint64_t *ages, uint16_t indices[MAX_CELLS]) {
    int extent = snake->extent, index = 0;
    bool was_hidden = false, is_seen = false;
    for (int age = 0; age < extent; age++) {
        is_seen = ages[age / 64] >> age % 64 & 1;
        index += !(was_hidden & !is_seen);
        indices[age] = (uint16_t)(index - 1);
        was_hidden = !is_seen;
    }
    snake->extent = (uint16_t)index;
    snake->length = index + (is_seen ? snake->length - extent : 0);
    if (!(ages[0] & 1)) snake->x = snake->y = HIDDEN_COORDINATE;
}

/* Adds the food that appeared on this turn, which is visible everywhere. */
static void show_new_food(const Game *game, Record *out) {
    const int16_t *food = side_food(game->side);
    for (int i = game->record->num_food - game->record->new_food; i < game->record->num_food; i++)
        record_food(game->layout, out)[food[i]] = 1;
}

void limit_view(const Game *game, int seat, Record *out) {
    const Layout *layout = game->layout;
    const Record *record = game->record;
    int radius = game->rules->view_reach - 1;
    SeenBodies seen;
    seen.count = 0;
    memcpy(out, record, layout->record_size - REDZONE);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int other = __builtin_ctz(rest);
        memset(seen.ages[other], 0, (size_t)(record->snakes[other].extent / 64 + 1) * 8);
    }
    const Snake *own = &record->snakes[seat];
    for (int y = 0; y < record->height; y++) {
        int reach = radius - abs(y - own->y);
        int from = max_int(0, own->x - reach), to = min_int(record->width, own->x + reach + 1);
        if (reach < 0) from = to = 0;
        hide_row(layout, out, seat, y, from, to);
        collect_row(layout, record, seat, y, from, to, &seen);
    }
    uint16_t indices[MAX_SNAKES][MAX_CELLS];
    for (unsigned rest = record->alive_mask & ~(1u << seat); rest; rest &= rest - 1) {
        int other = __builtin_ctz(rest);
        limit_snake(&out->snakes[other], seen.ages[other], indices[other]);
    }
    uint16_t *marks = record_marks(layout, out);
    for (int i = 0; i < seen.count; i++) {
        const SeenCell *cell = &seen.cells[i];
        int index = indices[cell->seat][cell->age];
        marks[cell->cell] = (uint16_t)(cell->seat << CLOCK_BITS | (record->clock - index));
    }
    show_new_food(game, out);
}

bool seems_shorter(const Game *game, int seat, int opponent) {
    const Record *record = game->record;
    const Snake *own = &record->snakes[seat], *snake = &record->snakes[opponent];
    const uint16_t *marks = record_marks(game->layout, record);
    uint16_t newest = (uint16_t)(opponent << CLOCK_BITS | record->clock), extent = snake->extent;
    int radius = game->rules->view_reach - 1;
    int certain = radius - abs(snake->x - own->x) - abs(snake->y - own->y) + 1;
    /* The first `certain` segments are visible, and at least one element of the body follows. */
    if (certain >= extent || certain + 1 >= own->length) return false;
    SentBody body;
    memset(body.ages, 0, 8 * (size_t)(extent / 64 + 1));
    int top = min_int(record->height - 1, own->y + radius);
    for (int y = max_int(0, own->y - radius); y <= top; y++) {
        int reach = radius - abs(y - own->y);
        int right = min_int(record->width - 1, own->x + reach);
        for (int x = max_int(0, own->x - reach); x <= right; x++) {
            uint16_t age = (uint16_t)(newest - marks[cell_at(record, x, y)]);
            if (age < extent) body.ages[age / 64] |= 1ull << age % 64;
        }
    }
    list_elements(snake, &body);
    return body.num_elements + body.stacked < own->length;
}
