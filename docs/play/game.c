/* One game and the search, for a page in the browser: the engine's rules and the search's C compiled
 * to WebAssembly unchanged, and this door to them. Moves are 0 up, 1 down, 2 left, 3 right.
 *
 * JavaScript writes and reads the module's memory at the addresses that the functions give. */
#include <stdlib.h>
#include <string.h>

#include "../../battlesnake_gym/engine/csrc/game.h"
#include "../../battlesnake_gym/engine/csrc/masks.h"
#include "../../battlesnake_gym/engine/csrc/named.h"
#include "../../battlesnake_gym/engine/csrc/observe.h"
#include "../../battlesnake_gym/engine/csrc/tables.h"
#include "../../heuristics/battlesnake_heuristics/search/csrc/codes.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

static Layout layout;
static Rules rules;
static Game game;
static char *memory;
static int32_t *words;
static uint8_t *seen;
static uint8_t actions[MAX_SNAKES];
static char map_name[64];

/* Fills the engine's tables; before all else. */
void EXPORT(prepare)(void) {
    tables_init();
    named_init();
}

/* Where the name of the map, a C string, is written before `start`. */
char *EXPORT(map_at)(void) { return map_name; }

/* Begins a game; 0 where the map refuses the board or the number of snakes. */
int EXPORT(start)(int width, int height, int snakes, int64_t seed, int wrapped, int constrictor,
                  int royale, int food_chance, int minimum_food, int hazard_damage,
                  int shrink_every) {
    const Map *map = find_map(map_name);
    if (!map || width < 1 || width > MAX_SIDE || height < 1 || height > MAX_SIDE || snakes < 1 ||
        snakes > MAX_SNAKES)
        return 0;
    rules = (Rules){(uint8_t)wrapped, (uint8_t)constrictor, (uint8_t)royale, snakes == 1, 1,
                    food_chance, minimum_food, hazard_damage, shrink_every, map};
    layout = make_layout(width, height, snakes);
    free(memory);
    memory = calloc(1, layout.record_size + layout.cold_size);
    if (!memory) return 0;
    game = (Game){&layout, &rules, (Record *)memory, (Cold *)(memory + layout.record_size)};
    cold_init(&layout, game.cold);
    clear_game(&game, width, height, snakes, seed);
    return start_game(&game, width, height, snakes, seed) == 0;
}

/* Where the snakes' moves of the next turn are written, one byte each. */
uint8_t *EXPORT(actions_at)(void) { return actions; }

/* Plays a turn with them; 0 where the game is over or cannot go on. */
int EXPORT(turn)(void) {
    Record *record = game.record;
    const Map *map = rules.map;
    if (record->over || (map->check_turn && map->check_turn(&game))) return 0;
    step_game(&layout, &rules, record, game.cold, actions);
    return !record->halt;
}

int EXPORT(over)(void) { return game.record->over; }

/* The game as numbers, in the order of ../../battlesnake_gym/engine/csrc/convert.c. */
int32_t *EXPORT(words_at)(void) {
    free(words);
    words = malloc(sizeof(int32_t) * export_game(&game, NULL));
    if (words) export_game(&game, words);
    return words;
}

/* A move of the named snake of this kind (see named.h) in this seat. */
int EXPORT(named)(int seat, int kind) {
    uint8_t kinds[MAX_SNAKES] = {0}, moves[MAX_SNAKES];
    kinds[seat] = (uint8_t)kind;
    named_moves(&layout, &rules, game.record, kinds, moves);
    return moves[seat];
}

/* The moves, as bits, that the mask `forbidden+head` leaves to this seat. */
int EXPORT(allowed)(int seat) {
    static const uint8_t parts[] = {FAULT_WALL | FAULT_BODY | FAULT_HEALTH, FAULT_HEAD};
    return allowed_moves(&layout, &rules, game.record, seat, parts, 2, true);
}

/* What this seat sees: the planes `reach` of the whole board. */
uint8_t *EXPORT(seen_at)(int seat) {
    Observation reach = {VALUES_REACH, VIEW_BOARD, 1, layout.max_height, layout.max_width};
    free(seen);
    seen = malloc(observation_size(&reach) * (size_t)layout.max_snakes);
    if (!seen) return NULL;
    observe_game(&reach, &layout, NULL, game.record, seen);
    return seen + observation_size(&reach) * (size_t)seat;
}

/* The weights of battlesnake_heuristics/search/search.py in their order, and the numbers of the
 * evaluation that comes with the package, for the games that it was trained for: the build hands over
 * both. */
static const int32_t weights[WEIGHTS] = {SEARCH_WEIGHTS};
_Alignas(Network) static const uint8_t numbers[] = {
#embed "numbers"
};
_Static_assert(sizeof numbers == sizeof(Network), "these are not the numbers of a network");
static int32_t report[7];
static Answer answer;

/* Of the last thought: depth, positions valued, then the value of each of the four moves in
 * thousandths of a cell of territory (INT32_MIN: not looked at), and how long the line is. */
int32_t *EXPORT(report_at)(void) { return report; }

/* That line: for each turn MAX_SNAKES moves, of the snake that thought and then of the other living. */
uint8_t *EXPORT(line_at)(void) { return answer.line[0]; }

/* The position as the snake in this seat sees it: itself first, and without the dead. */
static Question seen_by(int seat) {
    const Record *record = game.record;
    static int32_t lengths[MAX_SNAKES], health[MAX_SNAKES];
    static uint16_t bodies[MAX_SNAKES * MAX_CELLS];
    uint16_t *cell = bodies;
    Question ask = {.width = record->width, .height = record->height, .wrapped = rules.wrapped,
                    .constrictor = rules.constrictor, .solo = rules.alone,
                    .damage = rules.hazard_damage, .lengths = lengths, .health = health,
                    .bodies = bodies, .food = record_food(&layout, record),
                    .hazards = record_hazards(&layout, record), .weights = weights,
                    .first_depth = 1, .max_depth = MAX_DEPTH};
    for (int i = 0; i < record->num_snakes; i++) {
        int s = i == 0 ? seat : i <= seat ? i - 1 : i; /* the one that thinks comes first */
        const Snake *snake = &record->snakes[s];
        if (!snake->alive) continue;
        Point points[MAX_CELLS + 1];
        body_points(&layout, record, s, points);
        for (int k = 0; k < snake->length; k++) {
            Point at = points[k < snake->extent ? k : snake->extent - 1];
            *cell++ = (uint16_t)cell_at(record, at.x, at.y);
        }
        lengths[ask.snakes] = snake->length;
        health[ask.snakes++] = snake->health;
    }
    return ask;
}

/* What this snake wins, 0 to 1, where the search plays on for all with `positions` a move, the first
 * `careful` turns with more (see selfplay.h), and food by chance of `seed`. */
double EXPORT(played_on)(int seat, int positions, int careful, int seed, int turns, int trained) {
    Player player = {weights, trained ? (const Network *)numbers : NULL, positions, 0};
    GamePlan plan = {.start = seen_by(seat), .food_chance = rules.food_spawn_chance, .planes = 1,
                     .seed = (uint64_t)seed, .careful = careful, .max_turns = turns};
    GameRecord record = {0};
    for (int s = 0; s < plan.start.snakes; s++) plan.player[s] = &player;
    code_for(plan.start.width * plan.start.height)->play_game(&plan, &record);
    free(record.rows);
    return record.points[0];
}

/* The search's move for the snake in this seat, in `seconds` at most, or after about `positions`
 * positions where those are not positive; `trained`: by the learned evaluation; `decoupled`: as the
 * champion plays, not as it judges. */
int EXPORT(think)(int seat, double seconds, int positions, int trained, int decoupled) {
    Question ask = seen_by(seat);
    ask.decoupled = decoupled;
    ask.seconds = seconds;
    ask.nodes = seconds > 0 ? 0 : positions;
    if (trained && ask.snakes > 1) ask.network = (const Network *)numbers;
    if (code_for(ask.width * ask.height)->search(&ask, &answer)) return 0;
    report[0] = answer.depth;
    report[1] = (int32_t)answer.evaluated;
    for (int move = 0; move < 4; move++)
        report[2 + move] = answer.searched[move] ? answer.scores[move] : INT32_MIN;
    report[6] = answer.line_length;
    return answer.move;
}
