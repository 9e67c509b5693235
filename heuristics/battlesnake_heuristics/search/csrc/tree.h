/* Iterative deepening alpha-beta over whole turns.
 *
 * We choose first and the rivals answer knowing our move, so a value is one that we can be sure of.
 * With one rival that is exact alpha-beta; with several, each rival in turn may answer us as badly
 * as it can while the others keep to the move that has hurt us most so far (best-reply search). */

#include "table.h"

/* A decided game is decided at any depth. */
static int proven(Known known) {
    return (known.value >= PROVEN && known.bound != AT_MOST) ||
           (known.value <= -PROVEN && known.bound != AT_LEAST);
}

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Everything that the future depends on: the cells, and each snake's health, length and tail. */
static uint64_t position_key(const Search *search, const Position *at) {
    uint64_t key = at->hash;
    for (int s = 0; s < search->ask->snakes; s++) {
        const Body *body = &at->snake[s];
        if (!body->alive) continue;
        uint64_t facts = (uint64_t)body->health << 48 | (uint64_t)body->length << 32 |
                         (uint64_t)body->stacked << 16 | segment(search, s, body->tail);
        key += mixed(facts * 31 + s + 1);
    }
    return key;
}

static double seconds_now(const Search *search) {
    struct timespec now;
    clock_gettime(search->clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

#define CALM_SECONDS 0.1 /* the period of a quota, unless a host chooses a shorter one */
#define SHORTEST_REST 0.001

/* Where a process is given less than a core, the system stops it once it has used up its share of a
 * period, and an answer that is due then comes in the next. So in the last period before its
 * deadline a search takes less than its share, resting in between. */
static void rest(Search *search) {
    struct timespec time;
    double left = search->deadline - seconds_now(search);
    if (left > CALM_SECONDS) return;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    double worked = time.tv_sec + time.tv_nsec * 1e-9;
    if (search->calm_left == 0) {
        search_calm[0] = search->calm_worked = worked;
        search_calm[1] = search->calm_left = left;
    }
    double due = (worked - search->calm_worked) / search_pace - (search->calm_left - left);
    if (due > left) due = left;
    if (due < SHORTEST_REST) return;
    time.tv_sec = 0;
    time.tv_nsec = (long)(due * 1e9);
#ifndef __wasi__ /* a page cannot sleep */
    nanosleep(&time, NULL);
#endif
}

/* Whether the search is to stop; `timely` and `asked`: whether to look at the clock and to ask the caller. */
static int out_of_limits(Search *search, int timely, int asked) {
    const Question *ask = search->ask;
    if (ask->nodes > 0 && search->visited >= ask->nodes) search->stopped = 1;
    if (ask->seconds > 0 && timely) {
        if (search_pace > 0 && search->clock == CLOCK_MONOTONIC) rest(search);
        if (seconds_now(search) >= search->deadline) search->stopped = 1;
    }
    if (ask->interrupted && asked && ask->interrupted(ask->caller))
        search->interrupted = search->stopped = 1;
    return search->stopped;
}

static int out_of_time(Search *search) {
    return out_of_limits(search, !(search->visited & 255), !(search->visited & 0x7fff));
}

/* The value of a decided position, else 0. `ply` is the number of turns played. */
static int decided(const Search *search, const Position *at, int ply) {
    int drawn = !at->living && search->ask->snakes > 1;
    if (!at->snake[0].alive) return drawn ? -search->ask->weights[W_DRAW] : -WIN + ply;
    if (at->living == 1 && search->ask->snakes > 1 && !search->ask->solo) return WIN - ply;
    return 0;
}

static Bits leaving_tails(const Search *search, const Position *at) {
    Bits tails = bits_none();
    for (int s = 0; s < search->ask->snakes; s++)
        if (at->snake[s].alive && !at->snake[s].stacked)
            bits_add(&tails, segment(search, s, at->snake[s].tail));
    return tails;
}

/* Moves of snake `s` that neither leave the board nor enter a body that stays, the most promising
 * first; with none of them, a single one (any: it dies). Returns how many. The body of a snake that
 * starves in this very turn is taken to stay. */
static int moves_of(const Search *search, const Position *at, int s, int first, uint8_t *moves) {
    Bits closed = bits_minus(at->occupied, leaving_tails(search, at));
    int count = 0, from = head_of(search, at, s);
    uint64_t rank[4];
    for (int move = 0; move < 4; move++) {
        int cell = search->next[from][move];
        if (cell == OFF_BOARD || bits_has(&closed, cell)) continue;
        uint64_t score = move == first ? UINT64_MAX : search->history[s][cell];
        int place = count++;
        for (; place > 0 && rank[place - 1] < score; place--) {
            rank[place] = rank[place - 1];
            moves[place] = moves[place - 1];
        }
        rank[place] = score;
        moves[place] = move;
    }
    if (!count) moves[count++] = first < 4 ? first : 0;
    return count;
}

static int best_for_us(Search *search, const Position *at, int depth, int ply, int alpha, int beta);

/* How deep a move is searched that does not look like the best one; if it proves better than
 * expected, it is searched again to the whole depth (late move reductions). */
static int reduced(const Search *search, int depth) {
    return depth > 2 && !search->ask->of_2026 ? depth - 1 : depth;
}

/* The evaluation, kept from looking like a decided game however long and cramped a snake is. */
static int estimate(Search *search, const Position *at) {
    int value = evaluate(search, at);
    if (search->ask->of_2026) return value;
    return value >= PROVEN ? PROVEN - 1 : value <= -PROVEN ? 1 - PROVEN : value;
}

static int value_after(Search *search, const Position *at, const uint8_t *moves, int depth, int ply,
                       int alpha, int beta) {
    Position to;
    play(search, at, moves, &to);
    int value = decided(search, &to, ply);
    if (value && search->ask->of_2026) return value;
    if (out_of_time(search) || value) return value;
    if (depth <= 1) return estimate(search, &to);
    return best_for_us(search, &to, depth - 1, ply + 1, alpha, beta);
}

/* The end of a game is valued by its distance: in values from the root, in the table, which outlives
 * the root, from the position itself; in 2026 from the root in both. */
static int seen_from_here(const Search *search, int value, int ply) {
    if (search->ask->of_2026) return value;
    return value >= PROVEN ? value + ply : value <= -PROVEN ? value - ply : value;
}
static int seen_from_root(const Search *search, int value, int ply) {
    if (search->ask->of_2026) return value;
    return value >= PROVEN ? value - ply : value <= -PROVEN ? value + ply : value;
}

/* What the table knows of `key`; whether that settles its value between alpha and beta. */
static int settled(const Search *search, uint64_t key, int depth, int ply, int alpha, int beta,
                   Known *known) {
    if (!recall(search->table, search->table_mask, key, known)) return 0;
    known->value = seen_from_root(search, known->value, ply);
    if (known->depth < depth && !proven(*known)) return 0;
    return known->bound == EXACT || (known->bound == AT_LEAST && known->value >= beta) ||
           (known->bound == AT_MOST && known->value <= alpha);
}

/* Keeps what a search between alpha and beta found of `key`. */
static void keep(const Search *search, uint64_t key, int depth, int ply, int alpha, int beta,
                 int value, int move) {
    Known known = {.depth = depth, .move = move, .value = seen_from_here(search, value, ply)};
    known.bound = value >= beta ? AT_LEAST : value <= alpha ? AT_MOST : EXACT;
    remember(search->table, search->table_mask, key, known);
}

/* The value of our `moves[0]` in the position of `key`: the worst that the rivals' answers make of
 * it. The table keeps it beside the values of positions, with the answer and whose it is. */
static int worst_answer(Search *search, const Position *at, uint64_t key, uint8_t *moves, int depth,
                        int ply, int alpha, int beta) {
    int snakes = search->ask->snakes, counts[MAX_SNAKES] = {0}, answered = 0, worst = WIN;
    int kept = depth > 2 && !search->ask->of_2026, most = beta, answer = 0;
    Known known = {.move = 0};
    if (kept) { /* nearer to the end to look there costs as much as it spares */
        key = mixed(key + moves[0] + 1);
        if (settled(search, key, depth, ply, alpha, beta, &known)) return known.value;
    }
    int lost = -WIN - 1, kindest = -WIN - 1; /* of the answers that lose, the worst; of all, the best */
    int soft = at->living > 2 && !search->ask->of_2026;
    uint8_t options[MAX_SNAKES][4], *refutation = search->refutation[ply][moves[0]];
    for (int s = 1; s < snakes; s++) {
        if (!at->snake[s].alive) continue;
        int first = known.move >> 2 == s ? known.move & 3 : refutation[s] ? refutation[s] - 1 : 4;
        counts[s] = moves_of(search, at, s, first, options[s]);
        moves[s] = options[s][0];
    }
    for (int s = 1; s < snakes && alpha < beta; s++) {
        if (!counts[s]) continue;
        /* a rival too far to meet us within the search keeps to one move */
        int far = at->living > 2 && steps_between(search, head_of(search, at, 0),
                                                head_of(search, at, s)) > 2 * depth + 2;
        for (int i = answered ? 1 : 0; i < (far && answered ? 1 : counts[s]); i++) {
            moves[s] = options[s][i];
            int value;
            if (!answered || depth < 2) {
                value = value_after(search, at, moves, depth, ply, alpha, beta);
            } else {
                value = value_after(search, at, moves, reduced(search, depth), ply, beta - 1, beta);
                if (reduced(search, depth) < depth && !search->stopped && value < beta)
                    value = value_after(search, at, moves, depth, ply, beta - 1, beta);
                if (!search->stopped && value < beta && value > alpha)
                    value = value_after(search, at, moves, depth, ply, alpha, beta);
            }
            if (search->stopped) return 0;
            answered = 1;
            if (soft) {
                if (value > kindest) kindest = value;
                if (value <= -PROVEN) {
                    if (lost < -WIN || value < lost) lost = value;
                    value /= 2;
                }
            }
            if (value < worst) {
                worst = value;
                refutation[s] = moves[s] + 1;
                answer = s << 2 | moves[s];
            }
            if (worst < beta) beta = worst;
            if (alpha >= beta) {
                int cell = search->next[head_of(search, at, s)][moves[s]];
                if (cell != OFF_BOARD) search->history[s][cell] += depth * depth;
                break;
            }
        }
        moves[s] = options[s][0];
    }
    if (!answered) return value_after(search, at, moves, depth, ply, alpha, beta);
    /* whatever they do, not only what would be worst */
    if (soft && kindest <= -PROVEN && worst > alpha) worst = lost;
    if (kept) keep(search, key, depth, ply, alpha, most, worst, answer);
    return worst;
}

static int best_for_us(Search *search, const Position *at, int depth, int ply, int alpha, int beta) {
    uint64_t key = position_key(search, at);
    Known known = {.move = 4};
    int opening = alpha, best = -WIN, best_move = 0;
    if (settled(search, key, depth, ply, alpha, beta, &known)) return known.value;
    uint8_t options[4], moves[MAX_SNAKES] = {0};
    int count = moves_of(search, at, 0, known.move, options);
    for (int i = 0; i < count; i++) {
        moves[0] = options[i];
        int value;
        if (i == 0 || depth < 2) {
            value = worst_answer(search, at, key, moves, depth, ply, alpha, beta);
        } else {
            value = worst_answer(search, at, key, moves, reduced(search, depth), ply, alpha,
                                 alpha + 1);
            if (reduced(search, depth) < depth && !search->stopped && value > alpha)
                value = worst_answer(search, at, key, moves, depth, ply, alpha, alpha + 1);
            if (!search->stopped && value > alpha && value < beta)
                value = worst_answer(search, at, key, moves, depth, ply, alpha, beta);
        }
        if (search->stopped) return 0;
        if (value > best || i == 0) {
            best = value;
            best_move = options[i];
        }
        if (best > alpha) alpha = best;
        if (alpha >= beta) {
            int cell = search->next[head_of(search, at, 0)][best_move];
            if (cell != OFF_BOARD) search->history[0][cell] += depth * depth;
            break;
        }
    }
    keep(search, key, depth, ply, opening, beta, best, best_move);
    return best;
}
