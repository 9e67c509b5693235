/* Start positions of snakes and food, in the order of the official engine's random draws. */
#include <string.h>

#include "game.h"

enum {
    CORNER_AND_SIDE_STARTS = 8,
    SMALLEST_FIXED = 7, /* narrower boards get random start cells */
    SMALLEST_QUADRANTS = 11,
    FEW_SNAKES = 4,   /* with at most this many snakes, every board gets food beside each snake */
    LARGE_AREA = 121, /* boards with at least this many cells get food beside every snake */
};

void clear_game(Game *game, int width, int height, int num_snakes, int64_t seed) {
    Record *record = game->record;
    memset(record, 0, game->layout->record_size - REDZONE);
    record->clock = CLOCK_START;
    record->width = (uint8_t)width;
    record->height = (uint8_t)height;
    record->num_snakes = (uint8_t)num_snakes;
    record->seed = seed;
    record->over = 1;
    for (int seat = 0; seat < game->layout->max_snakes; seat++) record->snakes[seat].killer = -1;
    SideData *side = game->side;
    side->num_runs = 0;
    side->off_board = 0;
    side->shrunk = -1;
    side->num_gates = 0;
    side->pools_drawn = 0;
    memset(side->dead_bodies, 0, sizeof side->dead_bodies);
}

void put_snake(Game *game, int seat, int x, int y) {
    Record *record = game->record;
    Snake *snake = &record->snakes[seat];
    snake->x = (int16_t)x;
    snake->y = (int16_t)y;
    snake->length = START_LENGTH;
    snake->extent = 1;
    snake->health = MAX_HEALTH;
    snake->alive = 1;
    record_marks(game->layout, record)[cell_at(record, x, y)] =
        (uint16_t)(seat << CLOCK_BITS | record->clock);
    record->alive_mask |= (uint16_t)(1u << seat);
    record->living++;
}

void shuffle_points(Rand *rand, Point *points, int n) {
    int16_t order[MAX_CELLS];
    Point before[MAX_CELLS];
    for (int i = 0; i < n; i++) order[i] = (int16_t)i;
    memcpy(before, points, sizeof(Point) * (size_t)n);
    rand_shuffle(rand, order, n);
    for (int i = 0; i < n; i++) points[i] = before[order[i]];
}

void put_snakes_shuffled(Game *game, Rand *rand, Point *points, int n) {
    shuffle_points(rand, points, n);
    for (int seat = 0; seat < game->record->num_snakes; seat++) {
        put_snake(game, seat, points[seat].x, points[seat].y);
    }
}

static void place_on_corners_and_sides(Game *game, Rand *rand) {
    int8_t low = 1, middle = (int8_t)((game->record->width - 1) / 2);
    int8_t high = (int8_t)(game->record->width - 2);
    Point corners[] = {{low, low}, {low, high}, {high, low}, {high, high}};
    Point sides[] = {{low, middle}, {middle, low}, {middle, high}, {high, middle}};
    shuffle_points(rand, corners, 4);
    shuffle_points(rand, sides, 4);
    bool sides_first = rand_intn(rand, 2);
    for (int seat = 0; seat < game->record->num_snakes; seat++) {
        const Point *list = (seat < 4) == sides_first ? sides : corners;
        put_snake(game, seat, list[seat % 4].x, list[seat % 4].y);
    }
}

int place_in_quadrants(Game *game, Rand *rand, const Point (*quadrants)[4], int places) {
    int left[4] = {places, places, places, places};
    Point lists[4][4];
    memcpy(lists, quadrants, sizeof lists);
    if (game->record->num_snakes > 4 * places) return -1;
    int quadrant = rand_intn(rand, 4);
    for (int seat = 0; seat < game->record->num_snakes; seat++) {
        Point *list = lists[quadrant];
        int index = rand_intn(rand, left[quadrant]);
        put_snake(game, seat, list[index].x, list[index].y);
        list[index] = list[--left[quadrant]];
        quadrant = (quadrant + 1) % 4;
    }
    return 0;
}

static int place_in_standard_quadrants(Game *game, Rand *rand) {
    int size = game->record->width;
    int8_t near = (int8_t)(size / 2 / 3), far = (int8_t)(size / 2 - near);
    int8_t last = (int8_t)(size - 1);
    Point quadrants[4][4] = {{{near, near}, {far, near}, {near, far}, {far, far}}};
    for (int i = 0; i < 4; i++) {
        Point at = quadrants[0][i];
        quadrants[1][i] = (Point){(int8_t)(last - at.x), at.y};
        quadrants[2][i] = (Point){at.x, (int8_t)(last - at.y)};
        quadrants[3][i] = (Point){(int8_t)(last - at.x), (int8_t)(last - at.y)};
    }
    return place_in_quadrants(game, rand, (const Point(*)[4])quadrants, 4);
}

static Point center(const Record *record) {
    return (Point){(int8_t)((record->width - 1) / 2), (int8_t)((record->height - 1) / 2)};
}

bool is_living_head(const Record *record, int x, int y) {
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        const Snake *snake = &record->snakes[__builtin_ctz(rest)];
        if (snake->x == x && snake->y == y) return true;
    }
    return false;
}

/* Places each snake on a random cell with even x + y, so that all heads can meet. */
static int place_on_random_cells(Game *game, Rand *rand) {
    const Record *record = game->record;
    Point middle = center(record);
    for (int seat = 0; seat < record->num_snakes; seat++) {
        Point cells[MAX_CELLS];
        int count = 0;
        for (int x = 0; x < record->width; x++) {
            for (int y = x % 2; y < record->height; y += 2) {
                if ((x == middle.x && y == middle.y) || is_living_head(record, x, y)) continue;
                cells[count++] = (Point){(int8_t)x, (int8_t)y};
            }
        }
        if (!count) return -1;
        Point at = cells[rand_intn(rand, count)];
        put_snake(game, seat, at.x, at.y);
    }
    return 0;
}

int place_snakes(Game *game, Rand *rand) {
    const Record *record = game->record;
    int width = record->width, count = record->num_snakes;
    bool square = width == record->height;
    if (square && count > CORNER_AND_SIDE_STARTS && width < SMALLEST_FIXED) return -1;
    if (square && width >= SMALLEST_FIXED && count <= CORNER_AND_SIDE_STARTS) {
        place_on_corners_and_sides(game, rand);
        return 0;
    }
    if (square && width >= SMALLEST_QUADRANTS) return place_in_standard_quadrants(game, rand);
    return place_on_random_cells(game, rand);
}

/* Lists the diagonal neighbors of a head that are away from the center and not in a corner. */
static int diagonal_cells(const Record *record, int head_x, int head_y, Point *cells) {
    Point middle = center(record);
    int count = 0;
    for (int i = 0; i < 4; i++) {
        int x = head_x + (i < 2 ? -1 : 1), y = head_y + (i % 2 ? 1 : -1);
        bool away = (x < head_x && head_x < middle.x) || (middle.x < head_x && head_x < x) ||
                    (y < head_y && head_y < middle.y) || (middle.y < head_y && head_y < y);
        bool corner = (x == 0 || x == record->width - 1) && (y == 0 || y == record->height - 1);
        if (!away || corner || (x == middle.x && y == middle.y)) continue;
        cells[count++] = (Point){(int8_t)x, (int8_t)y};
    }
    return count;
}

int food_beside_snakes(Game *game, Rand *rand, bool refuse_taken) {
    const Record *record = game->record;
    const uint8_t *food = record_food(game->layout, record);
    const uint8_t *hazards = record_hazards(game->layout, record);
    for (int seat = 0; seat < record->num_snakes; seat++) {
        Point cells[4];
        int all = diagonal_cells(record, record->snakes[seat].x, record->snakes[seat].y, cells);
        int count = 0;
        for (int i = 0; i < all; i++) {
            int cell = cell_at(record, cells[i].x, cells[i].y);
            bool taken = hazards[cell] || is_living_head(record, cells[i].x, cells[i].y);
            if (!food[cell] && !(refuse_taken && taken)) cells[count++] = cells[i];
        }
        if (!count) return -1;
        Point at = cells[rand_intn(rand, count)];
        add_food(game, cell_at(record, at.x, at.y));
    }
    return 0;
}

static void food_on_random_cells(Game *game, Rand *rand) {
    CellList list;
    for (int i = 0; i < game->record->num_snakes; i++) {
        free_cells(game, false, &list);
        if (list.count) add_food(game, list.cells[rand_intn(rand, list.count)]);
    }
}

int start_food(Game *game, Rand *rand) {
    const Record *record = game->record;
    int width = record->width, height = record->height;
    if (width != height || width < SMALLEST_FIXED) {
        food_on_random_cells(game, rand);
        return 0;
    }
    if ((record->num_snakes <= FEW_SNAKES || width * height >= LARGE_AREA) &&
        food_beside_snakes(game, rand, false) < 0) {
        return -1;
    }
    Point middle = center(record);
    if (is_living_head(record, middle.x, middle.y)) return -1;
    add_food(game, cell_at(record, middle.x, middle.y));
    return 0;
}

int standard_start(Game *game, Rand *rand) {
    return place_snakes(game, rand) < 0 ? -1 : start_food(game, rand);
}

int start_game(Game *game, int width, int height, int num_snakes, int64_t seed) {
    clear_game(game, width, height, num_snakes, seed);
    if (game->rules->map->setup(game) < 0) {
        clear_game(game, width, height, num_snakes, seed);
        return -1;
    }
    Record *record = game->record;
    record->over = is_over(game->rules, record);
    /* This removal prevents growth on the first turn. */
    if (game->rules->constrictor && !record->over) clear_food(game);
    record->new_food = record->num_food;
    return 0;
}
