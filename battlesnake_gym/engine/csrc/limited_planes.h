/* Limited view of the kind `planes` on whole boards; observe.c includes this file.
 *
 * The planes of a viewer are the shared planes of the game in the cells that the viewer sees. Only
 * the values of partly hidden bodies differ, because hidden segments count once per run. */

/* The sum x + y and the difference x - y of each cell, modulo 256, by board width. The Manhattan
 * distance between two cells is the larger of the absolute differences of these two values. */
static uint8_t diagonal_of[MAX_SIDE + 1][MAX_CELLS + BLOCK];
static uint8_t antidiagonal_of[MAX_SIDE + 1][MAX_CELLS + BLOCK];

/* Fills the tables. Not thread-safe. */
static void fill_diagonals(void) {
    for (int width = 1; width <= MAX_SIDE; width++)
        for (int cell = 0; cell < MAX_CELLS + BLOCK; cell++) {
            diagonal_of[width][cell] = (uint8_t)(cell % width + cell / width);
            antidiagonal_of[width][cell] = (uint8_t)(cell % width - cell / width);
        }
}

/* Writes 255 for the cells of a block that a snake sees, and 0 for the other cells. The cells have
 * the values from `first` to `first + width` of `diagonal_of`, and likewise for the other table. */
INLINE void sight_block(const uint8_t *restrict diagonals, const uint8_t *restrict antidiagonals,
                        uint8_t first, uint8_t anti_first, uint8_t width,
                        uint8_t *restrict visible) {
    for (int cell = 0; cell < BLOCK; cell++) {
        uint8_t near = (uint8_t)-((uint8_t)(diagonals[cell] - first) <= width);
        uint8_t anti_near = (uint8_t)-((uint8_t)(antidiagonals[cell] - anti_first) <= width);
        visible[cell] = near & anti_near;
    }
}

/* Writes 255 for the cells that a snake sees, and 0 for the other cells and for a word
 * behind the board. */
INLINE void make_sight(const Record *record, const Snake *snake, int radius, const Scene *scene,
                       uint8_t *visible) {
    uint8_t reach = (uint8_t)min_int(radius, 2 * MAX_SIDE), width = (uint8_t)(2 * reach);
    uint8_t first = (uint8_t)(snake->x + snake->y - reach);
    uint8_t anti_first = (uint8_t)(snake->x - snake->y - reach);
    const uint8_t *diagonals = diagonal_of[record->width];
    const uint8_t *antidiagonals = antidiagonal_of[record->width];
    for (int start = 0; start < scene->span; start += BLOCK)
        sight_block(diagonals + start, antidiagonals + start, first, anti_first, width,
                    visible + start);
    memset(visible + scene->cells, 0, 8);
}

/* How much of a body a snake sees. */
typedef struct {
    uint64_t seen, hidden; /* 0 if no cell is visible, or no cell is hidden */
} Sighting;

/* Returns how much of a body is in the visible cells. Values behind the board can make a visible
 * body count as partly hidden, which is slower but gives equal planes. */
INLINE Sighting sight_body(const Plane *body, const uint8_t *visible, int span) {
    Sighting sighting = {0, 0};
    for (unsigned word = 0; word < (unsigned)span / BLOCK * (BLOCK / 8); word++) {
        uint64_t cells, mask;
        memcpy(&cells, body->cells + 8 * word, 8);
        memcpy(&mask, visible + 8 * word, 8);
        sighting.seen |= cells & mask;
        sighting.hidden |= cells & ~mask;
    }
    return sighting;
}

/* Writes the visible cells of a body that is partly hidden, and its head if it is visible. */
INLINE void paint_sent_body(const Game *game, const Scene *scene, const uint8_t *visible, int seat,
                            int own, int size, uint8_t *planes) {
    const Record *record = game->record;
    const uint16_t *marks = record_marks(game->layout, record);
    const uint8_t *cells = scene->bodies[seat].cells;
    uint8_t *others = planes + OTHER_BODIES_PLANE * size;
    int radius = min_int(game->rules->view_reach - 1, MAX_SIDE);
    Snake snake = record->snakes[seat];
    int16_t seen[MAX_CELLS]; /* visible cells by age */
    int last = (snake.extent - 1) / 64;
    SentBody body;
    for (int word = 0; word <= last; word++) body.ages[word] = 0;
    int first = max_int(0, record->snakes[own].y - radius) * record->width & -8;
    int end = min_int(record->height, record->snakes[own].y + radius + 1) * record->width;
    for (int start = first; start < end; start += 8) {
        uint64_t word, mask;
        memcpy(&word, cells + start, 8);
        memcpy(&mask, visible + start, 8);
        for (word &= mask; word;) {
            int byte = __builtin_ctzll(word) / 8;
            word &= ~(0xffull << 8 * byte);
            int age = mark_age(record, marks[start + byte]);
            body.ages[age / 64] |= 1ull << age % 64;
            seen[age] = (int16_t)(start + byte);
        }
    }
    list_elements(&snake, &body);
    int number = body.stacked; /* of the element, from the end of the tail */
    for (int word = last; word >= 0; word--)
        for (uint64_t rest = body.elements[word]; rest;) {
            int bit = 63 - __builtin_clzll(rest);
            rest ^= 1ull << bit;
            number++;
            if (body.ages[word] >> bit & 1)
                others[seen[64 * word + bit]] =
                    number == 1 ? FREE_NEXT_TURN_VALUE
                                : (uint8_t)(BLOCKED_VALUE + 4 * min_int(number, MAX_BLOCKED_TURNS));
        }
    if (!(body.ages[0] & 1)) return;
    others[seen[0]] = HEAD_VALUE;
    snake.length = number;
    paint_head(record, &snake, own, size, planes);
}

/* Writes the cells of a block that are in one of two planes, but not in both, and are visible. */
INLINE void paint_visible_block(const uint8_t *plane, const uint8_t *except,
                                const uint8_t *visible, uint8_t *restrict to) {
    for (int cell = 0; cell < BLOCK; cell++)
        to[cell] = (uint8_t)((plane[cell] ^ except[cell]) & visible[cell]);
}

/* Writes a block of the planes of food, of the own body and of other bodies; the latter show the
 * values of completely visible bodies. */
INLINE void paint_visible_planes(const Scene *scene, int own, int cell, const uint8_t *visible,
                                 int size, uint8_t *planes) {
    static const uint8_t nothing[BLOCK];
    const uint8_t *body = scene->bodies[own].cells + cell;
    paint_visible_block(scene->food.cells + cell, nothing, visible + cell,
                        planes + FOOD_PLANE * size + cell);
    *(LooseBlock *)(planes + OWN_BODY_PLANE * size + cell) = BLOCK_AT(body);
    paint_visible_block(scene->all_bodies.cells + cell, body, visible + cell,
                        planes + OTHER_BODIES_PLANE * size + cell);
}

/* Writes the changed planes that the snake at seat `own` sees, like paint_planes(). */
INLINE void paint_limited_planes(const Game *game, const Record *before, const Scene *scene,
                                 int news, int own, int size, uint8_t *planes) {
    const Record *record = game->record;
    int radius = game->rules->view_reach - 1;
    _Alignas(BLOCK) uint8_t visible[MAX_CELLS + BLOCK];
    make_sight(record, &record->snakes[own], radius, scene, visible);
    paint_numbers(before, record, scene, news & ~NEW_FOOD, own, size, planes);
    for (int cell = 0; cell < size - BLOCK; cell += BLOCK)
        paint_visible_planes(scene, own, cell, visible, size, planes);
    paint_visible_planes(scene, own, size - BLOCK, visible, size, planes);
    const int16_t *food = side_food(game->side);
    for (int i = record->num_food - record->new_food; i < record->num_food; i++)
        planes[FOOD_PLANE * size + food[i]] = FOOD_VALUE; /* visible everywhere */
    fill_plane(0, 2 * size, planes + LONGER_HEADS_PLANE * size);
    for (unsigned rest = record->alive_mask & ~(1u << own); rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        Sighting sighting = sight_body(&scene->bodies[seat], visible, scene->span);
        if (!sighting.seen) continue;
        if (sighting.hidden)
            paint_sent_body(game, scene, visible, seat, own, size, planes);
        else
            paint_head(record, &record->snakes[seat], own, size, planes);
    }
}
