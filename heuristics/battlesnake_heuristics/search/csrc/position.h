/* A position of the search, and one turn of the rules on it.
 *
 * Bodies lie in rings that all positions of a line share: a position holds only where each snake's
 * head and tail are in its ring, so copying one is cheap, and a turn writes only ahead of the head,
 * where no ancestor reads. Segments stacked on the tail are a number. */

#define RING 1024 /* a power of two above MAX_CELLS + MAX_DEPTH */

typedef struct {
    uint16_t head, tail; /* places in the ring, counted without wrapping */
    uint16_t stacked;    /* further segments on the tail's cell */
    int16_t health;
    uint16_t length;
    uint8_t alive;
} Body;

typedef struct {
    Bits occupied; /* all cells of living snakes */
    Bits food;
    uint64_t hash; /* of occupied, heads and food */
    int living;
    Body snake[MAX_SNAKES]; /* last: only as many are copied as play */
} Position;

typedef struct {
    const Question *ask;
    int cells;
    Bits board, left_column, right_column, hazard;
    uint16_t next[MAX_CELLS][4];            /* the cell beyond, or OFF_BOARD */
    uint8_t x[MAX_CELLS], y[MAX_CELLS];
    int16_t from_edge[MAX_CELLS];           /* 0 in a corner, 256 in the middle or without edges */
    int share;                              /* of one cell in the board, in 512 * 65536 */
    uint64_t body_key[MAX_SNAKES][MAX_CELLS]; /* Zobrist keys */
    uint64_t head_key[MAX_SNAKES][MAX_CELLS];
    uint64_t food_key[MAX_CELLS];
    uint16_t ring[MAX_SNAKES][RING];
    struct Entry *table;
    uint32_t table_mask;                    /* its size, a power of two, less one */
    NetworkCode network_code;
    uint32_t history[MAX_SNAKES][MAX_CELLS];
    uint8_t refutation[MAX_DEPTH + 2][4][MAX_SNAKES]; /* by ply and our move: what answered it best */
    int64_t evaluated, visited;
    double deadline;
    double calm_left, calm_worked;          /* seconds left and worked when it began to pace itself */
    clockid_t clock;                        /* what seconds are measured by */
    int stopped, interrupted;
} Search;

static inline uint16_t segment(const Search *search, int s, unsigned place) {
    return search->ring[s][place & (RING - 1)];
}
static inline uint16_t head_of(const Search *search, const Position *at, int s) {
    return segment(search, s, at->snake[s].head);
}

static void leave(Search *search, Position *at, int s, int cell) {
    bits_drop(&at->occupied, cell);
    at->hash ^= search->body_key[s][cell];
}

/* Takes a snake off the board; its ring then still ends at the head of the turn before. */
static void eliminate(Search *search, Position *at, int s) {
    Body *body = &at->snake[s];
    at->hash ^= search->head_key[s][segment(search, s, body->head)];
    for (unsigned i = body->tail; i != (uint16_t)(body->head + 1); i = (uint16_t)(i + 1))
        leave(search, at, s, segment(search, s, i));
    body->alive = 0;
    at->living--;
}

static void drop_tail(Search *search, Position *at, int s) {
    Body *body = &at->snake[s];
    if (body->stacked) {
        body->stacked--;
    } else {
        leave(search, at, s, segment(search, s, body->tail));
        body->tail++;
    }
}

/* Health after a turn on `cell`; 0 where the snake does not live to eat. */
static int health_on(const Search *search, const Position *at, int health, int cell) {
    health--;
    if (bits_has(&at->food, cell)) return 100;
    for (int layer = search->ask->hazards[cell]; layer > 0; layer--) {
        health -= search->ask->damage;
        if (health > 100) health = 100;
        if (health <= 0) return 0;
    }
    return health < 0 ? 0 : health;
}

/* Moves every living snake; `target` gets its new cell, or OFF_BOARD for those that die at once. */
static void move_all(Search *search, Position *at, const uint8_t *moves, uint16_t *target) {
    int fed = 0;
    for (int s = 0; s < search->ask->snakes; s++) {
        Body *body = &at->snake[s];
        if (!body->alive) continue;
        drop_tail(search, at, s);
        int cell = search->next[head_of(search, at, s)][moves[s]];
        target[s] = cell;
        if (cell == OFF_BOARD) continue;
        body->health = health_on(search, at, body->health, cell);
        if (!body->health) {
            target[s] = OFF_BOARD;
        } else if (bits_has(&at->food, cell)) {
            body->stacked++;
            body->length++;
            fed = 1;
        }
    }
    if (!fed) return;
    for (int s = 0; s < search->ask->snakes; s++)
        if (at->snake[s].alive && target[s] != OFF_BOARD && bits_has(&at->food, target[s])) {
            bits_drop(&at->food, target[s]);
            at->hash ^= search->food_key[target[s]];
        }
}

/* Whether a snake that moved onto the board dies there: in a body, or head to head. */
static bool collides(const Search *search, const Position *at, int s, const uint16_t *target) {
    if (bits_has(&at->occupied, target[s])) return true;
    for (int o = 0; o < search->ask->snakes; o++)
        if (o != s && at->snake[o].alive && target[o] == target[s] &&
            at->snake[o].length >= at->snake[s].length)
            return true;
    return false;
}

static void arrive(Search *search, Position *at, int s, int cell) {
    Body *body = &at->snake[s];
    at->hash ^= search->head_key[s][head_of(search, at, s)] ^ search->head_key[s][cell] ^
                search->body_key[s][cell];
    body->head++;
    search->ring[s][body->head & (RING - 1)] = cell;
    bits_add(&at->occupied, cell);
    if (search->ask->constrictor) {
        body->health = 100;
        if (!body->stacked) {
            body->stacked = 1;
            body->length++;
        }
    }
}

static void wipe_food(const Search *search, Position *at) {
    for (int cell = 0; cell < search->cells; cell++)
        if (bits_has(&at->food, cell) && !search->ask->of_2026) at->hash ^= search->food_key[cell];
    at->food = bits_none();
}

/* One turn: `to` becomes `from` after all living snakes moved. Food does not appear. */
static void play(Search *search, const Position *from, const uint8_t *moves, Position *to) {
    int snakes = search->ask->snakes;
    uint16_t target[MAX_SNAKES];
    uint8_t dies[MAX_SNAKES] = {0};
    memcpy(to, from, offsetof(Position, snake) + snakes * sizeof(Body));
    move_all(search, to, moves, target);
    /* those dead by wall, hunger or hazard do not block the others in the same turn */
    for (int s = 0; s < snakes; s++)
        if (to->snake[s].alive && target[s] == OFF_BOARD) eliminate(search, to, s);
    for (int s = 0; s < snakes; s++)
        if (to->snake[s].alive) dies[s] = collides(search, to, s, target);
    for (int s = 0; s < snakes; s++) {
        if (!to->snake[s].alive) continue;
        if (dies[s])
            eliminate(search, to, s);
        else
            arrive(search, to, s, target[s]);
    }
    if (search->ask->constrictor && bits_any(to->food)) wipe_food(search, to);
    search->visited++;
}
