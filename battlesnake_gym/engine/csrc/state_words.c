/* Conversion between games and int32 words in this order:
 *
 *     turn, width, height, number of snakes;
 *     per snake: cause, killer (seat or -1), turn of elimination, health, segments, then x, y each;
 *     number of food cells, then x, y each;
 *     number of hazard runs, then x, y, count each;
 *     number of castle gates, then x, y each; outputs used by healing pools. */
#include <stdio.h>
#include <string.h>

#include "game.h"

/* Writer of words in order. If `words` is NULL, the writer only counts the words. */
typedef struct {
    int32_t *words;
    size_t count;
} Writer;

static void put(Writer *writer, int32_t word) {
    if (writer->words) writer->words[writer->count] = word;
    writer->count++;
}

static void put_points(Writer *writer, const Point *points, int32_t cells, int32_t length) {
    put(writer, length);
    for (int32_t i = 0; i < length; i++) {
        Point at = points[i < cells ? i : cells - 1];
        put(writer, at.x);
        put(writer, at.y);
    }
}

static void put_exported_snake(const Game *game, int seat, Writer *writer) {
    const Snake *snake = &game->record->snakes[seat];
    const DeadBody *dead_body = &game->side->dead_bodies[seat];
    put(writer, snake->cause);
    put(writer, snake->killer);
    put(writer, snake->alive ? 0 : dead_body->eliminated_on);
    put(writer, snake->health);
    if (!snake->alive) {
        put_points(writer, side_dead_bodies(game->side, seat), dead_body->cells, dead_body->length);
        return;
    }
    Point points[MAX_CELLS + 1];
    body_points(game->layout, game->record, seat, points);
    put_points(writer, points, snake->extent, snake->length);
}

size_t export_game(const Game *game, int32_t *words) {
    const Record *record = game->record;
    Writer writer = {words, 0};
    put(&writer, record->turn);
    put(&writer, record->width);
    put(&writer, record->height);
    put(&writer, record->num_snakes);
    for (int seat = 0; seat < record->num_snakes; seat++) put_exported_snake(game, seat, &writer);
    put(&writer, record->num_food);
    for (int i = 0; i < record->num_food; i++) {
        int cell = side_food(game->side)[i];
        put(&writer, cell % record->width);
        put(&writer, cell / record->width);
    }
    put(&writer, game->side->num_runs);
    for (int i = 0; i < game->side->num_runs; i++) {
        HazardRun run = side_hazard_runs(game->side)[i];
        put(&writer, run.at.x);
        put(&writer, run.at.y);
        put(&writer, run.count);
    }
    put_points(&writer, game->side->gates, game->side->num_gates, game->side->num_gates);
    put(&writer, game->side->pools_drawn);
    return writer.count;
}

/* Reader of words in order. After the last word, the reader returns 0 and sets `broken`. */
typedef struct {
    const int32_t *words;
    size_t left;
    bool broken;
    char *message;
    size_t message_size;
} Reader;

static int32_t take(Reader *reader) {
    if (!reader->left) {
        reader->broken = true;
        return 0;
    }
    reader->left--;
    return *reader->words++;
}

/* Reads a number of items of `size` words each; returns -1 and sets `broken` if there are too few
 * words. */
static int32_t take_count(Reader *reader, size_t size) {
    int32_t count = take(reader);
    if (count < 0 || (size_t)count > reader->left / size) reader->broken = true;
    return reader->broken ? -1 : count;
}

#define FAIL(reader, ...) (snprintf((reader)->message, (reader)->message_size, __VA_ARGS__), false)

static bool is_small(int32_t value) { return value >= INT8_MIN && value <= INT8_MAX; }

/* Returns the number of distinct cells, without repetitions of the last segment. */
static int32_t count_cells(const int32_t *points, int32_t length) {
    const int32_t *last = points + 2 * (length - 1);
    int32_t cells = length;
    while (cells > 1 && points[2 * cells - 4] == last[0] && points[2 * cells - 3] == last[1]) {
        cells--;
    }
    return cells;
}

static bool import_living(Game *game, int seat, const int32_t *points, int32_t length,
                          Reader *reader) {
    Record *record = game->record;
    uint16_t *marks = record_marks(game->layout, record);
    int32_t cells = count_cells(points, length);
    if (length < 2) { /* the rules eliminate such a snake when it eats; play_turn does not */
        return FAIL(reader, "snakes[%d] is alive with a body of a single segment", seat);
    }
    for (int32_t age = 0; age < cells; age++) {
        int32_t x = points[2 * age], y = points[2 * age + 1];
        if (!on_board(record, x, y)) {
            return FAIL(reader, "snakes[%d] is alive with the segment (%d, %d) off the board", seat,
                        x, y);
        }
        uint16_t *mark = &marks[cell_at(record, x, y)];
        if (*mark) {
            return FAIL(reader,
                        "two living segments share the cell (%d, %d), the second one of "
                        "snakes[%d]; the compiled engine only holds stacked tails",
                        x, y, seat);
        }
        *mark = (uint16_t)(seat << CLOCK_BITS | (record->clock - age));
    }
    Snake *snake = &record->snakes[seat];
    snake->length = length;
    snake->extent = (uint16_t)cells;
    snake->alive = 1;
    record->alive_mask |= (uint16_t)(1u << seat);
    record->living++;
    return true;
}

static bool import_dead(Game *game, int seat, int32_t eliminated_on, const int32_t *points,
                        int32_t length, Reader *reader) {
    int32_t cells = count_cells(points, length);
    if ((uint32_t)cells > game->side->max_dead_points) {
        return FAIL(reader, "snakes[%d] is dead with %d segments; the compiled engine holds %u",
                    seat, cells, game->side->max_dead_points);
    }
    Point *dead = side_dead_bodies(game->side, seat);
    for (int32_t i = 0; i < cells; i++) {
        dead[i] = (Point){(int8_t)points[2 * i], (int8_t)points[2 * i + 1]};
    }
    game->side->dead_bodies[seat] = (DeadBody){eliminated_on, length, cells};
    return true;
}

static bool import_snake(Game *game, int seat, Reader *reader) {
    Record *record = game->record;
    Snake *snake = &record->snakes[seat];
    int32_t cause = take(reader), killer = take(reader), eliminated_on = take(reader);
    int32_t health = take(reader), length = take_count(reader, 2);
    if (reader->broken || cause < CAUSE_NONE || cause > CAUSE_HAZARD || killer < -1 ||
        killer >= record->num_snakes) {
        reader->broken = true;
        return false;
    }
    if (!length) return FAIL(reader, "snakes[%d] has no body", seat);
    if (cause == CAUSE_NONE ? health < 1 || health > MAX_HEALTH
                            : health < INT16_MIN || health > INT16_MAX) {
        return FAIL(reader, "snakes[%d] has health %d; that of a living snake is 1 to %d", seat,
                    health, MAX_HEALTH);
    }
    const int32_t *points = reader->words;
    for (int32_t i = 0; i < 2 * length; i++) {
        if (!is_small(take(reader))) {
            return FAIL(reader, "snakes[%d] has a segment far off the board (coordinate %d)", seat,
                        points[i]);
        }
    }
    snake->x = (int16_t)points[0];
    snake->y = (int16_t)points[1];
    snake->health = (int16_t)health;
    snake->cause = (uint8_t)cause;
    snake->killer = (int8_t)killer;
    const int32_t *neck = points + (length > 1 ? 2 : 0);
    record->facing[seat] = (uint8_t)straight_move(points[0], points[1], neck[0], neck[1]);
    return cause == CAUSE_NONE ? import_living(game, seat, points, length, reader)
                               : import_dead(game, seat, eliminated_on, points, length, reader);
}

static bool import_food(Game *game, Reader *reader) {
    int32_t count = take_count(reader, 2);
    if (count > game->layout->max_cells) {
        return FAIL(reader, "%d food; the compiled engine holds %d at the start", count,
                    game->layout->max_cells);
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t x = take(reader), y = take(reader);
        if (!on_board(game->record, x, y)) {
            return FAIL(reader, "food[%d] lies off the board at (%d, %d)", i, x, y);
        }
        if (record_food(game->layout, game->record)[cell_at(game->record, x, y)] == UINT8_MAX) {
            return FAIL(reader, "more than %d food on the cell (%d, %d)", UINT8_MAX, x, y);
        }
        add_food(game, cell_at(game->record, x, y));
    }
    return true;
}

static bool import_hazards(Game *game, Reader *reader) {
    int32_t runs = take_count(reader, 3);
    for (int32_t i = 0; i < runs; i++) {
        int32_t x = take(reader), y = take(reader), count = take(reader);
        if (!is_small(x) || !is_small(y)) {
            return FAIL(reader, "a hazard lies far off the board at (%d, %d)", x, y);
        }
        if (count < 1 || count > UINT16_MAX) {
            return FAIL(reader, "%d hazards in a row at (%d, %d); the compiled engine holds %d",
                        count, x, y, UINT16_MAX);
        }
        add_hazard(game, x, y, count);
        if (game->record->halt) {
            return FAIL(reader,
                        "hazards change their place more than %u times; that is all "
                        "the compiled engine holds",
                        game->side->max_runs);
        }
    }
    return true;
}

static bool import_memory(Game *game, Reader *reader) {
    int32_t gates = take_count(reader, 2);
    if (gates > MAX_GATES) {
        return FAIL(reader, "%d castle candidates; there are at most %d", gates, MAX_GATES);
    }
    for (int32_t i = 0; i < gates; i++) {
        int32_t x = take(reader), y = take(reader);
        if (!on_board(game->record, x, y)) {
            return FAIL(reader, "castle candidate (%d, %d) lies off the board", x, y);
        }
        game->side->gates[i] = (Point){(int8_t)x, (int8_t)y};
    }
    game->side->num_gates = gates > 0 ? gates : 0;
    int32_t drawn = take(reader);
    if (drawn < 0 || drawn > 1000000) {
        return FAIL(reader, "pool_outputs is %d; it must be 0 to 1000000", drawn);
    }
    game->side->pools_drawn = drawn;
    return true;
}

static bool import_all(Game *game, int64_t seed, Reader *reader) {
    const Layout *layout = game->layout;
    int32_t turn = take(reader), width = take(reader), height = take(reader);
    int32_t snakes = take(reader);
    if (turn < 0 || turn > INT32_MAX - 1000000) {
        return FAIL(reader, "turn is %d; it must be 0 to %d", turn, INT32_MAX - 1000000);
    }
    if (width < 1 || width > layout->max_width || height < 1 || height > layout->max_height ||
        width * height > layout->max_cells) {
        return FAIL(reader, "the board is %dx%d; these games have room for 1x1 to %dx%d", width,
                    height, layout->max_width, layout->max_height);
    }
    if (snakes < 0 || snakes > layout->max_snakes) {
        return FAIL(reader, "there are %d snakes; these games have room for %d", snakes,
                    layout->max_snakes);
    }
    clear_game(game, width, height, snakes, seed);
    game->record->turn = turn;
    for (int seat = 0; seat < snakes; seat++) {
        if (!import_snake(game, seat, reader)) return false;
    }
    if (!import_food(game, reader) || !import_hazards(game, reader)) return false;
    if (!import_memory(game, reader)) return false;
    if (reader->broken || reader->left) return false;
    game->record->over = is_over(game->rules, game->record);
    game->record->new_food = turn == 0 ? game->record->num_food : 0;
    return true;
}

const char *import_game(Game *game, int64_t seed, const int32_t *words, size_t count,
                        char *message, size_t message_size) {
    Reader reader = {words, count, false, message, message_size};
    snprintf(message, message_size, "words do not describe a game");
    if (import_all(game, seed, &reader)) return NULL;
    clear_game(game, 1, 1, 0, seed);
    return message;
}
