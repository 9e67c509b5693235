/* What the named snakes prefer, on boards of up to 64 * WORDS cells. Included once for each size by
 * the files that define WORDS and CHOICES, the name of the whole. The names are those of
 * battlesnake_heuristics/handwritten/view.py, filters.py and preferences.py. */
#include <math.h>
#include <stdlib.h>

#include "masks.h"
#include "named.h"
#include "view_body.h"

enum { HUNGRY_BELOW = 30 };

/* How many cells can be reached from `start`, and, where `near` is given, the turns until one of
 * goals[0] and goals[1] can be (0: never). Without `near` none is looked for. */
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
        reached = bits_or(reached, bits_minus(spread(view, reached), *taken(view, turns + 1)));
    }
    return bits_count(reached);
}

/* The cells that `own` reaches before every rival when it goes to `start` first. */
static Bits first(const View *view, int own, int start) {
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

static double nearness(int turns) { return turns ? named_fade[turns - 1] : 0; }
static bool is_single(int moves) { return (moves & (moves - 1)) == 0; }

static int cells_apart(const Rules *rules, const Record *record, int cell, int x, int y) {
    return distance(cell % record->width, x, record->width, rules->wrapped) +
           distance(cell / record->width, y, record->height, rules->wrapped);
}

static bool is_longest(const Record *record, int own) {
    for (int seat = 0; seat < record->num_snakes; seat++)
        if (seat != own && record->snakes[seat].alive &&
            record->snakes[seat].length >= record->snakes[own].length)
            return false;
    return true;
}

/* ---- what speaks against a move ---- */

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

static double dead_ends(const View *view, int own, int target) {
    double lacking = 1 - (double)flood(view, target, NULL, NULL) / view->record->snakes[own].length;
    return lacking > 0 ? lacking : 0;
}

static double harm(const View *view, int own, int target) {
    if (target == NOWHERE) return 0;
    int health = view->record->snakes[own].health;
    int lost = health - 1 - health_on(view->layout, view->rules, view->record, health, target);
    return lost > 0 ? lost : 0;
}

/* ---- what speaks for it ---- */

static double food(const View *view, int own, int target) {
    if (target == NOWHERE) return 0;
    Bits goals[2] = {view->food, bits_and(view->food, first(view, own, target))};
    int near[2] = {!bits_any(goals[0]), !bits_any(goals[1])}; /* absent goals are not sought */
    bool none = near[0], not_ours = near[1];
    if (none) return 0;
    flood(view, target, goals, near);
    double any = nearness(near[0]) / 2, ours = not_ours ? 0 : nearness(near[1]);
    return ours > any ? ours : any;
}

static double closeness(const View *view, int own, int target, bool to_the_shorter) {
    const Snake *snakes = view->record->snakes;
    int nearest = -1;
    for (int seat = 0; seat < view->record->num_snakes && target != NOWHERE; seat++) {
        bool shorter = snakes[seat].length < snakes[own].length;
        if (seat == own || !snakes[seat].alive || shorter != to_the_shorter) continue;
        int apart = cells_apart(view->rules, view->record, target, snakes[seat].x, snakes[seat].y);
        if (nearest < 0 || apart < nearest) nearest = apart;
    }
    return nearest < 0 ? 0 : named_fade[nearest];
}

static double of_board(const View *view, int cells) { return (double)cells / view->cells; }

static double preference(const View *view, int own, int target) {
    const Snake *snake = &view->record->snakes[own];
    int kind = view->kind;
    bool hungry = snake->health < HUNGRY_BELOW;
    double score = 0;
    if (kind == NAMED_HUNGRY) return food(view, own, target);
    if (kind == NAMED_CAUTIOUS) {
        if (hungry) return food(view, own, target);
        score += of_board(view, flood(view, target, NULL, NULL));
        return score + (1 - closeness(view, own, target, false));
    }
    double unharmed = -harm(view, own, target) / 100;
    if (kind == NAMED_HUNTER) {
        bool longest = is_longest(view->record, own);
        score += hungry || !longest ? food(view, own, target) : closeness(view, own, target, true);
        return score + unharmed;
    }
    double meal = food(view, own, target); /* NAMED_TERRITORY */
    if (hungry) score += 3.0 * meal;
    score += of_board(view, bits_count(first(view, own, target)));
    score += 0.4 * meal;
    return score + unharmed;
}

/* ---- decisions ---- */

static double dislike(const View *view, int own, int target) { return -preference(view, own, target); }

typedef double Badness(const View *view, int own, int target);

static int least_bad(const View *view, int own, int kept, const int targets[4], Badness *badness) {
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

static int choice(View *view, int own, int kind) {
    static const uint8_t ALIVE_FILTERS[] = {FAULT_WALL, FAULT_NECK, FAULT_HEALTH, FAULT_BODY};
    if (kind == NAMED_RANDOM) return 15;
    int kept = allowed_moves(view->layout, view->rules, view->record, own, ALIVE_FILTERS, 4, false);
    if (kind == NAMED_SAFE_RANDOM || is_single(kept)) return kept;
    look(view);
    int targets[4];
    move_targets(view->rules, view->record, own, targets);
    if (kind != NAMED_HUNGRY) {
        kept = least_bad(view, own, kept, targets, head_to_heads);
        kept = least_bad(view, own, kept, targets, dead_ends);
    }
    if (kind == NAMED_CAUTIOUS) kept = least_bad(view, own, kept, targets, harm);
    view->kind = kind;
    return least_bad(view, own, kept, targets, dislike);
}

void CHOICES(const Layout *layout, const Rules *rules, const Record *record, const uint8_t *kinds,
             uint8_t *out) {
    View view;
    view_begin(&view, layout, rules, record);
    for (int seat = 0; seat < record->num_snakes; seat++)
        if (kinds[seat] != NAMED_NOBODY && record->snakes[seat].alive)
            out[seat] = (uint8_t)choice(&view, seat, kinds[seat]);
}
