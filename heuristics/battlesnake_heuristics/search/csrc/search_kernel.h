/* Implementation of a search kernel, for boards of up to WORDS * 64 cells. This template is
 * included once per board size and instruction set by files that define WORDS and KERNEL, the name
 * of the kernel. If FROZEN is 1, the template compiles the frozen search, whose moves never
 * change. */
#ifndef FROZEN
#define FROZEN 0
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "kernels.h"

#include "bitset.h"
#include "position.h"
#include "evaluate.h"
#include "alphabeta.h"

/* Returns the next output of splitmix64. */
static uint64_t next_random(uint64_t *state) { return mix64(*state += 0x9e3779b97f4a7c15ull); }

#include "decoupled_mcts.h"
#include "decoupled_search.h"

/* Returns the Zobrist key of object `thing` on a cell. The key is equal in every search. The frozen
 * search draws all keys from one random sequence. */
static uint64_t zobrist_key(uint64_t *state, int thing, int cell) {
    if (!FROZEN) *state = thing * MAX_CELLS + cell;
    return next_random(state);
}

/* Adds `count` bytes to the hash `key`. */
static uint64_t hash_bytes(uint64_t key, const void *bytes, size_t count) {
    const uint8_t *byte = bytes;
    for (; count >= 8; count -= 8, byte += 8) {
        uint64_t word;
        memcpy(&word, byte, 8);
        key = mix64(key + word);
    }
    for (; count; count--) key = mix64(key + *byte++ + 1);
    return key;
}

/* Returns a hash of the request data that affect values: rules, hazards, weights and network. */
static uint64_t hash_request(const SearchRequest *request) {
    int rules[] = {request->width,       request->height, request->snakes, request->wrapped,
                   request->constrictor, request->solo,   request->damage};
    uint64_t key = hash_bytes(1, rules, sizeof rules);
    key = hash_bytes(key, request->hazards, request->width * request->height);
    key = hash_bytes(key, request->weights, NUM_WEIGHTS * sizeof *request->weights);
    return request->network ? hash_bytes(key, request->network, sizeof *request->network) : key;
}

/* Fills the tables that depend only on the board. */
static void init_board(Search *search) {
    const SearchRequest *request = search->request;
    int width = request->width, height = request->height;
    uint64_t state = 1;
    search->board_fraction_scale = (512 * 65536 + search->cells - 1) / search->cells;
    for (int cell = 0; cell < search->cells; cell++) {
        int x = cell % width, y = cell / width;
        search->x[cell] = x;
        search->y[cell] = y;
        int edges = min_int(x, width - 1 - x) + min_int(y, height - 1 - y);
        search->centrality[cell] = request->wrapped ? 256 : edges * 512 / (width + height);
        bits_add(&search->board, cell);
        bits_add(&search->cell_bits[cell], cell);
        if (x == 0) bits_add(&search->left_column, cell);
        if (x == width - 1) bits_add(&search->right_column, cell);
        if (request->hazards[cell]) bits_add(&search->hazard, cell);
        int wrap = request->wrapped;
        uint16_t *next = search->next[cell];
        next[0] = y + 1 < height ? cell + width : wrap ? x : OFF_BOARD;
        next[1] = y > 0 ? cell - width : wrap ? cell + width * (height - 1) : OFF_BOARD;
        next[2] = x > 0 ? cell - 1 : wrap ? cell + width - 1 : OFF_BOARD;
        next[3] = x + 1 < width ? cell + 1 : wrap ? cell - width + 1 : OFF_BOARD;
        search->food_key[cell] = zobrist_key(&state, 0, cell);
        for (int s = 0; s < request->snakes; s++) {
            search->body_key[s][cell] = zobrist_key(&state, 1 + 2 * s, cell);
            search->head_key[s][cell] = zobrist_key(&state, 2 + 2 * s, cell);
        }
    }
}

/* Adds snake `s` with `length` segments to the root position; `cells` starts with the head. */
static void place_snake(Search *search, Position *root, int s, const uint16_t *cells, int length) {
    Body *body = &root->snake[s];
    int stacked = 0;
    while (stacked + 1 < length && cells[length - 1 - stacked] == cells[length - 2 - stacked])
        stacked++;
    int num_cells = length - stacked;
    for (int i = 0; i < num_cells; i++) {
        search->ring[s][num_cells - 1 - i] = cells[i];
        if (!bits_has(&root->occupied, cells[i])) root->hash ^= search->body_key[s][cells[i]];
        bits_add(&root->occupied, cells[i]);
    }
    *body = (Body){.head = num_cells - 1, .stacked = stacked, .length = length, .alive = 1};
    body->health = search->request->health[s];
    root->hash ^= search->head_key[s][cells[0]];
    root->living++;
}

/* Builds the root position of the request. */
static void init_root(Search *search, Position *root) {
    const SearchRequest *request = search->request;
    const uint16_t *cells = request->bodies;
    memset(root, 0, sizeof *root);
    for (int s = 0; s < request->snakes; cells += request->lengths[s++])
        if (request->health[s]) place_snake(search, root, s, cells, request->lengths[s]);
    for (int cell = 0; cell < search->cells; cell++)
        if (request->food[cell]) {
            bits_add(&root->food, cell);
            root->hash ^= search->food_key[cell];
        }
}

#define LOSS_IN_ONE (1 - WIN) /* value of a move after which a reply can eliminate us */

/* Returns whether our move at the root eliminates us by hunger or hazard, regardless of the
 * opponents' replies. */
static int dies_regardless(const Search *search, const Position *root, int move) {
    int cell = search->next[head_of(search, root, 0)][move];
    return !health_after(search, root, root->snake[0].health, cell);
}

/* Breaks ties between moves that may lose immediately. Returns whether `other` loses by hunger or
 * hazard in any case, and `move` does not. */
static int is_safer_last_move(const Search *search, const Position *root, int move, int other) {
    return !FROZEN && !dies_regardless(search, root, move) &&
           dies_regardless(search, root, other);
}

/* Searches all our moves to `depth` and moves the best move to the front of `options`. Returns 1 if
 * the depth was completed. If the search was stopped, the function returns 0. `result` then
 * contains a better move of this depth, or the result of the previous depth. */
static int search_root(Search *search, const Position *root, int depth, uint8_t *options, int count,
                       SearchResult *result) {
    uint8_t moves[MAX_SNAKES] = {0}, has_score[4] = {0};
    int32_t scores[4];
    int best = -WIN - 1, best_index = 0;
    int exact_scores = search->request->exact_scores;
    uint64_t key = position_key(search, root);
    for (int i = 0; i < count; i++) {
        moves[0] = options[i];
        int value = best + 1;
        if (i > 0 && !exact_scores)
            value = min_node(search, root, key, moves, depth, 1, best, best + 1);
        if (!search->stopped && (exact_scores || value > best))
            value = min_node(search, root, key, moves, depth, 1, exact_scores ? -WIN - 1 : best,
                             WIN + 1);
        if (search->stopped) break;
        scores[options[i]] = value;
        has_score[options[i]] = 1;
        if (value > best || (value == best && value == LOSS_IN_ONE &&
                             is_safer_last_move(search, root, options[i], options[best_index]))) {
            best = value;
            best_index = i;
        }
    }
    if (search->stopped && (exact_scores || best_index == 0) && depth > 1) return 0;
    uint8_t move = options[best_index];
    memmove(options + 1, options, best_index);
    options[0] = move;
    result->move = move;
    result->proven = has_score[move] && abs(best) >= PROVEN;
    memcpy(result->scores, scores, sizeof scores);
    memcpy(result->has_score, has_score, sizeof has_score);
    return !search->stopped;
}

/* Probes the transposition table for a position. */
static int tt_probe_position(const Search *search, const Position *pos, TTEntry *entry) {
    return tt_probe(search->table, search->table_mask, position_key(search, pos), entry);
}

/* Writes to `moves` the reply to `moves[0]`, by one deviating opponent, with the lowest value in
 * the transposition table. `to` becomes the position after that reply. Returns whether the table
 * contained a reply. */
static int worst_reply_in_tt(Search *search, const Position *pos, uint8_t *moves, Position *to) {
    uint8_t options[MAX_SNAKES][4], chosen[MAX_SNAKES];
    int worst = WIN + 1, counts[MAX_SNAKES] = {0};
    for (int s = 1; s < search->request->snakes; s++)
        if (pos->snake[s].alive) {
            counts[s] = generate_moves(search, pos, s, 4, options[s]);
            moves[s] = options[s][0];
        }
    memcpy(chosen, moves, sizeof chosen);
    for (int s = 1; s < search->request->snakes; s++) {
        uint8_t first_move = moves[s];
        for (int i = 0; i < counts[s]; i++) {
            moves[s] = options[s][i];
            make_turn(search, pos, moves, to);
            TTEntry entry;
            if (tt_probe_position(search, to, &entry) && entry.value < worst) {
                worst = entry.value;
                memcpy(chosen, moves, sizeof chosen);
            }
        }
        moves[s] = first_move;
    }
    memcpy(moves, chosen, sizeof chosen);
    make_turn(search, pos, moves, to);
    return worst <= WIN || search->request->snakes == 1;
}

/* Extracts the principal variation after our first move `move` from the transposition table. */
static void extract_line(Search *search, const Position *root, int move, SearchResult *result) {
    Position pos = *root, to;
    Line *line = &result->lines[move];
    while (line->length < result->depth) {
        uint8_t *moves = line->moves[line->length++];
        memset(moves, 4, MAX_SNAKES);
        moves[0] = move;
        if (!worst_reply_in_tt(search, &pos, moves, &to)) return;
        /* The value of a draw may be 0. */
        if (!to.snake[0].alive || terminal_value(search, &to, 1)) return;
        TTEntry entry;
        if (!tt_probe_position(search, &to, &entry)) return;
        move = entry.move;
        memcpy(&pos, &to, sizeof pos);
    }
}

/* Returns whether the frozen search has used 60% of its time budget. The search then stops, because
 * the next depth rarely completes in time. */
static int frozen_out_of_time(const Search *search) {
    const SearchRequest *request = search->request;
    return FROZEN && request->time_limit_s > 0 &&
           search->deadline - clock_seconds(search) < 0.4 * request->time_limit_s;
}

/* Iterative deepening: increases the depth until a limit of the request is reached. */
static void iterative_deepening(Search *search, const Position *root, SearchResult *result) {
    const SearchRequest *request = search->request;
    uint8_t options[4];
    int count = generate_moves(search, root, 0, 4, options);
    result->move = options[0];
    /* With several opponents, a proven value may still change at greater depth. */
    for (int depth = request->first_depth; depth <= request->max_depth; depth++) {
        if (result->proven && (root->living <= 2 || FROZEN)) break;
        if (!search_root(search, root, depth, options, count, result)) break;
        result->depth = depth;
        if (count == 1 && request->exact_scores < EXACT_FORCED) break; /* a forced move */
        if (frozen_out_of_time(search)) break;
    }
}

/* Copies the network to cache lines of its own. If vectors of weights cross cache lines, an
 * evaluation takes longer. */
static void copy_network(Search *search) {
    uintptr_t address = (uintptr_t)search->layers_memory;
    char *to = search->layers_memory + (-address & (CACHE_LINE - 1));
    for (int i = 0; i < STACKS; i++, to += LAYERS_STRIDE)
        search->layers[i] = memcpy(to, &search->request->network->stack[i], sizeof(Layers));
}

/* Runs decoupled MCTS or alpha-beta search and fills `result`. Returns 0, or -1 if out of
 * memory. */
static int run_search(Search *search, const Position *root, SearchResult *result) {
    int failed = 0;
    search->deadline = clock_seconds(search) + search->request->time_limit_s;
    memset(result, 0, sizeof *result);
    if (search->request->network) copy_network(search);
    if (!FROZEN && uses_decoupled(search, root))
        failed = run_decoupled(search, root, result);
    else
        iterative_deepening(search, root, result);
    result->leaf_evals = search->leaf_evals;
    result->nodes = search->nodes;
    return failed;
}

/* Allocates a search for the request; returns NULL if out of memory. The caller frees the
 * search. */
static Search *new_search(const SearchRequest *request) {
    Search *search = calloc(1, sizeof *search);
    if (!search) return NULL;
    search->request = request;
    search->cells = request->width * request->height;
    search->clock = search_uses_cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    search->network_kernel = best_network_kernel();
    init_board(search);
    return search;
}

/* Allocates a search and builds its root position; returns NULL if out of memory. */
static Search *new_search_at_root(const SearchRequest *request, Position *root) {
    Search *search = new_search(request);
    if (search) init_root(search, root);
    return search;
}

/* Converts a position to explicit bodies. */
static void export_position(const Search *search, const Position *pos, RulesPosition *position) {
    memset(position, 0, sizeof *position);
    position->key = position_key(search, pos);
    for (int cell = 0; cell < search->cells; cell++)
        position->food[cell] = bits_has(&pos->food, cell);
    for (int s = 0; s < search->request->snakes; s++) {
        const Body *body = &pos->snake[s];
        if (!body->alive) continue;
        position->alive[s] = 1;
        position->health[s] = body->health;
        position->length[s] = body->length;
        for (int i = 0; i < body->length; i++) {
            unsigned ring_index = i < body->length - body->stacked ? body->head - i : body->tail;
            position->body[s][i] = segment(search, s, ring_index);
        }
    }
}

/* Returns the number of table slots for a search of `max_nodes` nodes, which is about twice the
 * number of nodes. A larger table takes longer to clear. */
static uint32_t tt_slots_for(int64_t max_nodes) {
    uint32_t size = 1024;
    while (size < TT_SLOTS && size < 2 * max_nodes) size *= 2;
    return size;
}

/* Implements Kernel.play_turns. */
static int play_turns(const SearchRequest *request, const uint8_t *moves, int turns,
                      RulesPosition *position) {
    Position pos, to;
    Search *search = new_search_at_root(request, &pos);
    if (!search) return -1;
    for (int turn = 0; turn < turns && pos.living; turn++, moves += request->snakes) {
        make_turn(search, &pos, moves, &to);
        memcpy(&pos, &to, sizeof pos);
    }
    export_position(search, &pos, position);
    free(search);
    return 0;
}

/* Attaches a transposition table:
 *
 * - the table of the frozen search;
 * - a new table, for a search limited by nodes;
 * - otherwise, the shared table with the request hashed into the keys.
 *
 * The table is NULL if out of memory. */
static void attach_tt(Search *search, Position *root) {
    const SearchRequest *request = search->request;
    uint32_t size = FROZEN               ? FROZEN_TT_SLOTS
                    : request->max_nodes ? tt_slots_for(request->max_nodes)
                                         : TT_SLOTS;
    search->table_mask = size - 1;
    if (FROZEN) {
        search->table = tt_borrow_frozen(&root->hash);
    } else if (request->max_nodes) { /* a new table: equal requests give equal results */
        search->table = calloc(size, sizeof(TTSlot));
    } else {
        search->table = tt_shared();
        root->hash ^= hash_request(request);
    }
}

/* Implements Kernel.search. */
static int search_position(const SearchRequest *request, SearchResult *result) {
    Position root;
    Search *search = new_search_at_root(request, &root);
    if (!search) return -1;
    attach_tt(search, &root);
    int failed = search->table ? run_search(search, &root, result) : -1;
    int has_tree_line = failed || result->lines[result->move].length;
    for (int move = 0; move < 4 && !has_tree_line; move++)
        if (move == result->move || (request->exact_scores && result->has_score[move]))
            extract_line(search, &root, move, result);
    int status = failed ? failed : search->interrupted;
    if (FROZEN)
        tt_return_frozen(search->table);
    else if (request->max_nodes)
        free(search->table);
    free(search);
    return status;
}

#include "self_play_kernel.h"

/* The frozen search provides only `search`. */
const Kernel KERNEL = {search_position, FROZEN ? NULL : play_turns,
                       FROZEN ? NULL : play_whole_game, FROZEN ? NULL : inputs_of_request};
