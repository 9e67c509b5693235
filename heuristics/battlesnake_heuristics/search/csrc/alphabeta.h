/* Best-reply search: alpha-beta with iterative deepening over whole turns.
 *
 * The search chooses the opponents' moves after our move, so every value is a lower bound of the
 * value that we can achieve. With one opponent, this search is ordinary alpha-beta search. With
 * several opponents, one opponent at a time plays its best reply. All other opponents keep their
 * best replies so far (best-reply search, Schadd and Winands 2011). Move ordering uses the
 * transposition table, killer replies and the history heuristic. Later moves are reduced (late move
 * reductions) and first searched with a null window (principal variation search).
 *
 * Values are from the perspective of snake 0, in 1/1000 cell of territory. */

#include "transposition_table.h"

/* Returns whether the entry proves a forced win or loss. Such an entry is valid at any depth. */
static int is_proven(TTEntry entry) {
    return (entry.value >= PROVEN && entry.bound != BOUND_UPPER) ||
           (entry.value <= -PROVEN && entry.bound != BOUND_LOWER);
}

/* Returns a 64-bit hash of `x`, computed with the finalizer of splitmix64. */
static uint64_t mix64(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Returns the hash of a position: its occupied cells, heads and food, and the health, length and
 * tail of each living snake. */
static uint64_t position_key(const Search *search, const Position *pos) {
    uint64_t key = pos->hash;
    for (int s = 0; s < search->request->snakes; s++) {
        const Body *body = &pos->snake[s];
        if (!body->alive) continue;
        uint64_t facts = (uint64_t)body->health << 48 | (uint64_t)body->length << 32 |
                         (uint64_t)body->stacked << 16 | segment(search, s, body->tail);
        key += mix64(facts * 31 + s + 1);
    }
    return key;
}

/* Returns the current time of the search's clock, in seconds. */
static double clock_seconds(const Search *search) {
    struct timespec now;
    clock_gettime(search->clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

#define QUOTA_PERIOD_S 0.1 /* default period of a cgroup CPU quota, in seconds */
/* Minimum duration of a sleep, in seconds. The search skips shorter sleeps. */
#define MIN_SLEEP_S 0.001

/* Throttles a search during the last quota period before the deadline. The function sleeps so that
 * the process uses at most `search_throttle_fraction` of a core. If a process exhausts its CPU
 * quota, the kernel suspends the process until the next period, and the move would arrive late. */
static void throttle(Search *search) {
    struct timespec now;
    double time_left = search->deadline - clock_seconds(search);
    if (time_left > QUOTA_PERIOD_S) return;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    double cpu_used = now.tv_sec + now.tv_nsec * 1e-9;
    if (search->throttle_start_left == 0) {
        search_throttle_start[0] = search->throttle_start_cpu = cpu_used;
        search_throttle_start[1] = search->throttle_start_left = time_left;
    }
    double due = (cpu_used - search->throttle_start_cpu) / search_throttle_fraction -
                 (search->throttle_start_left - time_left);
    if (due > time_left) due = time_left;
    if (due < MIN_SLEEP_S) return;
    now.tv_sec = 0;
    now.tv_nsec = (long)(due * 1e9);
#ifndef __wasi__ /* WebAssembly in a web page cannot sleep */
    nanosleep(&now, NULL);
#endif
}

#define POLL_PERIOD_S 0.02 /* minimum time between calls of the callback, in seconds */

/* Sets search->stopped to 1 if a limit is reached, and returns search->stopped. The function reads
 * the clock, and polls the callback if it is due, only if `check_clock`. */
static int check_stop(Search *search, int check_clock) {
    const SearchRequest *request = search->request;
    if (request->max_nodes > 0 && search->nodes >= request->max_nodes) search->stopped = 1;
    if (!check_clock) return search->stopped;
    int timed = request->time_limit_s > 0;
    if (timed && search_throttle_fraction > 0 && search->clock == CLOCK_MONOTONIC) throttle(search);
    double now = clock_seconds(search);
    if (timed && now >= search->deadline) search->stopped = 1;
    if (request->should_stop && now >= search->next_poll) {
        search->next_poll = now + POLL_PERIOD_S;
        if (request->should_stop(request->should_stop_arg))
            search->interrupted = search->stopped = 1;
    }
    return search->stopped;
}

/* Checks the node limit at every node, and the clock and the callback at every 256th node. Returns
 * search->stopped. */
static int poll_stop(Search *search) { return check_stop(search, !(search->nodes & 255)); }

/* Returns the value of a finished game, `ply` turns from the root, or 0 if the game continues. */
static int terminal_value(const Search *search, const Position *pos, int ply) {
    int drawn = !pos->living && search->request->snakes > 1;
    if (!pos->snake[0].alive) return drawn ? -search->request->weights[W_DRAW] : -WIN + ply;
    if (pos->living == 1 && search->request->snakes > 1 && !search->request->solo) return WIN - ply;
    return 0;
}

/* Returns the tail cells that become free on the next turn. */
static Bits vacating_tails(const Search *search, const Position *pos) {
    Bits tails = bits_none();
    for (int s = 0; s < search->request->snakes; s++)
        if (pos->snake[s].alive && !pos->snake[s].stacked)
            bits_add(&tails, segment(search, s, pos->snake[s].tail));
    return tails;
}

/* Writes the moves of snake `s` that neither leave the board nor enter a cell that stays occupied.
 * Move `first` (4: none) is first, and the other moves are sorted by history score. Returns the
 * number of moves. If there is no such move, the function writes one fatal move. The body of a
 * snake that starves on this turn counts as occupied. */
static int generate_moves(const Search *search, const Position *pos, int s, int first,
                          uint8_t *moves) {
    Bits closed = bits_minus(pos->occupied, vacating_tails(search, pos));
    int count = 0, from = head_of(search, pos, s);
    uint64_t rank[4];
    for (int move = 0; move < 4; move++) {
        int cell = search->next[from][move];
        if (cell == OFF_BOARD || bits_has(&closed, cell)) continue;
        uint64_t score = move == first ? UINT64_MAX : search->history[s][cell];
        int slot = count++;
        for (; slot > 0 && rank[slot - 1] < score; slot--) {
            rank[slot] = rank[slot - 1];
            moves[slot] = moves[slot - 1];
        }
        rank[slot] = score;
        moves[slot] = move;
    }
    if (!count) moves[count++] = first < 4 ? first : 0;
    return count;
}

/* This declaration is needed because min_node() and max_node() are mutually recursive. */
static int max_node(Search *search, const Position *pos, int depth, int ply, int alpha, int beta);

/* Returns the reduced depth for moves after the first move (late move reductions). If the reduced
 * search finds a better value, the caller searches the move again at full depth. */
static int lmr_depth(int depth) { return depth > 2 && !FROZEN ? depth - 1 : depth; }

/* Returns the static evaluation, clamped to the range between proven losses and proven wins. */
static int static_eval(Search *search, const Position *pos) {
    int value = evaluate(search, pos);
    if (FROZEN) return value;
    return value >= PROVEN ? PROVEN - 1 : value <= -PROVEN ? 1 - PROVEN : value;
}

/* Makes the moves of all snakes and returns the value of the resulting position:
 *
 * - the result, if the game is over;
 * - the static evaluation, at depth 1;
 * - otherwise, the value of the next max node. */
static int search_after(Search *search, const Position *pos, const uint8_t *moves, int depth,
                        int ply, int alpha, int beta) {
    Position to;
    search->nodes++;
    make_turn(search, pos, moves, &to);
    int value = terminal_value(search, &to, ply);
    if (value && FROZEN) return value;
    if (poll_stop(search) || value) return value;
    /* A draw with W_DRAW 0; evaluations require a living snake 0. */
    if (!to.snake[0].alive) return 0;
    if (depth <= 1) return static_eval(search, &to);
    return max_node(search, &to, depth - 1, ply + 1, alpha, beta);
}

/* Converts a value for the transposition table. The distance of a win or loss, counted from the
 * root, becomes a distance from the position, which is `ply` turns from the root. Later searches
 * with other roots can therefore use the entry. The frozen search stores distances from the
 * root. */
static int value_to_tt(int value, int ply) {
    if (FROZEN) return value;
    return value >= PROVEN ? value + ply : value <= -PROVEN ? value - ply : value;
}
/* Inverts value_to_tt(): converts a value of the transposition table to a distance from the
 * root. */
static int value_from_tt(int value, int ply) {
    if (FROZEN) return value;
    return value >= PROVEN ? value - ply : value <= -PROVEN ? value + ply : value;
}

/* Probes the transposition table and fills `entry`, with distances counted from the root. Returns
 * whether the value of the entry replaces a search with the window (alpha, beta). */
static int tt_cutoff(const Search *search, uint64_t key, int depth, int ply, int alpha, int beta,
                     TTEntry *entry) {
    if (!tt_probe(search->table, search->table_mask, key, entry)) return 0;
    entry->value = value_from_tt(entry->value, ply);
    if (entry->depth < depth && !is_proven(*entry)) return 0;
    return entry->bound == BOUND_EXACT || (entry->bound == BOUND_LOWER && entry->value >= beta) ||
           (entry->bound == BOUND_UPPER && entry->value <= alpha);
}

/* Stores the result of a node that was searched with the window (alpha, beta). */
static void tt_save(const Search *search, uint64_t key, int depth, int ply, int alpha, int beta,
                    int value, int move) {
    TTEntry entry = {.depth = depth, .move = move, .value = value_to_tt(value, ply)};
    entry.bound = value >= beta ? BOUND_LOWER : value <= alpha ? BOUND_UPPER : BOUND_EXACT;
    tt_store(search->table, search->table_mask, key, entry);
}

/* Returns the value of our move `moves[0]` (min node), which is the minimum over the opponents'
 * replies. `key` is the hash of `pos`; `moves` is scratch space for all snakes. In addition to
 * values of positions, the transposition table stores the value of each of our moves, with the best
 * reply and its snake. Returns 0 if the search was stopped. */
static int min_node(Search *search, const Position *pos, uint64_t key, uint8_t *moves, int depth,
                    int ply, int alpha, int beta) {
    int snakes = search->request->snakes, counts[MAX_SNAKES] = {0}, has_reply = 0, worst = WIN;
    int use_tt = depth > 2 && !FROZEN, original_beta = beta, best_reply = 0;
    TTEntry entry = {.move = 0};
    /* Step 1. Probe the transposition table. */
    if (use_tt) { /* at smaller depths, a probe takes as long as the search */
        key = mix64(key + moves[0] + 1);
        if (tt_cutoff(search, key, depth, ply, alpha, beta, &entry)) return entry.value;
    }
    /* These variables are the minimum value of losing replies and the maximum value of all
     * replies. */
    int worst_losing_value = -WIN - 1, best_reply_value = -WIN - 1;
    int halve_losses = pos->living > 2 && !FROZEN;
    /* Step 2. Generate the replies of every opponent; the best known reply or the killer reply is
     * first. */
    uint8_t options[MAX_SNAKES][4], *killer_replies = search->killer_replies[ply][moves[0]];
    for (int s = 1; s < snakes; s++) {
        if (!pos->snake[s].alive) continue;
        int first = entry.move >> 2 == s ? entry.move & 3
                    : killer_replies[s]  ? killer_replies[s] - 1
                                         : 4;
        counts[s] = generate_moves(search, pos, s, first, options[s]);
        moves[s] = options[s][0];
    }
    /* Step 3. Search each opponent's deviations from the replies that have hurt us most so far. */
    for (int s = 1; s < snakes && alpha < beta; s++) {
        if (!counts[s]) continue;
        /* An opponent that cannot meet us within the search depth plays only its first move. */
        int out_of_range =
            pos->living > 2 &&
            steps_between(search, head_of(search, pos, 0), head_of(search, pos, s)) > 2 * depth + 2;
        for (int i = has_reply ? 1 : 0; i < (out_of_range && has_reply ? 1 : counts[s]); i++) {
            moves[s] = options[s][i];
            /* Step 4. Search the first reply with the full window. Reduce all later replies and
             * search them with a null window. Search a reply again at full depth and with the full
             * window if it may be better. */
            int value;
            if (!has_reply || depth < 2) {
                value = search_after(search, pos, moves, depth, ply, alpha, beta);
            } else {
                value = search_after(search, pos, moves, lmr_depth(depth), ply, beta - 1, beta);
                if (lmr_depth(depth) < depth && !search->stopped && value < beta)
                    value = search_after(search, pos, moves, depth, ply, beta - 1, beta);
                if (!search->stopped && value < beta && value > alpha)
                    value = search_after(search, pos, moves, depth, ply, alpha, beta);
            }
            if (search->stopped) return 0;
            has_reply = 1;
            /* Step 5. With several opponents, a loss requires cooperation of the opponents, so its
             * value is halved. */
            if (halve_losses) {
                if (value > best_reply_value) best_reply_value = value;
                if (value <= -PROVEN) {
                    if (worst_losing_value < -WIN || value < worst_losing_value)
                        worst_losing_value = value;
                    value /= 2;
                }
            }
            /* Step 6. Store the worst reply, and cut off if its value falls to alpha. */
            if (value < worst) {
                worst = value;
                killer_replies[s] = moves[s] + 1;
                best_reply = s << 2 | moves[s];
            }
            if (worst < beta) beta = worst;
            if (alpha >= beta) {
                int cell = search->next[head_of(search, pos, s)][moves[s]];
                if (cell != OFF_BOARD) search->history[s][cell] += depth * depth;
                break;
            }
        }
        moves[s] = options[s][0];
    }
    if (!has_reply) return search_after(search, pos, moves, depth, ply, alpha, beta);
    /* Our move is a proven loss only if every reply loses. */
    if (halve_losses && best_reply_value <= -PROVEN && worst > alpha) worst = worst_losing_value;
    /* Step 7. Save the result. */
    if (use_tt) tt_save(search, key, depth, ply, alpha, original_beta, worst, best_reply);
    return worst;
}

/* Returns the value of `pos` if we are to move (max node), or 0 if the search was stopped. */
static int max_node(Search *search, const Position *pos, int depth, int ply, int alpha, int beta) {
    uint64_t key = position_key(search, pos);
    TTEntry entry = {.move = 4};
    int original_alpha = alpha, best = -WIN, best_move = 0;
    /* Step 1. Probe the transposition table. */
    if (tt_cutoff(search, key, depth, ply, alpha, beta, &entry)) return entry.value;
    /* Step 2. Generate our moves; the move from the transposition table is first. */
    uint8_t options[4], moves[MAX_SNAKES] = {0};
    int count = generate_moves(search, pos, 0, entry.move, options);
    for (int i = 0; i < count; i++) {
        moves[0] = options[i];
        /* Step 3. Search the first move with the full window. Reduce all later moves and search
         * them with a null window. Search a move again at full depth and with the full window if it
         * may be better. */
        int value;
        if (i == 0 || depth < 2) {
            value = min_node(search, pos, key, moves, depth, ply, alpha, beta);
        } else {
            value = min_node(search, pos, key, moves, lmr_depth(depth), ply, alpha, alpha + 1);
            if (lmr_depth(depth) < depth && !search->stopped && value > alpha)
                value = min_node(search, pos, key, moves, depth, ply, alpha, alpha + 1);
            if (!search->stopped && value > alpha && value < beta)
                value = min_node(search, pos, key, moves, depth, ply, alpha, beta);
        }
        if (search->stopped) return 0;
        /* Step 4. Store the best move, and cut off if its value reaches beta. */
        if (value > best || i == 0) {
            best = value;
            best_move = options[i];
        }
        if (best > alpha) alpha = best;
        if (alpha >= beta) {
            int cell = search->next[head_of(search, pos, 0)][best_move];
            if (cell != OFF_BOARD) search->history[0][cell] += depth * depth;
            break;
        }
    }
    /* Step 5. Save the result. */
    tt_save(search, key, depth, ply, original_alpha, beta, best, best_move);
    return best;
}
