/* A position as sets of cells, with floods, on boards of up to 64 * WORDS cells. This template is
 * included once per board size. The sets have the bits of battlesnake_gym/boards/grid.py, and the
 * names match battlesnake_heuristics/rule_based/view.py. */
#include <string.h>

#include "bitset.h"
#include "limited_view.h"

#define ALWAYS static inline __attribute__((always_inline))

enum { NOWHERE = -1 };

/* Returns the set of one cell, or the empty set for NOWHERE. */
static inline Bits bits_of(int cell) {
    Bits one = bits_none();
    if (cell != NOWHERE) bits_add(&one, cell);
    return one;
}

/* A view of one position; prepare_view() fills the fields after `ready`. */
typedef struct {
    const Layout *layout;
    const Rules *rules;
    const Record *record;
    int cells;
    int kind; /* BUILTIN_... of the snake whose preferences are computed */
    bool ready;
    Bits everything, west, east, food;
    int horizon;
    Bits blocked[MAX_CELLS + 3]; /* blocked cells by the number of turns from now, up to the horizon */
    Bits exits[MAX_SNAKES];      /* cells that a living snake can enter next */
} View;

/* Returns the neighbors of a set of cells. */
ALWAYS Bits spread(const View *view, Bits cells) {
    return bits_beside(cells, view->everything, view->west, view->east, view->record->width,
                       view->record->height, view->rules->wrapped);
}

/* Returns the cells that are still blocked after `turns` turns. */
static const Bits *blocked_cells(const View *view, int turns) {
    return &view->blocked[turns < view->horizon ? turns : view->horizon];
}

/* Writes the number of turns until each cell is free; 0 means that the cell is free. The form of
 * the loop allows compilers to vectorize it. */
ALWAYS void count_turns(const View *view, uint16_t *restrict turns) {
    const Record *record = view->record;
    const uint16_t *restrict marks = record_marks(view->layout, record);
    int cells = view->cells;
    memset(turns, 0, (size_t)(cells + 3) * sizeof *turns);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        const Snake *snake = &record->snakes[seat];
        uint16_t head = (uint16_t)((seat << CLOCK_BITS) + record->clock), extent = snake->extent;
        uint16_t length = (uint16_t)(snake->length < CLOCK_MASK ? snake->length : CLOCK_MASK);
        for (int cell = 0; cell < cells; cell++) {
            uint16_t age = (uint16_t)(head - marks[cell]);
            turns[cell] |= age < extent ? (uint16_t)(length - age) : 0;
        }
    }
}

/* Fills the sets of blocked cells. A body cell of age a is free after length - a turns. */
ALWAYS void fill_blocked(View *view) {
    const Record *record = view->record;
    uint16_t turns[MAX_CELLS + 3];
    int last = view->horizon;
    memset(view->blocked, 0, (size_t)(last + 1) * sizeof *view->blocked);
    count_turns(view, turns);
    for (int four = 0; four < view->cells; four += 4) {
        uint64_t any;
        memcpy(&any, turns + four, sizeof any);
        if (!any) continue;
        for (int cell = four; cell < four + 4; cell++)
            if (turns[cell])
                bits_add(&view->blocked[turns[cell] <= last ? turns[cell] - 1 : last], cell);
    }
    if (record->any_hazards && view->rules->hazard_damage > 0) {
        const uint8_t *hazards = record_hazards(view->layout, record);
        for (int cell = 0; cell < view->cells; cell++)
            if (hazards[cell] &&
                health_after_turn(view->layout, view->rules, record, MAX_HEALTH, cell) <= 0)
                bits_add(&view->blocked[last], cell);
    }
    for (int turns = last - 1; turns >= 0; turns--)
        view->blocked[turns] = bits_or(view->blocked[turns], view->blocked[turns + 1]);
}

/* Initializes a view; prepare_view() fills the other fields before their first use. */
static void view_init(View *view, const Layout *layout, const Rules *rules, const Record *record) {
    view->layout = layout;
    view->rules = rules;
    view->record = record;
    view->cells = record->width * record->height;
    view->ready = false;
}

/* Fills all fields of the view on the first call; later calls have no effect. */
ALWAYS void prepare_view(View *view) {
    if (view->ready) return;
    view->ready = true;
    const Record *record = view->record;
    const uint8_t *food = record_food(view->layout, record);
    view->everything = view->west = view->east = view->food = (Bits){{0}};
    for (int i = 0; 64 * i < view->cells; i++)
        view->everything.w[i] = ~0ull >> (64 - min_int(64, view->cells - 64 * i));
    for (int eight = 0; eight < view->cells; eight += 8) {
        uint64_t any;
        memcpy(&any, food + eight, sizeof any); /* may read behind the plane: PLANE_SLACK */
        for (int cell = eight; any; any >>= 8, cell++)
            if (any & 255) bits_add(&view->food, cell);
    }
    view->food = bits_and(view->food, view->everything);
    for (int y = 0; y < record->height; y++) {
        bits_add(&view->west, y * record->width);
        bits_add(&view->east, y * record->width + record->width - 1);
    }
    int longest = 0;
    for (int seat = 0; seat < record->num_snakes; seat++)
        if (record->snakes[seat].length > longest) longest = record->snakes[seat].length;
    /* A flood takes at most as many turns as the board has cells. */
    view->horizon = view->rules->constrictor ? 1 : longest < MAX_CELLS + 2 ? longest : MAX_CELLS + 2;
    fill_blocked(view);
    for (int seat = 0; seat < record->num_snakes; seat++) {
        const Snake *snake = &record->snakes[seat];
        if (!snake->alive) continue;
        Bits head =
            bits_of(head_is_visible(snake) ? cell_at(record, snake->x, snake->y) : NOWHERE);
        view->exits[seat] = bits_minus(spread(view, head), *blocked_cells(view, 1));
    }
}

/* Floods of all living snakes, each from its `fronts`. A cell that several snakes reach on the same
 * turn belongs to the strictly longest of these snakes, or to none. */
typedef struct {
    int count, seats[MAX_SNAKES];
    Bits fronts[MAX_SNAKES], won[MAX_SNAKES], settled;
} Race;

/* Starts the floods: `own` from `front`, and all other snakes from their exits. */
static void race_begin(Race *race, const View *view, int own, Bits front) {
    race->count = 0;
    race->settled = (Bits){{0}};
    for (int seat = 0; seat < view->record->num_snakes; seat++) {
        if (!view->record->snakes[seat].alive) continue;
        race->seats[race->count] = seat;
        race->fronts[race->count++] = seat == own ? front : view->exits[seat];
    }
}

/* Resolves contested cells of this turn; returns false if no snake reached a new cell. */
static bool race_settle(Race *race, const View *view) {
    const Snake *snakes = view->record->snakes;
    bool any = false;
    for (int i = 0; i < race->count; i++) {
        race->won[i] = race->fronts[i];
        for (int j = 0; j < race->count; j++)
            if (j != i && snakes[race->seats[j]].length >= snakes[race->seats[i]].length)
                race->won[i] = bits_minus(race->won[i], race->fronts[j]);
        race->settled = bits_or(race->settled, race->fronts[i]);
        any |= bits_any(race->fronts[i]);
    }
    return any;
}

/* Advances the fronts to the free neighbors of the won cells; `turns` is the number of turns from
 * now. */
static void race_spread(Race *race, const View *view, int turns) {
    Bits closed = bits_or(race->settled, *blocked_cells(view, turns));
    for (int i = 0; i < race->count; i++)
        race->fronts[i] = bits_minus(spread(view, race->won[i]), closed);
}

/* Writes the target cell of each move; NOWHERE if the target is off the board. */
static void move_targets(const Rules *rules, const Record *record, int own, int targets[4]) {
    for (int move = 0; move < 4; move++) {
        int x = record->snakes[own].x + DX[move], y = record->snakes[own].y + DY[move];
        if (rules->wrapped) {
            x = wrap(x, record->width);
            y = wrap(y, record->height);
        }
        targets[move] = on_board(record, x, y) ? cell_at(record, x, y) : NOWHERE;
    }
}
