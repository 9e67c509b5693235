/* Functions that the engine's files share. */
#ifndef BATTLESNAKE_GAME_H
#define BATTLESNAKE_GAME_H

#include "side_data.h"
#include "engine.h"
#include "rand.h"

/* One game as the rules and maps see it. */
typedef struct {
    const Layout *layout;
    const Rules *rules;
    Record *record;
    SideData *side;
} Game;

/* Implemented in food.c. */

/* A list of cells in the official engine's order: column by column, from the bottom up. */
typedef struct {
    int count;
    int16_t cells[MAX_CELLS];
} CellList;

/* Adds a food, also on a cell that has one. */
void add_food(Game *game, int cell);
/* Removes all food on this cell. */
void remove_food(Game *game, int cell);
/* Removes all food. */
void clear_food(Game *game);
/* Lists the cells where food may appear; `spare_hazards` excludes hazards. */
void free_cells(const Game *game, bool spare_hazards, CellList *list);
/* Adds the food of one turn by the standard rules; rivers and islands exclude the hazards. */
void standard_food(Game *game, bool spare_hazards);
/* Starts the random stream of this turn's food: official or fast. */
static inline void turn_rand(const Game *game, Rand *rand) {
    const Record *record = game->record;
    if (game->rules->official_food_rng) {
        rand_seeded(rand, (int64_t)((uint64_t)record->seed + (uint64_t)record->turn));
    } else {
        rand_fast(rand, record->seed, record->turn);
    }
}
/* Starts the random stream of map setup and hazards, always the official one. */
void game_rand(const Game *game, Rand *rand);

/* Implemented in hazards.c. */

/* Appends `count` hazards at a point, on or off the board. */
void add_hazard(Game *game, int x, int y, int count);
/* Removes all hazards. */
void clear_hazards(Game *game);
/* Removes entry `index` of the list; the last entry takes its place. */
void swap_out_hazard(Game *game, int index);
/* Returns the number of entries of the hazard list. */
int count_hazards(const Game *game);
/* Returns the number of list entries at a point, on or off the board. */
int hazards_at(const Game *game, int x, int y);
/* Sets the hazards of the royale rules: all cells outside the rectangle that is left on this
 * turn. */
void royale_hazards(Game *game);

/* Implemented in start.c. */

/* Starts a game: the map sets up an empty board of this size. Returns 0, or -1 if the map finds no
 * place for snakes or food. */
int start_game(Game *game, int width, int height, int num_snakes, int64_t seed);
/* Resets a game to an empty board with eliminated, unplaced snakes. */
void clear_game(Game *game, int width, int height, int num_snakes, int64_t seed);
/* Places a snake of START_LENGTH stacked segments. */
void put_snake(Game *game, int seat, int x, int y);
/* Returns whether a living snake has its head at this point. */
bool is_living_head(const Record *record, int x, int y);
/* Shuffles points like Go's Shuffle. */
void shuffle_points(Rand *rand, Point *points, int n);
/* Places the snakes on the first of these n points, shuffled. */
void put_snakes_shuffled(Game *game, Rand *rand, Point *points, int n);
/* Places the snakes by the standard rules; returns 0, or -1 if they do not fit. */
int place_snakes(Game *game, Rand *rand);
/* Places snakes and food by the standard rules; returns 0, or -1 if they do not fit. */
int standard_start(Game *game, Rand *rand);
/* Places the snakes on random points of four quadrants in turn; returns 0, or -1 if they do not
 * fit. */
int place_in_quadrants(Game *game, Rand *rand, const Point (*quadrants)[4], int places);
/* Adds one food diagonally beside each snake, away from the center; `refuse_taken` also excludes
 * hazards and snakes. Returns 0, or -1 if there is no cell. */
int food_beside_snakes(Game *game, Rand *rand, bool refuse_taken);
/* Adds the food of the standard start; returns 0, or -1 if it does not fit. */
int start_food(Game *game, Rand *rand);

/* Implemented in rules.c. */

/* Returns whether the game is over by the number of living snakes. */
bool is_over(const Rules *rules, const Record *record);
/* Returns the move from neck to head, also across a border; UP if they coincide. */
int straight_move(int x, int y, int neck_x, int neck_y);
/* Writes the `extent` distinct cells of a living snake, head first. */
void body_points(const Layout *layout, const Record *record, int seat, Point *points);

/* Implemented in maps.c. */

/* The food with which a map's turn begins: the map's own or none, the standard food, or standard
 * food on cells without hazards. */
enum { MAP_FOOD, STANDARD_FOOD, FOOD_OFF_HAZARDS };

/* A map and its hooks. */
typedef struct Map {
    const char *name;
    uint8_t food;
    bool moves_hazards; /* the update changes hazards other than by the royale rules */
    int (*setup)(Game *game);
    void (*update)(Game *game); /* runs after the food; may be NULL */
    /* Returns HALT_... if the turn cannot be played; may be NULL. */
    int (*check_turn)(const Game *game);
    const void *plan; /* parameters of the hooks */
} Map;

/* Returns the map of this name, or NULL. */
const Map *find_map(const char *name);

/* Implemented in state_words.c. */

/* Writes a game as int32 words, in the order documented in state_words.c; returns their number.
 * With NULL it only counts them. */
size_t export_game(const Game *game, int32_t *words);
/* Reads a game from words. Returns NULL, or the reason why they are rejected: a static string or
 * `message`. After an error the game is empty and over. */
const char *import_game(Game *game, int64_t seed, const int32_t *words, size_t count,
                        char *message, size_t message_size);

#endif
