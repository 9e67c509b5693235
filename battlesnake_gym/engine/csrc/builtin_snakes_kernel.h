/* Preferences of the built-in snakes on boards of up to 64 * WORDS cells. This template is included
 * once per board size by files that define WORDS and CHOICES, the name of the entry function. The
 * names match battlesnake_heuristics/rule_based/view.py, filters.py and preferences.py. */
#include <math.h>
#include <stdlib.h>

#include "masks.h"
#include "builtin_snakes.h"
#include "view_kernel.h"

enum { HUNGRY_BELOW = 30 };

/* Flood fill: returns the number of cells that can be reached from `start`. If `near` is not NULL,
 * the function writes the numbers of turns to goals[0] and goals[1] (0 if unreachable), and may
 * stop early. */
static int flood(const View *view, int start, const Bits goals[2], int near[2]) {
    if (start == NOWHERE) return 0;
    Bits reached = bits_of(start), grown = {{0}};
    for (int turns = 1;; turns++) {
        if (near) {
            for (int i = 0; i < 2; i++)
                if (!near[i] && bits_any(bits_and(reached, goals[i]))) near[i] = turns;
            if (near[0] && near[1]) return 0;
        }
        if (!bits_any(bits_minus(reached, grown)) && turns >= view->horizon) break;
        if (turns > bits_count(reached)) break;
        grown = reached;
        reached =
            bits_or(reached, bits_minus(spread(view, reached), *blocked_cells(view, turns + 1)));
    }
    return bits_count(reached);
}

/* Returns the cells that `own` reaches before every opponent if it moves to `start` first. */
static Bits first_reached(const View *view, int own, int start) {
    Bits owned = {{0}};
    Race race;
    race_begin(&race, view, own, bits_of(start));
    for (int turns = 2; race_settle(&race, view); turns++) {
        for (int i = 0; i < race.count; i++)
            if (race.seats[i] == own) owned = bits_or(owned, race.won[i]);
        race_spread(&race, view, turns);
    }
    return owned;
}

/* Returns the discount of a distance in turns, or 0 for an unreachable goal. */
static double nearness(int turns) { return turns ? discount_powers[turns - 1] : 0; }
/* Returns whether the action mask `moves` contains at most one move. */
static bool is_single(int moves) { return (moves & (moves - 1)) == 0; }

/* Returns the distance in steps from a cell to (x, y). */
static int cells_apart(const Rules *rules, const Record *record, int cell, int x, int y) {
    return distance(cell % record->width, x, record->width, rules->wrapped) +
           distance(cell / record->width, y, record->height, rules->wrapped);
}

/* Returns whether `own` is strictly longer than every opponent. */
static bool is_longest(const Record *record, int own) {
    for (int seat = 0; seat < record->num_snakes; seat++)
        if (seat != own && record->snakes[seat].alive &&
            record->snakes[seat].length >= record->snakes[own].length)
            return false;
    return true;
}

/* Returns the risk of losing head to head on a cell, in [0, 1]; a draw counts half. This function
 * and the next two functions are move filters, which keep only the moves with the lowest penalty.
 */
static double head_to_heads(const View *view, int own, int target) {
    double worst = 0;
    if (target == NOWHERE) return worst;
    const Snake *snakes = view->record->snakes;
    for (int seat = 0; seat < view->record->num_snakes; seat++) {
        if (seat == own || !snakes[seat].alive || snakes[seat].length < snakes[own].length) continue;
        if (!bits_has(&view->exits[seat], target)) continue;
        double loss = snakes[seat].length > snakes[own].length ? 1.0 : 0.5;
        double risk = loss / bits_count(view->exits[seat]);
        if (risk > worst) worst = risk;
    }
    return worst;
}

/* Returns the fraction of the body that does not fit in the reachable cells, in [0, 1]. */
static double dead_ends(const View *view, int own, int target) {
    double lacking = 1 - (double)flood(view, target, NULL, NULL) / view->record->snakes[own].length;
    return lacking > 0 ? lacking : 0;
}

/* Returns the health lost to hazards on a cell. */
static double hazard_damage_on(const View *view, int own, int target) {
    if (target == NOWHERE) return 0;
    int health = view->record->snakes[own].health;
    int damage =
        health - 1 - health_after_turn(view->layout, view->rules, view->record, health, target);
    return damage > 0 ? damage : 0;
}

/* Returns the score of reachable food, in [0, 1]; food in the snake's own territory counts
 * twice. */
static double food(const View *view, int own, int target) {
    if (target == NOWHERE) return 0;
    Bits goals[2] = {view->food, bits_and(view->food, first_reached(view, own, target))};
    int near[2] = {!bits_any(goals[0]), !bits_any(goals[1])}; /* absent goals are not searched */
    bool none = near[0], not_ours = near[1];
    if (none) return 0;
    flood(view, target, goals, near);
    double any = nearness(near[0]) / 2, ours = not_ours ? 0 : nearness(near[1]);
    return ours > any ? ours : any;
}

/* Returns the discount of the distance to the nearest visible head among the shorter opponents, or
 * among all other opponents. */
static double closeness(const View *view, int own, int target, bool to_the_shorter) {
    const Snake *snakes = view->record->snakes;
    int nearest = -1;
    for (int seat = 0; seat < view->record->num_snakes && target != NOWHERE; seat++) {
        bool shorter = snakes[seat].length < snakes[own].length;
        if (seat == own || !snakes[seat].alive || shorter != to_the_shorter ||
            !head_is_visible(&snakes[seat]))
            continue;
        int apart = cells_apart(view->rules, view->record, target, snakes[seat].x, snakes[seat].y);
        if (nearest < 0 || apart < nearest) nearest = apart;
    }
    return nearest < 0 ? 0 : discount_powers[nearest];
}

/* Returns a number of cells as a fraction of the board. */
static double board_fraction_of(const View *view, int cells) { return (double)cells / view->cells; }

/* Returns the preference of the view's snake kind for a move to a cell. */
static double preference(const View *view, int own, int target) {
    const Snake *snake = &view->record->snakes[own];
    int kind = view->kind;
    bool hungry = snake->health < HUNGRY_BELOW;
    double score = 0;
    if (kind == BUILTIN_HUNGRY) return food(view, own, target);
    if (kind == BUILTIN_CAUTIOUS) {
        if (hungry) return food(view, own, target);
        score += board_fraction_of(view, flood(view, target, NULL, NULL));
        return score + (1 - closeness(view, own, target, false));
    }
    double unharmed = -hazard_damage_on(view, own, target) / 100;
    if (kind == BUILTIN_HUNTER) {
        bool longest = is_longest(view->record, own);
        score += hungry || !longest ? food(view, own, target) : closeness(view, own, target, true);
        return score + unharmed;
    }
    double meal = food(view, own, target); /* BUILTIN_TERRITORY */
    if (hungry) score += 3.0 * meal;
    score += board_fraction_of(view, bits_count(first_reached(view, own, target)));
    score += 0.4 * meal;
    return score + unharmed;
}

/* Returns the preference as a penalty. */
static double negative_preference(const View *view, int own, int target) {
    return -preference(view, own, target);
}

/* A penalty function; lower values are better. */
typedef double Badness(const View *view, int own, int target);

/* Returns the subset of the `kept` moves that has the lowest penalty. */
static int keep_least_bad(const View *view, int own, int kept, const int targets[4],
                          Badness *badness) {
    double bad[4] = {0}, least = INFINITY;
    if (is_single(kept)) return kept;
    for (int move = 0; move < 4; move++) {
        if (!(kept >> move & 1)) continue;
        bad[move] = badness(view, own, targets[move]);
        if (bad[move] < least) least = bad[move];
    }
    for (int move = 0; move < 4; move++)
        if (kept >> move & 1 && bad[move] > least) kept &= ~(1 << move);
    return kept;
}

/* Returns the best moves of a snake as bits. */
static int builtin_choice(View *view, int own, int kind) {
    static const uint8_t ALIVE_FILTERS[] = {FAULT_WALL, FAULT_NECK, FAULT_HEALTH, FAULT_BODY};
    if (kind == BUILTIN_RANDOM) return 15;
    int kept = allowed_moves(view->layout, view->rules, view->record, own, ALIVE_FILTERS, 4, false);
    if (kind == BUILTIN_SAFE_RANDOM || is_single(kept)) return kept;
    prepare_view(view);
    int targets[4];
    move_targets(view->rules, view->record, own, targets);
    if (kind != BUILTIN_HUNGRY) {
        kept = keep_least_bad(view, own, kept, targets, head_to_heads);
        kept = keep_least_bad(view, own, kept, targets, dead_ends);
    }
    if (kind == BUILTIN_CAUTIOUS) kept = keep_least_bad(view, own, kept, targets, hazard_damage_on);
    view->kind = kind;
    return keep_least_bad(view, own, kept, targets, negative_preference);
}

/* Implements builtin_choices. */
void CHOICES(const Layout *layout, const Rules *rules, const Record *record, const uint8_t *kinds,
             uint8_t *out) {
    View view;
    view_init(&view, layout, rules, record);
    for (int seat = 0; seat < record->num_snakes; seat++)
        if (kinds[seat] != BUILTIN_NONE && record->snakes[seat].alive)
            out[seat] = (uint8_t)builtin_choice(&view, seat, kinds[seat]);
}
