/* Limited view of the kind `planes` on whole boards; observe.c includes this file.
 *
 * The planes of a viewer are the shared planes of the game in the cells that the viewer sees. Only
 * the values of partly hidden bodies differ, because hidden segments count once per run. */

/* Column and row of each cell, by board width. */
static uint8_t column_of[MAX_SIDE + 1][MAX_CELLS + BLOCK];
static uint8_t row_of[MAX_SIDE + 1][MAX_CELLS + BLOCK];

/* Fills the tables. Not thread-safe. */
static void fill_coordinates(void) {
    for (int width = 1; width <= MAX_SIDE; width++)
        for (int cell = 0; cell < MAX_CELLS + BLOCK; cell++) {
            column_of[width][cell] = (uint8_t)(cell % width);
            row_of[width][cell] = (uint8_t)(cell / width);
        }
}

/* The cells that a snake sees, and the other cells of the board: 255, or 0. */
typedef struct {
    _Alignas(BLOCK) uint8_t visible[MAX_CELLS + BLOCK], hidden[MAX_CELLS + BLOCK];
} Sight;

INLINE void make_sight(const Record *record, const Snake *snake, int radius, int span,
                       Sight *restrict sight) {
    const uint8_t *restrict columns = column_of[record->width];
    const uint8_t *restrict rows = row_of[record->width];
    uint8_t x = (uint8_t)snake->x, y = (uint8_t)snake->y, most = (uint8_t)radius;
    for (int cell = 0; cell < span; cell++) {
        uint8_t across = columns[cell] > x ? columns[cell] - x : x - columns[cell];
        uint8_t up = rows[cell] > y ? rows[cell] - y : y - rows[cell];
        uint8_t on_board = (uint8_t)-(rows[cell] < record->height);
        uint8_t near = (uint8_t)-((uint8_t)(across + up) <= most);
        sight->visible[cell] = on_board & near;
        sight->hidden[cell] = on_board & (uint8_t)~near;
    }
}

/* Returns whether a body has a cell in `cells`, which are 255 or 0. */
INLINE bool has_cell_in(const Plane *body, const uint8_t *cells, int span) {
    Block found = {0};
    uint64_t words[BLOCK / 8], any = 0;
    for (int start = 0; start < span; start += BLOCK)
        found |= BLOCK_AT(body->cells + start) & BLOCK_AT(cells + start);
    memcpy(words, &found, sizeof words);
    for (int word = 0; word < BLOCK / 8; word++) any |= words[word];
    return any;
}

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

/* Returns the value of a visible cell of this age; the elements are numbered from the tail. */
INLINE uint8_t sent_value(const Snake *snake, const SentBody *body, int age) {
    int number = __builtin_popcountll(body->elements[age / 64] >> age % 64);
    for (int word = age / 64 + 1; word <= (snake->extent - 1) / 64; word++)
        number += __builtin_popcountll(body->elements[word]);
    int stacked = min_int(body->stacked, MAX_BLOCKED_TURNS - 1);
    if (age == 0) return HEAD_VALUE;
    if (number == 1 && stacked == 0) return FREE_NEXT_TURN_VALUE;
    return (uint8_t)(BLOCKED_VALUE + 4 * min_int(number + stacked, MAX_BLOCKED_TURNS));
}

/* Writes the visible cells of a body that is partly hidden, and its head if it is visible. */
INLINE void paint_sent_body(const Game *game, const Scene *scene, const uint8_t *visible, int seat,
                            int own, int size, uint8_t *planes) {
    const Record *record = game->record;
    const uint16_t *marks = record_marks(game->layout, record);
    const uint8_t *cells = scene->bodies[seat].cells;
    Snake snake = record->snakes[seat];
    int16_t seen[MAX_CELLS];
    int count = 0;
    SentBody body;
    memset(body.ages, 0, 8 * (size_t)((snake.extent - 1) / 64 + 1));
    for (int start = 0; start < scene->cells; start += 8) {
        uint64_t word, mask;
        memcpy(&word, cells + start, 8);
        memcpy(&mask, visible + start, 8);
        for (word &= mask; word;) {
            int byte = __builtin_ctzll(word) / 8;
            word &= ~(0xffull << 8 * byte);
            int age = mark_age(record, marks[start + byte]);
            body.ages[age / 64] |= 1ull << age % 64;
            seen[count++] = (int16_t)(start + byte);
        }
    }
    list_elements(&snake, &body);
    for (int i = 0; i < count; i++)
        planes[OTHER_BODIES_PLANE * size + seen[i]] =
            sent_value(&snake, &body, mark_age(record, marks[seen[i]]));
    snake.length = body.num_elements + body.stacked;
    if (body.ages[0] & 1) paint_head(record, &snake, own, size, planes);
}

/* Writes the visible food, and the food that appeared on this turn. */
INLINE void paint_visible_food(const Game *game, const Scene *scene, const uint8_t *visible,
                               int size, uint8_t *to) {
    const Record *record = game->record;
    const int16_t *food = side_food(game->side);
    for (int start = 0; start < size; start += BLOCK) {
        int from = min_int(start, size - BLOCK);
        *(LooseBlock *)(to + from) = BLOCK_AT(scene->food.cells + from) & BLOCK_AT(visible + from);
    }
    for (int i = record->num_food - record->new_food; i < record->num_food; i++)
        to[food[i]] = FOOD_VALUE;
}

/* Writes the visible cells of all other snakes, with the values of completely visible bodies. */
INLINE void paint_visible_others(const Scene *scene, const uint8_t *visible, int own, int size,
                                 uint8_t *to) {
    const uint8_t *all = scene->all_bodies.cells, *mine = scene->bodies[own].cells;
    for (int start = 0; start < size; start += BLOCK) {
        int from = min_int(start, size - BLOCK);
        *(LooseBlock *)(to + from) =
            (BLOCK_AT(all + from) ^ BLOCK_AT(mine + from)) & BLOCK_AT(visible + from);
    }
}

/* Writes the changed planes that the snake at seat `own` sees, like paint_planes(). */
INLINE void paint_limited_planes(const Game *game, const Record *before, const Scene *scene,
                                 int news, int own, int size, uint8_t *planes) {
    const Record *record = game->record;
    Sight sight;
    make_sight(record, &record->snakes[own], game->rules->view_reach - 1, scene->span, &sight);
    paint_numbers(before, record, scene, news & ~NEW_FOOD, own, size, planes);
    paint_visible_food(game, scene, sight.visible, size, planes + FOOD_PLANE * size);
    copy_plane(&scene->bodies[own], size, planes + OWN_BODY_PLANE * size);
    paint_visible_others(scene, sight.visible, own, size, planes + OTHER_BODIES_PLANE * size);
    fill_plane(0, 2 * size, planes + LONGER_HEADS_PLANE * size);
    for (unsigned rest = record->alive_mask & ~(1u << own); rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        const Plane *body = &scene->bodies[seat];
        if (!has_cell_in(body, sight.visible, scene->span)) continue;
        if (has_cell_in(body, sight.hidden, scene->span))
            paint_sent_body(game, scene, sight.visible, seat, own, size, planes);
        else
            paint_head(record, &record->snakes[seat], own, size, planes);
    }
}
