/* Stages of a turn, in the order of the official rules. */
#include <string.h>

#include "game.h"

bool is_over(const Rules *rules, const Record *record) {
    return record->living < (rules->solo ? 1 : 2);
}

static size_t round_up(size_t size) { return (size + 63) & ~(size_t)63; }

Layout make_layout(int max_width, int max_height, int max_snakes) {
    Layout layout = {max_width, max_height, max_width * max_height, max_snakes, 0, 0, 0, 0, 0};
    size_t cells = (size_t)layout.max_cells;
    layout.marks = sizeof(Record) + sizeof(Snake) * (size_t)max_snakes;
    layout.food = layout.marks + sizeof(uint16_t) * cells;
    layout.hazards = layout.food + cells;
    /* On small boards, the slack behind the marks, with two bytes per entry, extends further than
     * the slack behind the hazards. */
    size_t end_of_marks = layout.marks + sizeof(uint16_t) * (cells + PLANE_SLACK);
    size_t end_of_hazards = layout.hazards + cells + PLANE_SLACK;
    layout.record_size =
        round_up(end_of_marks > end_of_hazards ? end_of_marks : end_of_hazards) + REDZONE;
    SideData side;
    side_data_init(&layout, &side);
    size_t dead_points = sizeof(Point) * side.max_dead_points * (size_t)max_snakes;
    layout.side_data_size = round_up(side.dead_points_offset + dead_points) + REDZONE;
    return layout;
}

void side_data_init(const Layout *layout, SideData *side) {
    uint32_t cells = (uint32_t)layout->max_cells;
    side->runs_offset = sizeof(SideData) + ((sizeof(int16_t) * 2 * cells + 3) & ~3u);
    /* Layered hazards of sinkholes and pits need several runs per cell. */
    side->max_runs = 2 * cells + 800;
    side->dead_points_offset = side->runs_offset + (uint32_t)sizeof(HazardRun) * side->max_runs;
    side->max_dead_points = cells + 2;
}

/* Restarts the clock before its bits overflow. */
static void reset_clock(const Layout *layout, Record *record) {
    uint16_t *marks = record_marks(layout, record);
    int cells = record->width * record->height;
    for (int cell = 0; cell < cells; cell++) {
        int seat = mark_owner(record, marks[cell]);
        int age = mark_age(record, marks[cell]);
        marks[cell] = seat < 0 ? 0 : (uint16_t)(seat << CLOCK_BITS | (CLOCK_START - age));
    }
    record->clock = CLOCK_START;
}

int straight_move(int x, int y, int neck_x, int neck_y) {
    for (int move = UP; move <= RIGHT; move++) {
        if (x - neck_x == DX[move] && y - neck_y == DY[move]) return move;
    }
    if (x == 0 && neck_x > 0) return RIGHT;
    if (neck_x == 0 && x > 0) return LEFT;
    if (y == 0 && neck_y > 0) return UP;
    if (neck_y == 0 && y > 0) return DOWN;
    return UP;
}

/* Data shared by the stages of one turn, by seat. */
typedef struct {
    int cell[MAX_SNAKES]; /* cell of the new head; -1 off the board */
    unsigned ate;         /* bit s: seat s eats on this turn */
    unsigned dead;        /* bit s: seat s is eliminated on this turn, with the cause and killer below */
    uint8_t cause[MAX_SNAKES];
    int8_t killer[MAX_SNAKES];
} Turn;

static void mark_eliminated(Turn *turn, int seat, int cause, int killer) {
    turn->dead |= 1u << seat;
    turn->cause[seat] = (uint8_t)cause;
    turn->killer[seat] = (int8_t)killer;
}

/* Returns the number of hazard layers at a point off the board, where maps may store hazards. */
static int layers_off_board(const Layout *layout, Record *record, SideData *side, int x, int y) {
    Game game = {layout, NULL, record, side};
    return side->off_board ? min_int(UINT8_MAX, hazards_at(&game, x, y)) : 0;
}

/* Applies moves, hunger, hazards, feeding and eliminations by wall, hunger and hazard to one snake.
 * These stages ignore other snakes, and all heads use the food and hazards of the previous
 * position. */
static inline void advance_snake(const Layout *layout, const Rules *rules, Record *record,
                                 SideData *side, int seat, int action, Turn *turn) {
    Snake *snake = &record->snakes[seat];
    int move = action < NO_MOVE ? action : record->facing[seat];
    int x = snake->x + DX[move], y = snake->y + DY[move];
    bool inside = on_board(record, x, y);
    if (rules->wrapped && !inside) {
        x = wrap(x, record->width);
        y = wrap(y, record->height);
        inside = true;
        move = straight_move(x, y, snake->x, snake->y); /* differs on boards with a width of 1 or 2 */
    }
    snake->x = (int16_t)x;
    snake->y = (int16_t)y;
    snake->extent = (uint16_t)(snake->extent + (snake->extent < snake->length));
    snake->health--;
    snake->ate = 0;
    record->facing[seat] = (uint8_t)(snake->extent < 2 ? UP : move);
    int cell = inside ? cell_at(record, x, y) : -1;
    int food = inside ? record_food(layout, record)[cell] : 0;
    turn->cell[seat] = cell;
    if (record->any_hazards && !food) {
        int layers = inside ? record_hazards(layout, record)[cell]
                            : layers_off_board(layout, record, side, x, y);
        if (layers)
            snake->health = (int16_t)max_int(
                0, health_after_layers(snake->health, layers, rules->hazard_damage));
        if (layers && !snake->health) {
            mark_eliminated(turn, seat, CAUSE_HAZARD, -1);
            return;
        }
    }
    if (food) {
        snake->health = MAX_HEALTH;
        snake->length += food;
        snake->ate = 1;
        turn->ate |= 1u << seat;
    } else if (snake->health <= 0) {
        mark_eliminated(turn, seat, CAUSE_HEALTH, -1);
    } else if (!inside) {
        mark_eliminated(turn, seat, CAUSE_WALL, -1);
    }
}

/* Eliminates snakes whose heads collided with bodies. Every other head writes its mark, unless
 * another head has entered the same cell. Returns whether several heads entered one cell. Only the
 * bodies of `players` block a cell. Bodies of snakes that were eliminated earlier are already
 * saved, so marks may overwrite their cells. */
static inline bool collide_with_bodies(const Layout *layout, const Record *record,
                                       unsigned players, Turn *turn) {
    uint16_t *marks = record_marks(layout, record);
    bool heads_met = false;
    for (unsigned rest = players; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        uint16_t *mark = &marks[turn->cell[seat]];
        int owner = mark_owner(record, *mark);
        if ((*mark & CLOCK_MASK) == record->clock) {
            heads_met = true;
        } else if (owner >= 0 && (players >> owner & 1)) {
            mark_eliminated(turn, seat, owner == seat ? CAUSE_SELF : CAUSE_BODY, owner);
        } else {
            *mark = (uint16_t)(seat << CLOCK_BITS | record->clock);
        }
    }
    return heads_met;
}

/* Returns the snake that wins head to head against `seat`, or -1. The winner is the longest snake
 * on the cell that is not shorter; among equals, the first seat. */
static int head_winner(const Record *record, const Turn *turn, unsigned players, int seat) {
    int winner = -1, longest = record->snakes[seat].length;
    for (unsigned rest = players & ~(1u << seat); rest; rest &= rest - 1) {
        int other = __builtin_ctz(rest);
        int length = record->snakes[other].length;
        if (turn->cell[other] != turn->cell[seat] || length < longest) continue;
        if (winner >= 0 && length == longest) continue;
        winner = other;
        longest = length;
    }
    return winner;
}

/* Resolves several heads on one cell without a body: only a strictly longest snake survives. */
static void collide_with_heads(const Layout *layout, const Record *record, unsigned players,
                               Turn *turn) {
    uint16_t *marks = record_marks(layout, record);
    unsigned hit_bodies = turn->dead; /* these snakes are on other cells */
    for (unsigned rest = players & ~hit_bodies; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        int winner = head_winner(record, turn, players, seat);
        if (winner >= 0) {
            mark_eliminated(turn, seat, CAUSE_HEAD, winner);
        } else {
            marks[turn->cell[seat]] = (uint16_t)(seat << CLOCK_BITS | record->clock);
        }
    }
}

/* The function searches all cells, because marks map cells to snakes and not snakes to cells. The
 * head is set separately, because a snake that was just eliminated may not have written a mark. */
void body_points(const Layout *layout, const Record *record, int seat, Point *points) {
    const uint16_t *mark = record_marks(layout, record);
    const Snake *snake = &record->snakes[seat];
    uint16_t newest = (uint16_t)(seat << CLOCK_BITS | record->clock);
    uint16_t extent = snake->extent;
    for (int y = 0; y < record->height; y++) {
        for (int x = 0; x < record->width; x++, mark++) {
            uint16_t age = (uint16_t)(newest - *mark);
            if (age < extent) points[age] = (Point){(int8_t)x, (int8_t)y};
        }
    }
    points[0] = (Point){(int8_t)snake->x, (int8_t)snake->y};
}

/* Saves the body of a snake that is eliminated on this turn. */
static void save_dead_body(const Layout *layout, const Record *record, SideData *side, int seat) {
    DeadBody *dead_body = &side->dead_bodies[seat];
    dead_body->eliminated_on = record->turn + 1;
    dead_body->length = record->snakes[seat].length;
    dead_body->cells = record->snakes[seat].extent;
    Point *dead = side_dead_bodies(side, seat);
    body_points(layout, record, seat, dead);
    /* A head that moved onto its neck gives two equal points; they are the last two points only if
     * the snake has two segments. */
    if (dead_body->cells == 2 && dead[0].x == dead[1].x && dead[0].y == dead[1].y)
        dead_body->cells = 1;
}

static void save_dead_bodies(const Layout *layout, const Record *record, SideData *side,
                             unsigned dead) {
    for (; dead; dead &= dead - 1) save_dead_body(layout, record, side, __builtin_ctz(dead));
}

static void apply_eliminations(Record *record, const Turn *turn) {
    for (unsigned rest = turn->dead; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        Snake *snake = &record->snakes[seat];
        snake->cause = turn->cause[seat];
        snake->killer = turn->killer[seat];
        snake->length = 0;
        snake->extent = 0;
        snake->alive = 0;
        snake->ate = 0;
        record->living--;
    }
    record->alive_mask &= (uint16_t)~turn->dead;
}

static void eat(const Layout *layout, Record *record, SideData *side, const Turn *turn) {
    Game game = {layout, NULL, record, side};
    for (unsigned rest = turn->ate; rest; rest &= rest - 1) {
        remove_food(&game, turn->cell[__builtin_ctz(rest)]);
    }
}

/* Constrictor: restores the health of all snakes and grows them, including eliminated snakes,
 * unless the tail is already stacked. */
static void always_grow(Record *record, SideData *side) {
    for (int seat = 0; seat < record->num_snakes; seat++) {
        Snake *snake = &record->snakes[seat];
        snake->health = MAX_HEALTH;
        if (snake->alive) {
            snake->length += snake->extent == snake->length;
        } else {
            DeadBody *dead_body = &side->dead_bodies[seat];
            dead_body->length += dead_body->cells == dead_body->length;
        }
    }
}

static inline void play_turn(const Layout *layout, const Rules *rules, Record *record,
                             SideData *side, const uint8_t *actions) {
    Turn turn;
    turn.dead = turn.ate = 0;
    unsigned players = record->alive_mask;
    if (record->clock == CLOCK_MASK) reset_clock(layout, record);
    record->clock++;
    for (unsigned rest = players; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        advance_snake(layout, rules, record, side, seat, actions[seat], &turn);
    }
    if (turn.ate) eat(layout, record, side, &turn);
    if (turn.dead) save_dead_bodies(layout, record, side, turn.dead);
    unsigned out_before = turn.dead;
    players &= ~out_before;
    bool heads_met = collide_with_bodies(layout, record, players, &turn);
    if (heads_met) collide_with_heads(layout, record, players, &turn);
    if (turn.dead) {
        save_dead_bodies(layout, record, side, turn.dead & ~out_before);
        apply_eliminations(record, &turn);
    }
    if (rules->constrictor) {
        Game game = {layout, rules, record, side};
        clear_food(&game);
        always_grow(record, side);
    }
}

void step_game(const Layout *layout, const Rules *rules, Record *record, SideData *side,
               const uint8_t *actions) {
    if (record->over || record->halt) return;
    Game game = {layout, rules, record, side};
    if (rules->map && rules->map->check_turn) {
        record->halt = (uint8_t)rules->map->check_turn(&game);
        if (record->halt) return;
    }
    play_turn(layout, rules, record, side, actions);
    int old_food = record->num_food;
    if (rules->royale) royale_hazards(&game);
    if (rules->map && rules->map->food) standard_food(&game, rules->map->food == FOOD_OFF_HAZARDS);
    if (rules->map && rules->map->update) rules->map->update(&game);
    record->new_food = (uint16_t)max_int(0, record->num_food - old_food);
    record->turn++;
    record->over = is_over(rules, record);
}
