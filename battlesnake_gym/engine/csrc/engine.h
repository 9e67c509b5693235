/* The game engine: one record per game, and the rules that work on it.
 *
 * A record is one block of bytes: a header, the snakes, then three planes of one entry per cell
 * (marks, food, hazards). It holds all that the rules of a turn need, so that a search copies a
 * position with one memcpy. What only the order of lists, the maps and the dead need is apart,
 * in a Cold block per game.
 *
 * Marks. A head leaves (snake << CLOCK_BITS | clock) on the cell it enters. The clock goes up by
 * one each turn, so clock - mark is the index of that cell in the snake's body, and the cell
 * belongs to the snake while this age is smaller than the snake's extent (its number of different
 * cells). Tails need no work, and the dead vanish because their extent is 0. An empty cell has the
 * mark 0, which is too old for every snake because the clock starts at CLOCK_START.
 *
 * Cells are numbered y * width + x, with the game's own width; y grows upwards.
 */
#ifndef BATTLESNAKE_ENGINE_H
#define BATTLESNAKE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_SIDE = 25,
    MAX_CELLS = MAX_SIDE * MAX_SIDE,
    MAX_SNAKES = 16,
    MAX_HEALTH = 100,
    START_LENGTH = 3,
    CLOCK_BITS = 12,
    CLOCK_MASK = (1 << CLOCK_BITS) - 1,
    CLOCK_START = 1024, /* more than MAX_CELLS: a mark of 0 is older than any snake is long */
    PLANE_SLACK = 64,   /* entries behind any plane that loops over it may read */
    NO_MOVE = 4,        /* the action of a snake that gave no valid move */
};

/* Actions, as indices into battlesnake_gym.rules.MOVES, and what they add to a head. */
enum { UP, DOWN, LEFT, RIGHT };
static const int8_t DX[] = {0, 0, -1, 1}, DY[] = {1, -1, 0, 0};

static inline int largest(int a, int b) { return a > b ? a : b; }
static inline int smallest(int a, int b) { return a < b ? a : b; }

/* A coordinate beyond a border of a wrapped board. */
static inline int wrap(int coordinate, int size) {
    return coordinate < 0 ? size - 1 : coordinate >= size ? 0 : coordinate;
}
/* Between two coordinates. */
static inline int distance(int a, int b, int size, bool wrapped) {
    int apart = a < b ? b - a : a - b, around = size - apart;
    return wrapped && around < apart ? around : apart;
}

/* Causes of elimination, as indices into battlesnake_gym.rules.CAUSES. */
enum { ALIVE, WALL, SELF, BODY, HEAD, STARVED, HAZARD };

/* One snake of a record. A dead one keeps head, health, cause and killer; length and extent are 0. */
typedef struct {
    int16_t x, y;    /* head; of a dead snake it may lie one cell off the board */
    int32_t length;  /* segments, stacked ones included */
    uint16_t extent; /* different cells: ages 0 .. extent - 1; the other segments lie on the last */
    int16_t health;
    uint8_t cause;
    int8_t killer; /* seat, or -1 */
    uint8_t alive;
    uint8_t ate; /* whether the last turn's head was on food */
} Snake;

/* The header of a record; planes follow the snakes, at the offsets of the Layout. */
typedef struct {
    int32_t turn;
    uint16_t clock;
    uint8_t width, height;
    uint8_t num_snakes; /* seats in use */
    uint8_t living;
    uint8_t over;
    uint8_t halt;        /* why this game cannot go on (HALT_...), or 0 */
    uint8_t any_hazards; /* whether the hazard list has an entry, off the board included */
    uint16_t alive_mask; /* bit s: seat s lives */
    uint16_t num_food;   /* entries of the food list */
    uint16_t food_changes;    /* go up when the food or the hazards change, to and over 0 */
    uint16_t hazard_changes;
    int64_t seed;
    uint8_t facing[MAX_SNAKES]; /* the move straight on: from neck to head; UP without a neck */
    Snake snakes[];             /* max_snakes of them */
} Record;

/* AddressSanitizer only watches the borders of a block of memory, and all games of a batch share one:
 * for it, every record and every Cold block ends in bytes that no code may touch. */
#ifdef __SANITIZE_ADDRESS__
enum { REDZONE = 64 };
#else
enum { REDZONE = 0 };
#endif

/* Sizes and offsets, in bytes, of all records of one batch. */
typedef struct {
    int32_t max_width, max_height, max_cells, max_snakes;
    size_t marks, food, hazards; /* offsets into a record */
    size_t record_size;          /* a multiple of 64, REDZONE included */
    size_t cold_size;            /* a multiple of 64, REDZONE included */
} Layout;

Layout make_layout(int max_width, int max_height, int max_snakes);

/* The planes of a record. uint16_t marks; uint8_t number of food (0, 1; more only if loaded so);
 * uint8_t number of hazards in the stack, 255 meaning 255 or more. */
static inline uint16_t *record_marks(const Layout *layout, const Record *record) {
    return (uint16_t *)((char *)record + layout->marks);
}
static inline uint8_t *record_food(const Layout *layout, const Record *record) {
    return (uint8_t *)record + layout->food;
}
static inline uint8_t *record_hazards(const Layout *layout, const Record *record) {
    return (uint8_t *)record + layout->hazards;
}

static inline int cell_at(const Record *record, int x, int y) { return y * record->width + x; }
static inline bool on_board(const Record *record, int x, int y) {
    return (unsigned)x < record->width && (unsigned)y < record->height;
}

static inline int mark_snake(uint16_t mark) { return mark >> CLOCK_BITS; }

/* The index of the marked cell in its snake's body. Only meaningful if below the extent. */
static inline int mark_age(const Record *record, uint16_t mark) {
    return record->clock - (mark & CLOCK_MASK);
}

/* The seat whose body holds a cell with this mark, or -1. A cell of age a is left by its snake
 * after length - a turns (if it eats nothing meanwhile). */
static inline int mark_owner(const Record *record, uint16_t mark) {
    int seat = mark_snake(mark);
    return mark_age(record, mark) < record->snakes[seat].extent ? seat : -1;
}

/* What is the same for all games of a batch: ruleset, settings and map. */
typedef struct {
    uint8_t wrapped;     /* heads that leave the board enter on the other side */
    uint8_t constrictor; /* no food, always grow */
    uint8_t royale;      /* the shrink stage */
    uint8_t alone;       /* over only when no snake is left */
    uint8_t seeded_food; /* per-turn food from the reference's stream */
    int32_t food_spawn_chance;
    int32_t minimum_food;
    int32_t hazard_damage; /* clamped to -100 .. 101: beyond, nothing changes */
    int32_t shrink_every;
    const struct Map *map; /* NULL: no map at all */
} Rules;

/* Health after this many layers of hazard; 0 or less is death. */
static inline int damaged(int health, int layers, int damage) {
    return smallest(MAX_HEALTH, health - layers * damage);
}

/* Health after a turn that ends on this cell; 0 or less is death. */
static inline int health_on(const Layout *layout, const Rules *rules, const Record *record,
                            int health, int cell) {
    int left = damaged(health - 1, record_hazards(layout, record)[cell], rules->hazard_damage);
    return record_food(layout, record)[cell] ? MAX_HEALTH : left;
}

typedef struct Cold Cold; /* see cold.h */

/* Why a game cannot go on. */
enum {
    HALT_SCATTER_FULL = 1,
    HALT_PITS_EVERY,
    HALT_HAZARD_LIST,
    HALT_LONG_BODY,
    HALT_MAZE_PLAYERS,
};

/* One turn: moves, damage, food eaten, eliminations, growth, shrinking, the map's food and hazards;
 * then turn + 1 and the test for the end. actions[s] is 0..3 or NO_MOVE; those of dead snakes are not
 * read. */
void step_game(const Layout *layout, const Rules *rules, Record *record, Cold *cold,
               const uint8_t *actions);

#endif
