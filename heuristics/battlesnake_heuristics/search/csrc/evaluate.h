/* The value of a position to snake 0: who reaches which cell first, food, length and room. Valued by
 * a network if the question has one, and else by weights that were set by hand. */

#define UNREACHED 127
#define SOON 4  /* turns from here */
#define LATER 9

typedef struct {
    Bits owned[MAX_SNAKES];     /* the cells that each snake reaches before all others */
    int food_at[MAX_SNAKES];    /* turns to the nearest food of its own, or UNREACHED */
    /* what only a network asks for */
    Bits taken;                 /* all cells that are reached, by any snake */
    int moves[MAX_SNAKES];      /* cells that it may enter next, others or not */
    int soon[MAX_SNAKES], later[MAX_SNAKES], cells[MAX_SNAKES]; /* of its own, until then and ever */
    int last[MAX_SNAKES];       /* the turn in which it reaches its last cell */
} Territory;

static inline __attribute__((always_inline)) Bits neighbours(const Search *search, Bits cells) {
    return bits_beside(cells, search->board, search->left_column, search->right_column,
                       search->ask->width, search->ask->height, search->ask->wrapped);
}

/* Cells that several snakes reach in the same turn go to the one that is longer than all others, or to
 * none. */
static inline __attribute__((always_inline)) void settle_ties(const Position *at, const int *alive, int count, Bits *reached) {
    Bits all[MAX_SNAKES];
    for (int i = 0; i < count; i++) all[i] = reached[i];
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (j != i && at->snake[alive[j]].length >= at->snake[alive[i]].length)
                reached[i] = bits_minus(reached[i], all[j]);
}

/* The same for two. Of three, as the search of 2026 had it, the last could get a cell that two longer
 * ones lost. */
static inline __attribute__((always_inline)) void settle_pairs(const Position *at, const int *alive, int count, Bits *reached) {
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            Bits both = bits_and(reached[i], reached[j]);
            if (!bits_any(both)) continue;
            int more = at->snake[alive[i]].length - at->snake[alive[j]].length;
            if (more <= 0) reached[i] = bits_minus(reached[i], both);
            if (more >= 0) reached[j] = bits_minus(reached[j], both);
        }
}

/* The tail cell that snake `s` leaves with its `turn`-th move from here, or -1. */
static inline int left_behind(const Search *search, const Body *body, int s, int turn) {
    int place = turn - 1 - body->stacked;
    if (place < 0 || place > (uint16_t)(body->head - body->tail)) return -1;
    return segment(search, s, body->tail + place);
}

static inline void count_owned(const Territory *land, int count, int *cells) {
    for (int i = 0; i < count; i++) cells[i] = bits_count(land->owned[i]);
}

/* Lets all snakes spread at once, one cell a turn, into cells that are free by then. Compiled once
 * with and once without the `details` that a network asks for. */
static inline __attribute__((always_inline)) void spread_out(const Search *search,
                                                             const Position *at, const int *alive,
                                                             int count, int details,
                                                             Territory *out) {
    Bits taken = bits_none(), free = bits_minus(search->board, at->occupied);
    int bodies = 1;
    for (int i = 0; i < count; i++) {
        int s = alive[i];
        out->owned[i] = bits_none();
        bits_add(&out->owned[i], head_of(search, at, s));
        out->food_at[i] = UNREACHED;
        if (details) out->last[i] = out->moves[i] = 0;
    }
    if (details) out->soon[0] = out->later[0] = -1;
    for (int turn = 1; turn < UNREACHED; turn++) {
        Bits reached[MAX_SNAKES], fresh = bits_none();
        if (bodies && !search->ask->constrictor) {
            bodies = 0;
            for (int i = 0; i < count; i++) {
                int cell = left_behind(search, &at->snake[alive[i]], alive[i], turn);
                if (cell >= 0) bits_add(&free, cell);
                bodies |= cell >= 0 || turn <= at->snake[alive[i]].stacked;
            }
        }
        Bits open = bits_minus(free, taken);
        for (int i = 0; i < count; i++) {
            reached[i] = bits_and(neighbours(search, out->owned[i]), open);
            fresh = bits_or(fresh, reached[i]);
        }
        if (!bits_any(fresh)) {
            if (turn > 3) break;
            continue;
        }
        if (details && turn == 1)
            for (int i = 0; i < count; i++) out->moves[i] = bits_count(reached[i]);
        if (count == 2 || search->ask->of_2026)
            settle_pairs(at, alive, count, reached);
        else
            settle_ties(at, alive, count, reached);
        taken = bits_or(taken, fresh);
        for (int i = 0; i < count; i++) {
            out->owned[i] = bits_or(out->owned[i], reached[i]);
            if (out->food_at[i] == UNREACHED && bits_any(bits_and(reached[i], at->food)))
                out->food_at[i] = turn;
            if (details && bits_any(reached[i])) out->last[i] = turn;
        }
        if (details && turn == SOON) count_owned(out, count, out->soon);
        if (details && turn == LATER) count_owned(out, count, out->later);
    }
    if (!details) return;
    out->taken = taken;
    count_owned(out, count, out->cells);
    if (out->soon[0] < 0) memcpy(out->soon, out->cells, sizeof out->soon);
    if (out->later[0] < 0) memcpy(out->later, out->cells, sizeof out->later);
}

static int appetite(const Search *search, const Body *body, int food_at) {
    const int32_t *w = search->ask->weights;
    int lack = w[W_HUNGRY] - body->health;
    int drive = w[W_FOOD_NEAR] + (lack > 0 ? lack * w[W_HUNGER] : 0);
    int value = food_at == UNREACHED ? 0 : drive / (food_at + 1);
    /* starvation in sight: nothing of ours can be eaten in time */
    if (body->health < food_at && lack > 0) value -= w[W_STARVING] / (body->health + 1);
    return value;
}

static int worth(const Search *search, const Position *at, int s, Bits owned, int food_at) {
    const int32_t *w = search->ask->weights;
    const Body *body = &at->snake[s];
    int cells = bits_count(owned);
    int value = cells * w[W_TERRITORY];
    if (search->ask->damage > 0)
        value -= bits_count(bits_and(owned, search->hazard)) * w[W_HAZARD_CELL];
    if (cells < body->length) value -= (body->length - cells) * w[W_CRAMPED];
    if (!search->ask->constrictor) value += appetite(search, body, food_at);
    return value;
}

static int lead(const int32_t *w, int own, int rival) {
    int more = own - rival;
    int counted = more > w[W_LEAD] ? w[W_LEAD] : more < -w[W_LEAD] ? -w[W_LEAD] : more;
    return counted * w[W_LENGTH] + (more > 0 ? w[W_LONGEST] : more < 0 ? -w[W_LONGEST] : 0);
}

/* The estimate for a position in which snake 0 lives, in thousandths of a cell. */
static int evaluate_by_hand(const Search *search, const Position *at, const int *alive, int count) {
    const int32_t *w = search->ask->weights;
    int longest = 0, best = 0, total = 0;
    Territory land;
    spread_out(search, at, alive, count, 0, &land);
    int value = worth(search, at, 0, land.owned[0], land.food_at[0]);
    for (int i = 1; i < count; i++) {
        int rival = worth(search, at, alive[i], land.owned[i], land.food_at[i]);
        total += rival;
        if (i == 1 || rival > best) best = rival;
        if (at->snake[alive[i]].length > longest) longest = at->snake[alive[i]].length;
    }
    if (count > 1) {
        /* one rival: the difference; several: against the strongest and the average alike */
        value -= (best + total / (count - 1)) / 2;
        value += lead(w, at->snake[0].length, longest);
    }
    return value + (search->ask->snakes - count) * w[W_RIVAL];
}

#include "inputs.h"

static int evaluate(Search *search, const Position *at) {
    int alive[MAX_SNAKES], count = 0;
    int16_t inputs[INPUTS];
    search->evaluated++;
    for (int s = 0; s < search->ask->snakes; s++)
        if (at->snake[s].alive) alive[count++] = s;
    if (!search->ask->network || count < 2) return evaluate_by_hand(search, at, alive, count);
    inputs_of(search, at, alive, count, inputs);
    return network_value(search->network_code, search->ask->network, inputs, count);
}
