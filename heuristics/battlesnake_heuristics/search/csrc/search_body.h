/* One search, from question to answer, for boards of up to WORDS * 64 cells. Included once for each
 * size and kind of processor by the files that define WORDS and CODE, the name of the whole. */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codes.h"

#include "bits.h"
#include "position.h"
#include "evaluate.h"
#include "tree.h"
#include "decoupled.h"

static uint64_t draw_key(uint64_t *state) { return mixed(*state += 0x9e3779b97f4a7c15ull); }

/* One key for each thing on each cell, the same for every search; in 2026 they were drawn in a row. */
static uint64_t key_of(const Question *ask, uint64_t *state, int thing, int cell) {
    if (!ask->of_2026) *state = thing * MAX_CELLS + cell;
    return draw_key(state);
}

static uint64_t key_of_bytes(uint64_t key, const void *bytes, size_t count) {
    const uint8_t *byte = bytes;
    for (; count >= 8; count -= 8, byte += 8) {
        uint64_t word;
        memcpy(&word, byte, 8);
        key = mixed(key + word);
    }
    for (; count; count--) key = mixed(key + *byte++ + 1);
    return key;
}

/* Of all that values depend on beside the position: the rules, the hazards, who began, and how an
 * end is valued. */
static uint64_t key_of_question(const Question *ask) {
    int rules[] = {ask->width, ask->height, ask->snakes, ask->wrapped, ask->constrictor,
                   ask->solo, ask->damage};
    uint64_t key = key_of_bytes(1, rules, sizeof rules);
    key = key_of_bytes(key, ask->hazards, ask->width * ask->height);
    key = key_of_bytes(key, ask->weights, WEIGHTS * sizeof *ask->weights);
    return ask->network ? key_of_bytes(key, ask->network, sizeof *ask->network) : key;
}

static void prepare_board(Search *search) {
    const Question *ask = search->ask;
    int width = ask->width, height = ask->height;
    uint64_t state = 1;
    search->share = (512 * 65536 + search->cells - 1) / search->cells;
    for (int cell = 0; cell < search->cells; cell++) {
        int x = cell % width, y = cell / width;
        search->x[cell] = x;
        search->y[cell] = y;
        int edges = smaller(x, width - 1 - x) + smaller(y, height - 1 - y);
        search->from_edge[cell] = ask->wrapped ? 256 : edges * 512 / (width + height);
        bits_add(&search->board, cell);
        if (x == 0) bits_add(&search->left_column, cell);
        if (x == width - 1) bits_add(&search->right_column, cell);
        if (ask->hazards[cell]) bits_add(&search->hazard, cell);
        int wrap = ask->wrapped;
        uint16_t *next = search->next[cell];
        next[0] = y + 1 < height ? cell + width : wrap ? x : OFF_BOARD;
        next[1] = y > 0 ? cell - width : wrap ? cell + width * (height - 1) : OFF_BOARD;
        next[2] = x > 0 ? cell - 1 : wrap ? cell + width - 1 : OFF_BOARD;
        next[3] = x + 1 < width ? cell + 1 : wrap ? cell - width + 1 : OFF_BOARD;
        search->food_key[cell] = key_of(ask, &state, 0, cell);
        for (int s = 0; s < ask->snakes; s++) {
            search->body_key[s][cell] = key_of(ask, &state, 1 + 2 * s, cell);
            search->head_key[s][cell] = key_of(ask, &state, 2 + 2 * s, cell);
        }
    }
}

static void place_snake(Search *search, Position *root, int s, const uint16_t *cells, int length) {
    Body *body = &root->snake[s];
    int stacked = 0;
    while (stacked + 1 < length && cells[length - 1 - stacked] == cells[length - 2 - stacked])
        stacked++;
    int kept = length - stacked;
    for (int i = 0; i < kept; i++) {
        search->ring[s][kept - 1 - i] = cells[i];
        if (!bits_has(&root->occupied, cells[i])) root->hash ^= search->body_key[s][cells[i]];
        bits_add(&root->occupied, cells[i]);
    }
    *body = (Body){.head = kept - 1, .stacked = stacked, .length = length, .alive = 1};
    body->health = search->ask->health[s];
    root->hash ^= search->head_key[s][cells[0]];
    root->living++;
}

static void prepare_root(Search *search, Position *root) {
    const Question *ask = search->ask;
    const uint16_t *cells = ask->bodies;
    memset(root, 0, sizeof *root);
    for (int s = 0; s < ask->snakes; cells += ask->lengths[s++])
        if (ask->health[s]) place_snake(search, root, s, cells, ask->lengths[s]);
    for (int cell = 0; cell < search->cells; cell++)
        if (ask->food[cell]) {
            bits_add(&root->food, cell);
            root->hash ^= search->food_key[cell];
        }
}

#define LOST_AT_ONCE (1 - WIN) /* the value of a move after which we may be dead */

static int kills(const Search *search, const Position *root, int move) {
    int cell = search->next[head_of(search, root, 0)][move];
    return !health_on(search, root, root->snake[0].health, cell);
}

/* Where every move may be our last: whether a rival may spare us after `move`, but hunger or a hazard
 * not after `other`. */
static int kinder(const Search *search, const Position *root, int move, int other) {
    return !search->ask->of_2026 && !kills(search, root, move) && kills(search, root, other);
}

/* Searches every move of ours to `depth`; the best first next time. Returns 0 when stopped: then a
 * better move that was found counts, and else the answer stays that of the depth before. */
static int deepen(Search *search, const Position *root, int depth, uint8_t *options, int count,
                  Answer *answer) {
    uint8_t moves[MAX_SNAKES] = {0}, searched[4] = {0};
    int32_t scores[4];
    int best = -WIN - 1, best_at = 0;
    int exact = search->ask->exact;
    uint64_t key = position_key(search, root);
    for (int i = 0; i < count; i++) {
        moves[0] = options[i];
        int value = best + 1;
        if (i > 0 && !exact)
            value = worst_answer(search, root, key, moves, depth, 1, best, best + 1);
        if (!search->stopped && (exact || value > best))
            value = worst_answer(search, root, key, moves, depth, 1, exact ? -WIN - 1 : best,
                                 WIN + 1);
        if (search->stopped) break;
        scores[options[i]] = value;
        searched[options[i]] = 1;
        if (value > best || (value == best && value == LOST_AT_ONCE &&
                             kinder(search, root, options[i], options[best_at]))) {
            best = value;
            best_at = i;
        }
    }
    if (search->stopped && (exact || best_at == 0) && depth > 1) return 0;
    uint8_t move = options[best_at];
    memmove(options + 1, options, best_at);
    options[0] = move;
    answer->move = move;
    answer->proven = searched[move] && abs(best) >= PROVEN;
    memcpy(answer->scores, scores, sizeof scores);
    memcpy(answer->searched, searched, sizeof searched);
    return !search->stopped;
}

static int known(const Search *search, const Position *at, Known *found) {
    return recall(search->table, search->table_mask, position_key(search, at), found);
}

/* Of the answers to `moves[0]`, one rival deviating at a time, the one that the table holds for the
 * worst; `to` becomes the position after it. Returns whether the table knew any. */
static int worst_known(Search *search, const Position *at, uint8_t *moves, Position *to) {
    uint8_t options[MAX_SNAKES][4], chosen[MAX_SNAKES];
    int worst = WIN + 1, counts[MAX_SNAKES] = {0};
    for (int s = 1; s < search->ask->snakes; s++)
        if (at->snake[s].alive) {
            counts[s] = moves_of(search, at, s, 4, options[s]);
            moves[s] = options[s][0];
        }
    memcpy(chosen, moves, sizeof chosen);
    for (int s = 1; s < search->ask->snakes; s++) {
        uint8_t usual = moves[s];
        for (int i = 0; i < counts[s]; i++) {
            moves[s] = options[s][i];
            play(search, at, moves, to);
            Known found;
            if (known(search, to, &found) && found.value < worst) {
                worst = found.value;
                memcpy(chosen, moves, sizeof chosen);
            }
        }
        moves[s] = usual;
    }
    memcpy(moves, chosen, sizeof chosen);
    play(search, at, moves, to);
    return worst <= WIN || search->ask->snakes == 1;
}

/* Reads the expected continuation out of the table. */
static void trace_line(Search *search, const Position *root, Answer *answer) {
    Position at = *root, to;
    int move = answer->move;
    while (answer->line_length < answer->depth) {
        uint8_t *moves = answer->line[answer->line_length++];
        memset(moves, 4, MAX_SNAKES);
        moves[0] = move;
        if (!worst_known(search, &at, moves, &to) || decided(search, &to, 1)) return;
        Known found;
        if (!known(search, &to, &found)) return;
        move = found.move;
        memcpy(&at, &to, sizeof at);
    }
}

/* In 2026: the next depth takes several times as long as all before it and would not be finished. */
static int too_late(const Search *search) {
    const Question *ask = search->ask;
    return ask->of_2026 && ask->seconds > 0 &&
           search->deadline - seconds_now(search) < 0.4 * ask->seconds;
}

/* Searches deeper and deeper from `root` until the question's limits are reached. */
static void think_deeper(Search *search, const Position *root, Answer *answer) {
    const Question *question = search->ask;
    uint8_t options[4];
    int count = moves_of(search, root, 0, 4, options);
    answer->move = options[0];
    /* among several rivals no loss is a proof: it may look otherwise from further on */
    for (int depth = question->first_depth; depth <= question->max_depth; depth++) {
        if (answer->proven && (root->living <= 2 || question->of_2026)) break;
        if (!deepen(search, root, depth, options, count, answer)) break;
        answer->depth = depth;
        if (count == 1 || too_late(search)) break; /* count 1: forced */
    }
}

/* Thinks as the position asks for; returns -1 without memory. */
static int think(Search *search, const Position *root, Answer *answer) {
    int failed = 0;
    search->deadline = seconds_now(search) + search->ask->seconds;
    memset(answer, 0, sizeof *answer);
    if (is_decoupled(search->ask, root))
        failed = think_decoupled(search, root, answer);
    else
        think_deeper(search, root, answer);
    answer->evaluated = search->evaluated;
    answer->visited = search->visited;
    return failed;
}

static Search *search_of(const Question *question) {
    Search *search = calloc(1, sizeof *search);
    if (!search) return NULL;
    search->ask = question;
    search->cells = question->width * question->height;
    search->clock = search_cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    search->network_code = fastest_network_code();
    prepare_board(search);
    return search;
}

static Search *begin(const Question *question, Position *root) {
    Search *search = search_of(question);
    if (search) prepare_root(search, root);
    return search;
}

static void tell(const Search *search, const Position *at, Outcome *outcome) {
    memset(outcome, 0, sizeof *outcome);
    outcome->key = position_key(search, at);
    for (int cell = 0; cell < search->cells; cell++) outcome->food[cell] = bits_has(&at->food, cell);
    for (int s = 0; s < search->ask->snakes; s++) {
        const Body *body = &at->snake[s];
        if (!body->alive) continue;
        outcome->alive[s] = 1;
        outcome->health[s] = body->health;
        outcome->length[s] = body->length;
        for (int i = 0; i < body->length; i++) {
            unsigned place = i < body->length - body->stacked ? body->head - i : body->tail;
            outcome->body[s][i] = segment(search, s, place);
        }
    }
}

/* Room for twice the positions: more would only have to be cleared. */
static uint32_t table_size(int64_t nodes) {
    uint32_t size = 1024;
    while (size < TABLE_SIZE && size < 2 * nodes) size *= 2;
    return size;
}

static int play_turns(const Question *question, const uint8_t *moves, int turns, Outcome *outcome) {
    Position at, to;
    Search *search = begin(question, &at);
    if (!search) return -1;
    for (int turn = 0; turn < turns && at.living; turn++, moves += question->snakes) {
        play(search, &at, moves, &to);
        memcpy(&at, &to, sizeof at);
    }
    tell(search, &at, outcome);
    free(search);
    return 0;
}

static void take_table(Search *search, Position *root) {
    const Question *ask = search->ask;
    uint32_t size = ask->of_2026 ? SIZE_OF_2026 : ask->nodes ? table_size(ask->nodes) : TABLE_SIZE;
    search->table_mask = size - 1;
    if (ask->of_2026) {
        search->table = borrow_table(&root->hash);
    } else if (ask->nodes) { /* a table of its own: the same question has the same answer */
        search->table = calloc(size, sizeof(Entry));
    } else {
        search->table = shared_table();
        root->hash ^= key_of_question(ask);
    }
}

static int search_for(const Question *question, Answer *answer) {
    Position root;
    Search *search = begin(question, &root);
    if (!search) return -1;
    take_table(search, &root);
    int failed = search->table ? think(search, &root, answer) : -1;
    if (!failed && !answer->line_length) trace_line(search, &root, answer);
    int result = failed ? failed : search->interrupted;
    if (question->of_2026)
        return_table(search->table);
    else if (question->nodes)
        free(search->table);
    free(search);
    return result;
}

#include "selfplay_body.h"

const Code CODE = {search_for, play_turns, play_whole_game, inputs_for};
