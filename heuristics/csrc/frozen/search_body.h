/* One search, from question to answer, for boards of up to WORDS * 64 cells. Included once for each
 * size by the files that define WORDS and SEARCH, the name of the function. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "search.h"

#include "bits.h"
#include "position.h"
#include "evaluate.h"
#include "tree.h"

static uint64_t draw_key(uint64_t *state) { return mixed(*state += 0x9e3779b97f4a7c15ull); }

static void prepare_board(Search *search) {
    const Question *ask = search->ask;
    int width = ask->width, height = ask->height;
    uint64_t state = 1;
    for (int cell = 0; cell < search->cells; cell++) {
        int x = cell % width, y = cell / width;
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
        search->food_key[cell] = draw_key(&state);
        for (int s = 0; s < ask->snakes; s++) {
            search->body_key[s][cell] = draw_key(&state);
            search->head_key[s][cell] = draw_key(&state);
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
        place_snake(search, root, s, cells, ask->lengths[s]);
    for (int cell = 0; cell < search->cells; cell++)
        if (ask->food[cell]) {
            bits_add(&root->food, cell);
            root->hash ^= search->food_key[cell];
        }
}

/* Searches every move of ours to `depth`; the best first next time. Returns 0 when stopped: then a
 * better move that was found counts, and else the answer stays that of the depth before. */
static int deepen(Search *search, const Position *root, int depth, uint8_t *options, int count,
                  Answer *answer) {
    uint8_t moves[MAX_SNAKES] = {0}, searched[4] = {0};
    int32_t scores[4];
    int best = -WIN - 1, best_at = 0;
    for (int i = 0; i < count; i++) {
        moves[0] = options[i];
        int value = best + 1;
        if (i > 0) value = worst_answer(search, root, moves, depth, 1, best, best + 1);
        if (!search->stopped && value > best)
            value = worst_answer(search, root, moves, depth, 1, best, WIN + 1);
        if (search->stopped) break;
        scores[options[i]] = value;
        searched[options[i]] = 1;
        if (value > best) {
            best = value;
            best_at = i;
        }
    }
    if (search->stopped && best_at == 0 && depth > 1) return 0;
    uint8_t move = options[best_at];
    memmove(options + 1, options, best_at);
    options[0] = move;
    answer->move = move;
    answer->proven = searched[move] && abs(best) >= PROVEN;
    memcpy(answer->scores, scores, sizeof scores);
    memcpy(answer->searched, searched, sizeof searched);
    return !search->stopped;
}

static const Entry *known(const Search *search, const Position *at) {
    uint64_t key = position_key(search, at);
    const Entry *entry = &search->table[key & (TABLE_SIZE - 1)];
    return entry->key == key ? entry : NULL;
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
            const Entry *entry = known(search, to);
            if (entry && entry->value < worst) {
                worst = entry->value;
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
        if (!worst_known(search, &at, moves, &to) || decided(search, &to, 1, 0)) return;
        const Entry *entry = known(search, &to);
        if (!entry) return;
        move = entry->move;
        memcpy(&at, &to, sizeof at);
    }
}

/* Empties the table for the next call. */
static void clear(Workspace *workspace) {
    if (workspace->writes > MOST_WRITTEN)
        memset(workspace->table, 0, sizeof workspace->table);
    else
        for (uint32_t i = 0; i < workspace->writes; i++)
            workspace->table[workspace->written[i]] = (Entry){0};
    workspace->writes = 0;
}

int SEARCH(const Question *question, Answer *answer) {
    Position root;
    uint8_t options[4];
    Search *search = calloc(1, sizeof *search);
    if (!search) return -1;
    search->ask = question;
    search->table = question->workspace->table;
    search->cells = question->width * question->height;
    search->deadline = seconds_now() + question->seconds;
    prepare_board(search);
    prepare_root(search, &root);
    memset(answer, 0, sizeof *answer);
    int count = moves_of(search, &root, 0, 4, options);
    answer->move = options[0];
    for (int depth = 1; depth <= question->max_depth && !answer->proven; depth++) {
        if (!deepen(search, &root, depth, options, count, answer)) break;
        answer->depth = depth;
        if (count == 1) break; /* forced */
        /* the next depth takes several times as long as all before it: it would not be finished */
        if (question->seconds > 0 && search->deadline - seconds_now() < 0.4 * question->seconds) break;
    }
    trace_line(search, &root, answer);
    answer->evaluated = search->evaluated;
    answer->visited = search->visited;
    clear(question->workspace);
    free(search);
    return 0;
}
