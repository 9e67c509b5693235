/* One game and the search for the web page. The code of the rules and of the search is compiled to
 * WebAssembly without changes. This file adds the exported functions. The moves are 0 (up), 1
 * (down), 2 (left) and 3 (right).
 *
 * JavaScript reads and writes the module's memory at the addresses that functions return. The
 * module contains one game, which all functions use. */
#include <stdlib.h>
#include <string.h>

#include "../../battlesnake_gym/engine/csrc/game.h"
#include "../../battlesnake_gym/engine/csrc/limited_view.h"
#include "../../battlesnake_gym/engine/csrc/masks.h"
#include "../../battlesnake_gym/engine/csrc/builtin_snakes.h"
#include "../../battlesnake_gym/engine/csrc/observe.h"
#include "../../battlesnake_gym/engine/csrc/map_layouts.h"
#include "../../heuristics/battlesnake_heuristics/search/csrc/kernels.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

static Layout layout;
static Rules rules;
static Game game;
static char *memory;
static int32_t *words;
static uint8_t *seen;
static uint8_t actions[MAX_SNAKES];
static char map_name[64];

/* Fills the tables of the engine. The page must call this function before all other functions. */
void EXPORT(prepare)(void) {
    map_layouts_init();
    builtin_init();
}

/* Returns the buffer for the name of the map, a C string of up to 63 bytes, which `start` reads. */
char *EXPORT(map_at)(void) { return map_name; }

/* Starts a game; returns 0 if the map rejects the board or the number of snakes. `view_reach` is the
 * view radius plus 1, or 0 without a limit. */
int EXPORT(start)(int width, int height, int snakes, int64_t seed, int wrapped, int constrictor,
                  int royale, int food_chance, int minimum_food, int hazard_damage,
                  int shrink_every, int view_reach) {
    const Map *map = find_map(map_name);
    if (!map || width < 1 || width > MAX_SIDE || height < 1 || height > MAX_SIDE || snakes < 1 ||
        snakes > MAX_SNAKES)
        return 0;
    rules = (Rules){(uint8_t)wrapped, (uint8_t)constrictor, (uint8_t)royale, snakes == 1, 1,
                    food_chance, minimum_food, hazard_damage, shrink_every, view_reach, map};
    layout = make_layout(width, height, snakes);
    free(memory);
    memory = calloc(1, layout.record_size + layout.side_data_size);
    if (!memory) return 0;
    game = (Game){&layout, &rules, (Record *)memory, (SideData *)(memory + layout.record_size)};
    side_data_init(&layout, game.side);
    clear_game(&game, width, height, snakes, seed);
    return start_game(&game, width, height, snakes, seed) == 0;
}

/* Returns the buffer for the snakes' moves on the next turn, one byte each. */
uint8_t *EXPORT(actions_at)(void) { return actions; }

/* Plays one turn with the moves in the buffer of `actions_at`. Returns 0 if the game is over or
 * cannot continue. */
int EXPORT(turn)(void) {
    Record *record = game.record;
    const Map *map = rules.map;
    if (record->over || (map->check_turn && map->check_turn(&game))) return 0;
    step_game(&layout, &rules, record, game.side, actions);
    return !record->halt;
}

/* Returns whether the game is over. */
int EXPORT(over)(void) { return game.record->over; }

/* Returns the state of the game as int32 words. The order of the words is defined in
 * ../../battlesnake_gym/engine/csrc/state_words.c. */
int32_t *EXPORT(words_at)(void) {
    free(words);
    words = malloc(sizeof(int32_t) * export_game(&game, NULL));
    if (words) export_game(&game, words);
    return words;
}

/* Returns the move of the built-in snake `kind` (an index, see builtin_snakes.h) at a seat. */
int EXPORT(named)(int seat, int kind) {
    uint8_t kinds[MAX_SNAKES] = {0}, moves[MAX_SNAKES];
    RecordBuffer view;
    kinds[seat] = (uint8_t)kind;
    if (rules.view_reach) limit_view(&game, seat, &view.record);
    builtin_moves(&layout, &rules, rules.view_reach ? &view.record : game.record, kinds, moves);
    return moves[seat];
}

/* Returns the moves that the action mask `fatal+head` allows at a seat, one bit per move. */
int EXPORT(allowed)(int seat) {
    static const uint8_t parts[] = {FAULT_WALL | FAULT_BODY | FAULT_HEALTH, FAULT_HEAD};
    return allowed_moves(&layout, &rules, game.record, seat, parts, 2, true);
}

/* Returns the moves of a living snake that are not certainly fatal, one bit per move, as
 * Board.safe_moves does. */
int EXPORT(safe)(int seat) {
    static const uint8_t parts[] = {FAULT_WALL | FAULT_BODY | FAULT_HEALTH};
    int moves = allowed_moves(&layout, &rules, game.record, seat, parts, 1, false);
    /* The mask allows every move if no move is safe. After turn 0, the neck is never safe. */
    return moves == 15 && game.record->turn ? 0 : moves;
}

/* Returns the observation of a seat: the territory planes of the whole board. The result is valid
 * until the next call. */
uint8_t *EXPORT(seen_at)(int seat) {
    Observation observation = {VALUES_TERRITORY, VIEW_BOARD, 1, layout.max_height,
                               layout.max_width};
    free(seen);
    seen = malloc(observation_size(&observation) * (size_t)layout.max_snakes);
    if (!seen) return NULL;
    observe_game(&observation, &layout, NULL, game.record, seen);
    return seen + observation_size(&observation) * (size_t)seat;
}

/* Weights of the handcrafted evaluation, in the order of battlesnake_heuristics/search/search.py,
 * and bytes of the learned evaluation. tools/build_site.py provides the weights and the bytes. */
static const int32_t weights[NUM_WEIGHTS] = {SEARCH_WEIGHTS};
_Alignas(Network) static const uint8_t numbers[] = {
#embed "numbers"
};
_Static_assert(sizeof numbers == sizeof(Network), "these are not the numbers of a network");
static int32_t report[1 + MAX_SNAKES];
static SearchResult result;

/* Returns the report of the last search: the depth in turns, the number of leaf evaluations, the
 * values of the four moves in 1/1000 cell of territory (INT32_MIN without a value), and the lengths
 * of the lines of the four moves in turns. */
int32_t *EXPORT(report_at)(void) { return report; }

/* Returns the line of the last search that starts with `move`: MAX_SNAKES moves per turn. The first
 * move is the move of the searching snake. The moves of the other living snakes follow. */
uint8_t *EXPORT(line_at)(int move) { return result.lines[move].moves[0]; }

/* Returns the position from the perspective of the snake at a seat. This snake is the first snake
 * of the position. Eliminated snakes are omitted. */
static SearchRequest seen_by(int seat) {
    const Record *record = game.record;
    static int32_t lengths[MAX_SNAKES], health[MAX_SNAKES];
    static uint16_t bodies[MAX_SNAKES * MAX_CELLS];
    uint16_t *cell = bodies;
    SearchRequest request = {
        .width = record->width, .height = record->height, .wrapped = rules.wrapped,
        .constrictor = rules.constrictor, .solo = rules.solo, .damage = rules.hazard_damage,
        .lengths = lengths, .health = health, .bodies = bodies,
        .food = record_food(&layout, record), .hazards = record_hazards(&layout, record),
        .weights = weights, .first_depth = 1, .max_depth = MAX_DEPTH};
    for (int i = 0; i < record->num_snakes; i++) {
        int s = i == 0 ? seat : i <= seat ? i - 1 : i; /* The searching snake is first. */
        const Snake *snake = &record->snakes[s];
        if (!snake->alive) continue;
        Point points[MAX_CELLS + 1];
        body_points(&layout, record, s, points);
        for (int k = 0; k < snake->length; k++) {
            Point at = points[k < snake->extent ? k : snake->extent - 1];
            *cell++ = (uint16_t)cell_at(record, at.x, at.y);
        }
        lengths[request.snakes] = snake->length;
        health[request.snakes++] = snake->health;
    }
    return request;
}

/* Plays a rollout (see analysis/mistakes.py): after the moves in the buffer of `actions_at`, the
 * search plays all snakes for `turns` turns. The search visits `nodes` nodes per move, and more nodes
 * during the first `node_doublings` turns (see self_play.h). `seed` determines the food. Returns the
 * score of the snake at a seat, in [0, 1], if the game is over for this snake. Otherwise, the report
 * contains the number of living snakes, and the value of each of them on the last turn in 1/1000 cell
 * of territory, starting with this snake. In the first case, the number is 0. */
double EXPORT(rollout)(int seat, int nodes, int node_doublings, int seed, int turns) {
    SelfPlayPlayer player = {weights, (const Network *)numbers, nodes, 0};
    uint8_t moves[MAX_SNAKES];
    int living = 0, first = -1, at = 0;
    for (int s = 0; s < game.record->num_snakes; s++) {
        if (!game.record->snakes[s].alive) continue;
        if (first < 0) first = s;
        if (s == seat) at = living;
        moves[living++] = actions[s];
    }
    SelfPlayConfig config = {
        .start = seen_by(first), .food_chance = rules.food_spawn_chance, .planes = 1,
        .seed = (uint64_t)seed, .node_doublings = node_doublings, .max_turns = turns,
        .first_moves = moves, .only_seat = at};
    SelfPlayGame record = {0};
    for (int s = 0; s < living; s++) config.player[s] = &player;
    kernel_for(config.start.width * config.start.height)->play_game(&config, &record);
    int count = 0;
    if (!record.finished && record.turns && record.points[at] > 0) count = 1;
    for (int64_t i = 0; count && i < record.count; i++) {
        const SelfPlayRow *row = &record.rows[i];
        if (row->turn != record.turns - 1 || !(record.points[row->seat] > 0)) continue;
        report[row->seat == at ? 1 : ++count] = row->value;
    }
    report[0] = count;
    free(record.rows);
    return record.points[at];
}

/* Searches for a move of the snake at a seat. The limit is `seconds`, or `nodes` nodes if
 * `seconds` is not positive. `trained` selects the learned evaluation. `decoupled` is the minimum
 * number of living snakes for decoupled MCTS, or 0. `exact` requests exact values and lines of all
 * moves (see SearchRequest), as analyses do. */
int EXPORT(think)(int seat, double seconds, int nodes, int trained, int decoupled, int exact) {
    SearchRequest request = seen_by(seat);
    request.min_decoupled_snakes = decoupled;
    request.exact_scores = exact;
    request.time_limit_s = seconds;
    request.max_nodes = seconds > 0 ? 0 : nodes;
    if (trained && request.snakes > 1) request.network = (const Network *)numbers;
    if (kernel_for(request.width * request.height)->search(&request, &result)) return 0;
    report[0] = result.depth;
    report[1] = (int32_t)result.leaf_evals;
    for (int move = 0; move < 4; move++) {
        report[2 + move] = result.has_score[move] ? result.scores[move] : INT32_MIN;
        report[6 + move] = result.lines[move].length;
    }
    return result.move;
}
