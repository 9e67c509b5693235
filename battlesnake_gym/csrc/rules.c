/* The stages of a turn. */
#include <string.h>

#include "game.h"

static const int8_t DX[] = {0, 0, -1, 1}, DY[] = {1, -1, 0, 0};

bool is_over(const Rules *rules, const Record *record) {
    return record->living < (rules->alone ? 1 : 2);
}

static size_t round_up(size_t size) { return (size + 63) & ~(size_t)63; }

Layout make_layout(int max_width, int max_height, int max_snakes) {
    Layout layout = {max_width, max_height, max_width * max_height, max_snakes, 0, 0, 0, 0, 0};
    size_t cells = (size_t)layout.max_cells;
    layout.marks = sizeof(Record) + sizeof(Snake) * (size_t)max_snakes;
    layout.food = layout.marks + sizeof(uint16_t) * cells;
    layout.hazards = layout.food + cells;
    layout.record_size = round_up(layout.hazards + cells + PLANE_SLACK);
    Cold cold;
    cold_init(&layout, &cold);
    layout.cold_size =
        round_up(cold.graves_at + sizeof(Point) * cold.grave_points * (size_t)max_snakes);
    return layout;
}

void cold_init(const Layout *layout, Cold *cold) {
    uint32_t cells = (uint32_t)layout->max_cells;
    cold->food_at = sizeof(Cold);
    cold->runs_at = cold->food_at + ((sizeof(int16_t) * 2 * cells + 3) & ~3u);
    cold->max_runs = 2 * cells + 800; /* layers of sinkholes and pits take several runs a cell */
    cold->graves_at = cold->runs_at + (uint32_t)sizeof(HazardRun) * cold->max_runs;
    cold->grave_points = cells + 2;
}

/* Starts the clock anew before its bits run out. */
static void turn_back_clock(const Layout *layout, Record *record) {
    uint16_t *marks = record_marks(layout, record);
    int cells = record->width * record->height;
    for (int cell = 0; cell < cells; cell++) {
        int seat = mark_owner(record, marks[cell]);
        int age = mark_age(record, marks[cell]);
        marks[cell] = seat < 0 ? 0 : (uint16_t)(seat << CLOCK_BITS | (CLOCK_START - age));
    }
    record->clock = CLOCK_START;
}

int straight_on(int x, int y, int neck_x, int neck_y) {
    for (int move = UP; move <= RIGHT; move++) {
        if (x - neck_x == DX[move] && y - neck_y == DY[move]) return move;
    }
    if (x == 0 && neck_x > 0) return RIGHT;
    if (neck_x == 0 && x > 0) return LEFT;
    if (y == 0 && neck_y > 0) return UP;
    if (neck_y == 0 && y > 0) return DOWN;
    return UP;
}

/* What the stages of one turn tell each other, by seat. */
typedef struct {
    int cell[MAX_SNAKES]; /* of the new head; -1 off the board */
    uint8_t cause[MAX_SNAKES];
    int8_t killer[MAX_SNAKES];
    unsigned dead; /* bit s: seat s leaves in this turn */
    unsigned ate;
} Turn;

static inline int wrap(int coordinate, int size) {
    return coordinate < 0 ? size - 1 : coordinate >= size ? 0 : coordinate;
}

/* A head on a hazard takes the damage once for each layer. */
static void take_damage(Snake *snake, int layers, int damage, Turn *turn, int seat) {
    for (; layers > 0; layers--) {
        int health = snake->health - damage;
        snake->health = (int16_t)(health < 0 ? 0 : health > MAX_HEALTH ? MAX_HEALTH : health);
        if (snake->health <= 0) {
            turn->cause[seat] = HAZARD;
            return;
        }
    }
}

/* Move, starve, hazard, feed, and the first part of the elimination, for one snake: none of them
 * looks at other snakes, and all heads see the food and hazards of the position before the turn. */
static inline void advance(const Layout *layout, const Rules *rules, Record *record, Cold *cold,
                           int seat, int action, Turn *turn) {
    Snake *snake = &record->snakes[seat];
    int move = action < NO_MOVE ? action : record->facing[seat];
    int x = snake->x + DX[move], y = snake->y + DY[move];
    if (rules->wrapped && !on_board(record, x, y)) {
        x = wrap(x, record->width);
        y = wrap(y, record->height);
        move = straight_on(x, y, snake->x, snake->y); /* differs on boards 1 or 2 cells wide */
    }
    snake->x = (int16_t)x;
    snake->y = (int16_t)y;
    snake->extent = (uint16_t)(snake->extent + (snake->extent < snake->length));
    record->facing[seat] = (uint8_t)(snake->extent < 2 ? UP : move);
    snake->health--;
    snake->ate = 0;
    bool inside = on_board(record, x, y);
    int cell = inside ? cell_at(record, x, y) : -1;
    int food = inside ? record_food(layout, record)[cell] : 0;
    turn->cell[seat] = cell;
    turn->cause[seat] = ALIVE;
    if (record->any_hazards && !food) {
        Game game = {layout, rules, record, cold};
        int layers = inside ? record_hazards(layout, record)[cell]
                     : cold && cold->off_board ? hazards_at(&game, x, y) : 0;
        take_damage(snake, layers, rules->hazard_damage, turn, seat);
    }
    if (food && turn->cause[seat] == ALIVE) {
        snake->health = MAX_HEALTH;
        snake->length += food;
        snake->ate = 1;
        turn->ate |= 1u << seat;
    }
    if (turn->cause[seat] == ALIVE) {
        turn->cause[seat] = snake->health <= 0 ? STARVED : inside ? ALIVE : WALL;
    }
    turn->killer[seat] = -1;
    turn->dead |= (unsigned)(turn->cause[seat] != ALIVE) << seat;
}

/* The other snake that this one loses to head against head: the longest of those that entered the
 * same cell and are not shorter, the first of equals; or -1. */
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

/* Collisions of the snakes that outlived the first part. All are decided before any is applied. */
static inline void collide(const Layout *layout, const Record *record, unsigned players,
                           Turn *turn) {
    const uint16_t *marks = record_marks(layout, record);
    unsigned dead = 0;
    for (unsigned rest = players; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        int owner = mark_owner(record, marks[turn->cell[seat]]);
        if (owner >= 0 && (players >> owner & 1)) {
            turn->cause[seat] = owner == seat ? SELF : BODY;
            turn->killer[seat] = (int8_t)owner;
            dead |= 1u << seat;
            continue;
        }
        int winner = head_winner(record, turn, players, seat);
        if (winner >= 0) {
            turn->cause[seat] = HEAD;
            turn->killer[seat] = (int8_t)winner;
            dead |= 1u << seat;
        }
    }
    turn->dead |= dead;
}

/* A cell belongs to a snake by its mark only, so the body is found by looking at all of them. The
 * head has its own place: a snake that just died has left no mark there. */
void body_points(const Layout *layout, const Record *record, int seat, Point *points) {
    const uint16_t *marks = record_marks(layout, record);
    const Snake *snake = &record->snakes[seat];
    int cell = 0;
    for (int y = 0; y < record->height; y++) {
        for (int x = 0; x < record->width; x++, cell++) {
            if (mark_owner(record, marks[cell]) == seat) {
                points[mark_age(record, marks[cell])] = (Point){(int8_t)x, (int8_t)y};
            }
        }
    }
    points[0] = (Point){(int8_t)snake->x, (int8_t)snake->y};
}

/* Keeps the body of a snake that dies in this turn. */
static void bury(const Layout *layout, const Record *record, Cold *cold, int seat) {
    Grave *grave = &cold->graves[seat];
    grave->eliminated_on = record->turn + 1;
    grave->length = record->snakes[seat].length;
    grave->cells = record->snakes[seat].extent;
    Point *dead = cold_dead(cold, seat);
    body_points(layout, record, seat, dead);
    /* A head that ran into its own neck: only with two segments are these the last two. */
    if (grave->cells == 2 && dead[0].x == dead[1].x && dead[0].y == dead[1].y) grave->cells = 1;
}

static void apply_eliminations(const Layout *layout, Record *record, Cold *cold,
                               const Turn *turn) {
    if (cold) { /* all bodies first: they need the extents of this turn */
        for (unsigned rest = turn->dead; rest; rest &= rest - 1) {
            bury(layout, record, cold, __builtin_ctz(rest));
        }
    }
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

static void eat(const Layout *layout, Record *record, Cold *cold, const Turn *turn) {
    Game game = {layout, NULL, record, cold};
    for (unsigned rest = turn->ate; rest; rest &= rest - 1) {
        remove_food(&game, turn->cell[__builtin_ctz(rest)]);
    }
}

/* Full health and one segment more for all, dead ones included, unless the last two coincide. */
static void always_grow(Record *record, Cold *cold) {
    for (int seat = 0; seat < record->num_snakes; seat++) {
        Snake *snake = &record->snakes[seat];
        snake->health = MAX_HEALTH;
        if (snake->alive) {
            snake->length += snake->extent == snake->length;
        } else if (cold) {
            Grave *grave = &cold->graves[seat];
            grave->length += grave->cells == grave->length;
        }
    }
}

static inline void play_turn(const Layout *layout, const Rules *rules, Record *record, Cold *cold,
                             const uint8_t *actions) {
    Turn turn;
    turn.dead = turn.ate = 0;
    unsigned players = record->alive_mask;
    if (record->clock == CLOCK_MASK) turn_back_clock(layout, record);
    record->clock++;
    for (unsigned rest = players; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        advance(layout, rules, record, cold, seat, actions[seat], &turn);
    }
    if (turn.ate) eat(layout, record, cold, &turn);
    collide(layout, record, players & ~turn.dead, &turn);
    if (turn.dead) apply_eliminations(layout, record, cold, &turn);
    uint16_t *marks = record_marks(layout, record);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        marks[turn.cell[seat]] = (uint16_t)(seat << CLOCK_BITS | record->clock);
    }
    if (rules->constrictor) {
        Game game = {layout, rules, record, cold};
        clear_food(&game);
        always_grow(record, cold);
    }
}

void step_rules(const Layout *layout, const Rules *rules, Record *record, const uint8_t *actions) {
    if (record->over) return;
    play_turn(layout, rules, record, NULL, actions);
    record->turn++;
    record->over = is_over(rules, record);
}

void step_game(const Layout *layout, const Rules *rules, Record *record, Cold *cold,
               const uint8_t *actions) {
    if (record->over) return;
    Game game = {layout, rules, record, cold};
    if (rules->map && rules->map->check_turn) {
        record->halt = (uint8_t)rules->map->check_turn(&game);
        if (record->halt) return;
    }
    play_turn(layout, rules, record, cold, actions);
    if (rules->royale) royale_hazards(&game);
    if (rules->map) rules->map->update(&game);
    record->turn++;
    record->over = is_over(rules, record);
}
