/* The map solo_maze, which builds a larger maze whenever the only snake eats. The hazards of the
 * bottom row store the level as a binary number. All random numbers come from the official stream,
 * independent of the food setting. */
#include <string.h>

#include "maps.h"

enum {
    FIRST_SIZE = 7,
    LEVELS_AFTER_FULL_SIZE = 5,
    FOOD_ATTEMPTS = 100,
    FAR = 5,
    LONGEST_BODY = 100000,
};

static int cells_apart(int x, int y, int other_x, int other_y) {
    return distance(x, other_x, 0, false) + distance(y, other_y, 0, false);
}

/* Returns the largest maze size; the bottom and top rows stay free. */
static int largest_size(const Record *record) { return min_int(record->width, record->height - 2); }

typedef struct {
    int size;
    int x, y; /* lower left cell */
} Square;

static Square maze_square(const Record *record, int level) {
    int size = min_int(FIRST_SIZE + level, largest_size(record));
    return (Square){size, (record->width - size) / 2, (record->height - size) / 2};
}

/* Returns the level stored in the bottom row; the leftmost cell is the highest bit. */
static int read_level(const Game *game) {
    const uint8_t *hazards = record_hazards(game->layout, game->record);
    int level = 0;
    for (int x = 0; x < game->record->width; x++) level = level * 2 + (hazards[x] > 0);
    return level;
}

static void maze_rand(const Game *game, int32_t offset, Rand *rand) {
    rand_seeded(rand, (int64_t)((uint64_t)game->record->seed +
                                (uint64_t)(int64_t)(game->record->turn + offset)));
}

/* State of the maze generator by recursive division: walls with holes divide rooms into smaller
 * rooms. */

typedef struct {
    Rand rand;
    int count;
    Point built[MAX_CELLS];
    bool is_built[MAX_SIDE][MAX_SIDE];
} Division;

typedef struct {
    int count;
    Point cells[MAX_SIDE];
} Wall;

static void build(Division *division, const Wall *wall) {
    for (int i = 0; i < wall->count; i++) {
        Point at = wall->cells[i];
        if (division->is_built[at.x][at.y]) continue;
        division->is_built[at.x][at.y] = true;
        division->built[division->count++] = at;
    }
}

/* Returns a random position for a wall across the room first .. last, or -1 if no position is
 * possible. */
static int choose(Division *division, int first, int last, uint32_t refused) {
    int places[MAX_SIDE], count = 0;
    for (int place = first + 1; place < last - 1; place++) {
        if (!(refused >> place & 1)) places[count++] = place;
    }
    return count ? places[rand_intn(&division->rand, count)] : -1;
}

/* Removes and returns a random cell of the wall's cells start .. stop - 1; the last cell replaces
 * it. */
static Point make_hole(Division *division, Wall *wall, int start, int stop) {
    int index = start + rand_intn(&division->rand, stop - start);
    Point hole = wall->cells[index];
    wall->cells[index] = wall->cells[--wall->count];
    return hole;
}

/* Adds the walls of the room (x0, y0) .. (x1, y1). A wall in an open row or column would close a
 * hole and is therefore excluded. A wall belongs to the room on its left or below it. */
static void divide(Division *division, int x0, int y0, int x1, int y1, uint32_t open_rows,
                   uint32_t open_columns) {
    if (x1 - x0 <= 2 && y1 - y0 <= 2) return;
    int column = choose(division, x0, x1, open_columns);
    int row = choose(division, y0, y1, open_rows);
    if (column < 0 && row < 0) return;
    Wall upright = {0}, level = {0};
    for (int y = y0; column >= 0 && y <= y1; y++) {
        upright.cells[upright.count++] = (Point){(int8_t)column, (int8_t)y};
    }
    for (int x = x0; row >= 0 && x <= x1; x++) {
        if (x != column) level.cells[level.count++] = (Point){(int8_t)x, (int8_t)row};
    }
    if (column >= 0 && row >= 0) {
        int crossing = row - y0;
        open_rows |= 1u << make_hole(division, &upright, 0, crossing).y;
        if (upright.count > crossing + 1) {
            open_rows |= 1u << make_hole(division, &upright, crossing + 1, upright.count).y;
        }
        open_columns |= 1u << make_hole(division, &level, 0, column - x0).x;
    } else if (column >= 0) {
        open_rows |= 1u << make_hole(division, &upright, 0, upright.count - 1).y;
    } else {
        open_columns |= 1u << make_hole(division, &level, 0, level.count - 1).x;
    }
    build(division, &upright);
    build(division, &level);
    int middle_x = column >= 0 ? column : x1, middle_y = row >= 0 ? row : y1;
    divide(division, x0, y0, middle_x, middle_y, open_rows, open_columns);
    if (column >= 0) divide(division, column + 1, y0, x1, middle_y, open_rows, open_columns);
    if (row >= 0) divide(division, x0, row + 1, middle_x, y1, open_rows, open_columns);
    if (column >= 0 && row >= 0) {
        divide(division, column + 1, row + 1, x1, y1, open_rows, open_columns);
    }
}

/* Writes the level as a binary number, padded to the width of the board. If the number has more
 * digits than the board has columns, the last digits are off the board. */
static void write_level(Game *game, int level) {
    int digits = game->record->width;
    while (level >> digits) digits++;
    for (int x = 0; x < digits; x++) {
        if (level >> (digits - 1 - x) & 1) add_hazard(game, x, 0, 1);
    }
}

static void add_level_hazards(Game *game, int level, Square square) {
    const Record *record = game->record;
    Division division;
    maze_rand(game, 0, &division.rand);
    division.count = 0;
    memset(division.is_built, 0, sizeof division.is_built);
    divide(&division, 0, 0, square.size - 1, square.size - 1, 0, 0);
    write_level(game, level);
    for (int i = 0; i < division.count; i++) {
        add_hazard(game, division.built[i].x + square.x, division.built[i].y + square.y, 1);
    }
    for (int x = 0; x < record->width; x++) {
        for (int y = 1; y < record->height; y++) {
            bool inside = x >= square.x && x < square.x + square.size && y >= square.y &&
                          y < square.y + square.size;
            if (!inside) add_hazard(game, x, y, 1);
        }
    }
}

/* Places the snake with the head at the lower left of the maze and all other segments one cell
 * lower. */
static void put_maze_snake(Game *game, int level, Square square) {
    Record *record = game->record;
    Snake *snake = &record->snakes[0];
    Point body[] = {{(int8_t)square.x, (int8_t)square.y}, {(int8_t)square.x, (int8_t)(square.y - 1)}};
    snake->x = body[0].x;
    snake->y = body[0].y;
    snake->health = MAX_HEALTH;
    record->facing[0] = UP;
    if (!snake->alive) {
        game->side->dead_bodies[0].length = level + START_LENGTH;
        game->side->dead_bodies[0].cells = 2;
        memcpy(side_dead_bodies(game->side, 0), body, sizeof body);
        return;
    }
    snake->length = level + START_LENGTH;
    snake->extent = 2;
    uint16_t *marks = record_marks(game->layout, record);
    memset(marks, 0, sizeof *marks * (size_t)(record->width * record->height));
    marks[cell_at(record, body[0].x, body[0].y)] = record->clock;
    marks[cell_at(record, body[1].x, body[1].y)] = (uint16_t)(record->clock - 1);
}

/* Adds one food in the maze at a distance from the head, without a wall (walls[cell] != 0) or the
 * snake on the cell. Each attempt uses a generator with another seed. */
static void feed_maze(Game *game, Square square, const uint8_t *walls) {
    const Record *record = game->record;
    Point body[MAX_CELLS + 2];
    int cells = game->side->dead_bodies[0].cells;
    if (record->snakes[0].alive) {
        cells = record->snakes[0].extent;
        body_points(game->layout, record, 0, body);
    } else {
        memcpy(body, side_dead_bodies(game->side, 0), sizeof *body * (size_t)cells);
    }
    int near = min_int(FAR, square.size / 2);
    for (int attempt = 1; attempt <= FOOD_ATTEMPTS; attempt++) {
        Rand rand;
        maze_rand(game, attempt, &rand);
        int x = rand_intn(&rand, square.size) + square.x;
        int y = rand_intn(&rand, square.size) + square.y;
        bool taken = walls[cell_at(record, x, y)] || cells_apart(x, y, body[0].x, body[0].y) < near;
        for (int i = 0; i < cells && !taken; i++) taken = body[i].x == x && body[i].y == y;
        if (taken) continue;
        add_food(game, cell_at(record, x, y));
        return;
    }
}

static void build_level(Game *game, int level) {
    if (level + START_LENGTH > LONGEST_BODY) {
        game->record->halt = HALT_LONG_BODY;
        return;
    }
    int cells = game->record->width * game->record->height;
    Square square = maze_square(game->record, level);
    const uint8_t *hazards = record_hazards(game->layout, game->record);
    uint8_t walls[MAX_CELLS]; /* walls of the previous and of the new maze */
    memcpy(walls, hazards, (size_t)cells);
    clear_hazards(game);
    add_level_hazards(game, level, square);
    for (int cell = 0; cell < cells; cell++) walls[cell] |= hazards[cell];
    put_maze_snake(game, level, square);
    clear_food(game);
    feed_maze(game, square, walls);
}

static int setup_maze(Game *game) {
    if (game->record->num_snakes != 1) return -1;
    put_snake(game, 0, 0, 0);
    build_level(game, 0);
    return 0;
}

/* Starts the next level after the food is eaten. On the last levels, food moves to another cell if
 * the head comes near. */
static void update_maze(Game *game) {
    const Record *record = game->record;
    int level = read_level(game);
    if (!record->num_food) {
        build_level(game, level + 1);
        return;
    }
    if (level - LEVELS_AFTER_FULL_SIZE <= largest_size(record) - FIRST_SIZE) return;
    int food = side_food(game->side)[0];
    int away = cells_apart(record->snakes[0].x, record->snakes[0].y, food % record->width,
                        food / record->width);
    if (away >= FAR) return;
    clear_food(game);
    feed_maze(game, maze_square(record, level), record_hazards(game->layout, game->record));
}

static int check_maze(const Game *game) {
    return game->record->num_snakes != 1 ? HALT_MAZE_PLAYERS : 0;
}

const Map MAZE_MAPS[] = {
    {"solo_maze", MAP_FOOD, true, setup_maze, update_maze, check_maze},
    {0},
};
