/* The value of a position to snake 0: who reaches which cell first, food, length and room. Valued by
 * a network if the question has one, and else by weights that were set by hand. */

#define UNREACHED 127
#define SOON 4  /* turns from here */
#define LATER 9

typedef struct {
    Bits owned[MAX_SNAKES];     /* the cells that each snake reaches before all others */
    Bits taken;                 /* all cells that are reached, by any snake */
    int food_at[MAX_SNAKES];    /* turns to the nearest food of its own, or UNREACHED */
    int moves[MAX_SNAKES];      /* cells that it may enter next, others or not */
    int soon[MAX_SNAKES], later[MAX_SNAKES], cells[MAX_SNAKES]; /* of its own, until then and ever */
    int last[MAX_SNAKES];       /* the turn in which it reaches its last cell */
} Territory;

/* Adds to `free` the cells that tails leave with that move from here; returns whether any leaves more
 * later. Without jumps and without writing to memory in between. */
static inline ALWAYS_INLINE int free_tails(const Search *search, const Position *at,
                                           const int *alive, int count, int turn, Bits *free) {
    Bits more = *free;
    int later = 0;
    for (int i = 0; i < count; i++) {
        const Body *body = &at->snake[alive[i]];
        int place = turn - 1 - body->stacked, last = (uint16_t)(body->head - body->tail);
        int cell = segment(search, alive[i], body->tail + place);
        uint64_t bit = (uint64_t)(place >= 0 && place <= last) << (cell & 63);
        for (int w = 0; w < WORDS; w++) more.w[w] |= cell >> 6 == w ? bit : 0;
        later |= place < last;
    }
    *free = more;
    return later;
}

#if WORDS == 2 /* for the usual boards and numbers of snakes, code of their own */
#define LANES 2
#define ROWS 1
#include "spread.h"
#define LANES 4
#define ROWS 1
#include "spread.h"
#endif
#define LANES 4
#define ROWS 4
#include "spread.h"

static __attribute__((noinline)) void spread_out(const Search *search, const Position *at,
                                                 const int *alive, int count, Territory *land) {
#if WORDS == 2
    if (count <= 2)
        sets_spread_2_1(search, at, alive, count, land);
    else if (count <= 4)
        sets_spread_4_1(search, at, alive, count, land);
    else
#endif
        sets_spread_4_4(search, at, alive, count, land);
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
    spread_out(search, at, alive, count, &land);
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
    int alive[MAX_SNAKES] = {0}, count = 0;
    int16_t inputs[INPUTS];
    search->evaluated++;
    for (int s = 0; s < search->ask->snakes; s++)
        if (at->snake[s].alive) alive[count++] = s;
    if (!search->ask->network || count < 2) return evaluate_by_hand(search, at, alive, count);
    inputs_of(search, at, alive, count, inputs);
    return network_value(search->network_code, search->ask->network, inputs, count);
}
