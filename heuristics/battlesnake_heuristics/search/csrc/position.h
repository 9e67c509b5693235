/* Positions of the search, and one turn of the rules.
 *
 * Bodies are ring buffers that all positions of a line share. A position stores only the indices of
 * each head and tail, so a copy is cheap. A turn writes only entries ahead of the head, which no
 * ancestor reads. Stacked tail segments are stored as a counter. */

#define RING 1024 /* entries of a ring; a power of two above MAX_CELLS + MAX_DEPTH */

#define CACHE_LINE 64 /* bytes */
/* Size of the weights of one stack, rounded up to whole cache lines. */
#define LAYERS_STRIDE ((sizeof(Layers) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE)

/* The body of one snake. */
typedef struct {
    uint16_t head, tail; /* ring indices, modulo 2^16 */
    uint16_t stacked;    /* number of further segments on the tail's cell */
    /* Health is in [0, 100]; `length` includes stacked segments. */
    int16_t health;
    uint16_t length;
    uint8_t alive;
} Body;

/* A position. The rings of the Search contain its bodies. */
typedef struct {
    Bits occupied; /* all cells of living snakes */
    Bits food;
    uint64_t hash; /* Zobrist hash of occupied cells, heads and food */
    int living;
    Body snake[MAX_SNAKES]; /* last field: copies contain only the snakes of the request */
} Position;

/* State of a search: board tables, transposition table, move ordering and limits. */
typedef struct {
    const SearchRequest *request;
    int cells;
    Bits board, left_column, right_column, hazard;
    Bits cell_bits[MAX_CELLS];   /* the set of each single cell */
    uint16_t next[MAX_CELLS][4]; /* neighbor by move, or OFF_BOARD */
    uint8_t x[MAX_CELLS], y[MAX_CELLS];
    int16_t centrality[MAX_CELLS]; /* 0 in a corner, 256 in the center or on a wrapped board */
    int board_fraction_scale;      /* 1/512 of the board per cell, scale 1/65536 */
    uint64_t body_key[MAX_SNAKES][MAX_CELLS]; /* Zobrist keys by snake and cell */
    uint64_t head_key[MAX_SNAKES][MAX_CELLS];
    uint64_t food_key[MAX_CELLS];
    uint16_t ring[MAX_SNAKES][RING];
    struct TTSlot *table;
    uint32_t table_mask; /* number of slots, a power of two, minus 1 */
    const NetworkKernel *network_kernel;
    /* The weight stacks, and the memory of their copies, which start at cache lines. */
    const Layers *layers[STACKS];
    char layers_memory[STACKS * LAYERS_STRIDE + CACHE_LINE];
    /* History heuristic: sum of depth^2 over the cutoffs of moves to a cell. */
    uint32_t history[MAX_SNAKES][MAX_CELLS];
    /* Best reply + 1 of each opponent, by ply and our move; 0: none. */
    uint8_t killer_replies[MAX_DEPTH + 2][4][MAX_SNAKES];
    int64_t leaf_evals, nodes;
    /* Deadline, and time of the next call of the callback, in seconds on `clock`. */
    double deadline, next_poll;
    /* Time left and CPU time at the start of throttling, in seconds. */
    double throttle_start_left, throttle_start_cpu;
    clockid_t clock; /* clock of the time limit */
    /* Flags: a limit was reached; the callback interrupted the search. */
    int stopped, interrupted;
} Search;

/* Returns the cell at a ring index of snake `s`. */
static inline uint16_t segment(const Search *search, int s, unsigned ring_index) {
    return search->ring[s][ring_index & (RING - 1)];
}
/* Returns the cell of the head of snake `s`. */
static inline uint16_t head_of(const Search *search, const Position *pos, int s) {
    return segment(search, s, pos->snake[s].head);
}

/* Removes a cell of snake `s` from the occupied cells and the hash. */
static void vacate_cell(Search *search, Position *pos, int s, int cell) {
    bits_remove(&pos->occupied, cell);
    pos->hash ^= search->body_key[s][cell];
}

/* Removes a snake from the board. The ring of the snake must end at the head of the previous
 * turn. */
static void eliminate(Search *search, Position *pos, int s) {
    Body *body = &pos->snake[s];
    pos->hash ^= search->head_key[s][segment(search, s, body->head)];
    for (unsigned i = body->tail; i != (uint16_t)(body->head + 1); i = (uint16_t)(i + 1))
        vacate_cell(search, pos, s, segment(search, s, i));
    body->alive = 0;
    pos->living--;
}

/* Removes the last segment of snake `s`. */
static void drop_tail(Search *search, Position *pos, int s) {
    Body *body = &pos->snake[s];
    if (body->stacked) {
        body->stacked--;
    } else {
        vacate_cell(search, pos, s, segment(search, s, body->tail));
        body->tail++;
    }
}

/* Returns the health after a turn that ends on `cell`, or 0 if hunger or hazard eliminates the
 * snake. */
static int health_after(const Search *search, const Position *pos, int health, int cell) {
    health--;
    if (bits_has(&pos->food, cell)) return 100;
    for (int layer = search->request->hazards[cell]; layer > 0; layer--) {
        health -= search->request->damage;
        if (health > 100) health = 100;
        if (health <= 0) return 0;
    }
    return health < 0 ? 0 : health;
}

/* Moves every living snake and removes the eaten food. Writes the new cells to `targets`, or
 * OFF_BOARD for eliminated snakes, also for those eliminated by wall, hunger or hazard. */
static void move_snakes(Search *search, Position *pos, const uint8_t *moves, uint16_t *targets) {
    int fed = 0;
    for (int s = 0; s < search->request->snakes; s++) {
        Body *body = &pos->snake[s];
        targets[s] = OFF_BOARD;
        if (!body->alive) continue;
        drop_tail(search, pos, s);
        int cell = search->next[head_of(search, pos, s)][moves[s]];
        targets[s] = cell;
        if (cell == OFF_BOARD) continue;
        body->health = health_after(search, pos, body->health, cell);
        if (!body->health) {
            targets[s] = OFF_BOARD;
        } else if (bits_has(&pos->food, cell)) {
            body->stacked++;
            body->length++;
            fed = 1;
        }
    }
    if (!fed) return;
    for (int s = 0; s < search->request->snakes; s++)
        if (pos->snake[s].alive && targets[s] != OFF_BOARD && bits_has(&pos->food, targets[s])) {
            bits_remove(&pos->food, targets[s]);
            pos->hash ^= search->food_key[targets[s]];
        }
}

/* Sets `dies` for the living snakes that a collision eliminates. `targets` is OFF_BOARD for
 * eliminated snakes. */
static void find_collisions(const Search *search, const Position *pos, const uint16_t *targets,
                            uint8_t *dies) {
    for (int s = 0; s < search->request->snakes; s++) {
        if (targets[s] == OFF_BOARD) continue;
        dies[s] |= bits_has(&pos->occupied, targets[s]);
        for (int o = 0; o < s; o++) {
            if (targets[o] != targets[s]) continue;
            dies[s] |= pos->snake[o].length >= pos->snake[s].length;
            dies[o] |= pos->snake[s].length >= pos->snake[o].length;
        }
    }
}

/* Places the head of snake `s` on a cell. In constrictor games, the function also adds a
 * segment. */
static void enter_cell(Search *search, Position *pos, int s, int cell) {
    Body *body = &pos->snake[s];
    pos->hash ^= search->head_key[s][head_of(search, pos, s)] ^ search->head_key[s][cell] ^
                 search->body_key[s][cell];
    body->head++;
    search->ring[s][body->head & (RING - 1)] = cell;
    bits_add(&pos->occupied, cell);
    if (search->request->constrictor) {
        body->health = 100;
        if (!body->stacked) {
            body->stacked = 1;
            body->length++;
        }
    }
}

/* Removes all food. The frozen search leaves the hash unchanged. */
static void remove_all_food(const Search *search, Position *pos) {
    for (int cell = 0; cell < search->cells; cell++)
        if (bits_has(&pos->food, cell) && !FROZEN)
            pos->hash ^= search->food_key[cell];
    pos->food = bits_none();
}

/* Plays one turn of the rules without new food: `to` becomes the position after the moves of all
 * living snakes in `from`. */
static void make_turn(Search *search, const Position *from, const uint8_t *moves, Position *to) {
    int snakes = search->request->snakes;
    uint16_t targets[MAX_SNAKES];
    uint8_t dies[MAX_SNAKES] = {0};
    memcpy(to, from, offsetof(Position, snake) + snakes * sizeof(Body));
    move_snakes(search, to, moves, targets);
    /* Snakes eliminated by wall, hunger or hazard do not block other snakes on the same turn. */
    for (int s = 0; s < snakes; s++)
        if (to->snake[s].alive && targets[s] == OFF_BOARD) eliminate(search, to, s);
    find_collisions(search, to, targets, dies);
    for (int s = 0; s < snakes; s++) {
        if (!to->snake[s].alive) continue;
        if (dies[s])
            eliminate(search, to, s);
        else
            enter_cell(search, to, s, targets[s]);
    }
    if (search->request->constrictor && bits_any(to->food)) remove_all_food(search, to);
}
