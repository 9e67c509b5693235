/* The game engine: one record per game, and the rules that change records.
 *
 * A record is one block of bytes: a header, the snakes, and three planes with one entry per cell
 * (marks, food, hazards). A record contains all data that the rules of a turn need, so one memcpy
 * copies a position. A SideData block per game stores the order of lists, the state of maps and the
 * bodies of eliminated snakes.
 *
 * Marks. A head writes the mark (seat << CLOCK_BITS | clock) on each cell that it enters. The clock
 * advances by one per turn, so clock - mark is the index of the cell in the snake's body (its age).
 * The cell belongs to the snake while its age is below the snake's extent, the number of distinct
 * cells of the body. Tails therefore need no update. The cells of an eliminated snake are free,
 * because its extent is 0. An empty cell has mark 0. Its age exceeds the extent of every snake,
 * because the clock starts at CLOCK_START.
 *
 * The index of a cell is y * width + x with the width of the game; y points up. */
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
    CLOCK_START = 1024, /* above MAX_CELLS: mark 0 is older than any body */
    PLANE_SLACK = 64,   /* entries behind a plane that loops may read */
    NO_MOVE = 4,        /* action of a snake without a valid move */
};

/* Actions, as indices of battlesnake_gym.rules.MOVES, and their offsets. */
enum { UP, DOWN, LEFT, RIGHT };
static const int8_t DX[] = {0, 0, -1, 1}, DY[] = {1, -1, 0, 0};

/* Returns the larger of two integers. */
static inline int max_int(int a, int b) { return a > b ? a : b; }
/* Returns the smaller of two integers. */
static inline int min_int(int a, int b) { return a < b ? a : b; }

/* Wraps a coordinate that is at most one cell off the board. */
static inline int wrap(int coordinate, int size) {
    return coordinate < 0 ? size - 1 : coordinate >= size ? 0 : coordinate;
}
/* Returns the distance between two coordinates, in cells; if `wrapped`, the shorter distance across
 * the edge. */
static inline int distance(int a, int b, int size, bool wrapped) {
    int apart = a < b ? b - a : a - b, around = size - apart;
    return wrapped && around < apart ? around : apart;
}

/* Causes of elimination, as indices of battlesnake_gym.rules.CAUSES. */
enum { CAUSE_NONE, CAUSE_WALL, CAUSE_SELF, CAUSE_BODY, CAUSE_HEAD, CAUSE_HEALTH, CAUSE_HAZARD };

/* One snake of a record. An eliminated snake keeps head, health, cause and killer; its length and
 * extent are 0. */
typedef struct {
    int16_t x, y;   /* head; up to one cell off the board if eliminated */
    int32_t length; /* number of segments, including stacked segments */
    /* Number of distinct cells, with ages 0 to extent - 1; further segments are stacked on the last
     * cell. */
    uint16_t extent;
    int16_t health;
    uint8_t cause;
    int8_t killer; /* seat, or -1 */
    uint8_t alive;
    uint8_t ate; /* 1 if the head was on food on the last turn */
} Snake;

/* The header of a record. The planes follow the snakes, at the offsets of the Layout. */
typedef struct {
    int32_t turn;
    uint16_t clock;
    uint8_t width, height;
    uint8_t num_snakes; /* number of seats in use */
    uint8_t living;
    uint8_t over;
    uint8_t halt;          /* HALT_... if the game cannot continue, or 0 */
    uint8_t any_hazards;   /* 1 if the hazard list has an entry, on or off the board */
    uint16_t alive_mask;   /* bit s is set if seat s is alive */
    uint16_t num_food;     /* number of entries of the food list */
    uint16_t new_food;     /* number of entries at the end that appeared on this turn */
    uint16_t food_changes; /* counter, modulo 2^16, of changes to food or hazards */
    uint16_t hazard_changes;
    int64_t seed;
    uint8_t facing[MAX_SNAKES]; /* move from neck to head; UP without a neck */
    Snake snakes[];             /* [max_snakes] */
} Record;

/* AddressSanitizer checks only the ends of an allocation, and all games of a batch share one
 * allocation. In builds with AddressSanitizer, every record and SideData block ends with bytes that
 * no code may access. */
#ifdef __SANITIZE_ADDRESS__
enum { REDZONE = 64 };
#else
enum { REDZONE = 0 };
#endif

/* Sizes and offsets in bytes, equal for all records of a batch. */
typedef struct {
    int32_t max_width, max_height, max_cells, max_snakes;
    size_t marks, food, hazards; /* offsets in a record */
    size_t record_size;          /* a multiple of 64, REDZONE included */
    size_t side_data_size;       /* a multiple of 64, REDZONE included */
} Layout;

/* Computes the layout of records for the given maximum board size and number of snakes. */
Layout make_layout(int max_width, int max_height, int max_snakes);

/* Planes of a record: uint16 marks; uint8 food count (0 or 1, more only in imported games);
 * uint8 number of hazard layers, where 255 means 255 or more. The pointers are valid as long as the
 * record. */
static inline uint16_t *record_marks(const Layout *layout, const Record *record) {
    return (uint16_t *)((char *)record + layout->marks);
}
/* Returns the food plane; see record_marks(). */
static inline uint8_t *record_food(const Layout *layout, const Record *record) {
    return (uint8_t *)record + layout->food;
}
/* Returns the hazard plane; see record_marks(). */
static inline uint8_t *record_hazards(const Layout *layout, const Record *record) {
    return (uint8_t *)record + layout->hazards;
}

/* Returns the index of a cell on the board. */
static inline int cell_at(const Record *record, int x, int y) { return y * record->width + x; }
/* Returns whether a point is on the board. */
static inline bool on_board(const Record *record, int x, int y) {
    return (unsigned)x < record->width && (unsigned)y < record->height;
}

/* Returns the seat of a mark. */
static inline int mark_snake(uint16_t mark) { return mark >> CLOCK_BITS; }

/* Returns the index of the marked cell in its snake's body; the result is valid only below the
 * extent. */
static inline int mark_age(const Record *record, uint16_t mark) {
    return record->clock - (mark & CLOCK_MASK);
}

/* Returns the seat whose body contains a cell with this mark, or -1. A cell of age a becomes free
 * after length - a turns, unless the snake eats. */
static inline int mark_owner(const Record *record, uint16_t mark) {
    int seat = mark_snake(mark);
    return mark_age(record, mark) < record->snakes[seat].extent ? seat : -1;
}

/* Settings of a batch: ruleset, map and options. */
typedef struct {
    uint8_t wrapped;           /* heads that leave the board enter on the opposite side */
    uint8_t constrictor;       /* no food; snakes grow every turn */
    uint8_t royale;            /* the board shrinks */
    uint8_t solo;              /* the game ends only when no snake is alive */
    uint8_t official_food_rng; /* per-turn food uses the official engine's stream */
    int32_t food_spawn_chance;
    int32_t minimum_food;
    int32_t hazard_damage; /* clamped to [-100, 101]; a value outside acts like the nearest bound */
    int32_t shrink_every;
    int32_t view_reach; /* view radius of each snake plus 1, or 0 for no limit */
    const struct Map *map; /* NULL: no map */
} Rules;

/* Returns the health after damage by `layers` hazard layers; 0 or less is fatal. */
static inline int health_after_layers(int health, int layers, int damage) {
    return min_int(MAX_HEALTH, health - layers * damage);
}

/* Returns the health after a turn that ends on `cell`; 0 or less is fatal. */
static inline int health_after_turn(const Layout *layout, const Rules *rules, const Record *record,
                                    int health, int cell) {
    int left =
        health_after_layers(health - 1, record_hazards(layout, record)[cell], rules->hazard_damage);
    return record_food(layout, record)[cell] ? MAX_HEALTH : left;
}

typedef struct SideData SideData; /* see side_data.h */

/* Reasons why a game cannot continue. */
enum {
    HALT_SCATTER_FULL = 1,
    HALT_PITS_EVERY,
    HALT_HAZARD_LIST,
    HALT_LONG_BODY,
    HALT_MAZE_PLAYERS,
};

/* Plays one turn: moves, hazard damage, feeding, eliminations, growth, shrinking, and the food and
 * hazards of the map. The function then increments the turn and tests for the end of the game.
 * actions[s] is 0 to 3 or NO_MOVE; actions of eliminated snakes are ignored. Thread-safe for
 * different games. */
void step_game(const Layout *layout, const Rules *rules, Record *record, SideData *side,
               const uint8_t *actions);

#endif
