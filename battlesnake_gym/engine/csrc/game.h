/* Types and functions that several C files of the engine use. */
#ifndef BATTLESNAKE_GAME_H
#define BATTLESNAKE_GAME_H

#include "side_data.h"
#include "engine.h"
#include "rand.h"

/* Functions that are inlined even into code for larger vectors. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* One game in the form that the rules and maps use. */
typedef struct {
    const Layout *layout;
    const Rules *rules;
    Record *record;
    SideData *side;
} Game;

/* The following functions are implemented in food.c. */

/* A list of cells in the official engine's order: by column, and from the bottom up. */
typedef struct {
    int count;
    int16_t cells[MAX_CELLS];
} CellList;

/* Adds one food, even if the cell already contains food. */
void add_food(Game *game, int cell);
/* Removes all food from `cell`. */
void remove_food(Game *game, int cell);
/* Removes all food from the board. */
void clear_food(Game *game);
/* Lists the cells on which food may appear; `spare_hazards` excludes hazards. */
void free_cells(const Game *game, bool spare_hazards, CellList *list);
/* Adds the food of one turn by the standard rules; on river and island maps, food avoids hazards.
 */
void standard_food(Game *game, bool spare_hazards);
/* Starts the random stream of this turn's food, official or fast. */
static inline void turn_rand(const Game *game, Rand *rand) {
    const Record *record = game->record;
    if (game->rules->official_food_rng) {
        rand_seeded(rand, (int64_t)((uint64_t)record->seed + (uint64_t)record->turn));
    } else {
        rand_fast(rand, record->seed, record->turn);
    }
}
/* Starts the random stream of map setup and hazards, which is always the official stream. */
void game_rand(const Game *game, Rand *rand);

/* The following functions are implemented in hazards.c. */

/* Appends `count` hazards at a point, on or off the board. */
void add_hazard(Game *game, int x, int y, int count);
/* Removes all hazards. */
void clear_hazards(Game *game);
/* Removes entry `index` of the list, and moves the last entry to this index. */
void swap_out_hazard(Game *game, int index);
/* Returns the number of entries of the hazard list. */
int count_hazards(const Game *game);
/* Returns the number of list entries at a point, on or off the board. */
int hazards_at(const Game *game, int x, int y);
/* Sets the hazards of the royale rules: all cells outside this turn's rectangle. */
void royale_hazards(Game *game);

/* The following functions are implemented in start.c. */

/* Starts a game: the map sets up an empty board of this size. Returns 0, or -1 if the map finds no
 * cells for snakes or food. */
int start_game(Game *game, int width, int height, int num_snakes, int64_t seed);
/* Resets a game to an empty board on which all snakes are eliminated and not placed. */
void clear_game(Game *game, int width, int height, int num_snakes, int64_t seed);
/* Places a snake of START_LENGTH stacked segments. */
void put_snake(Game *game, int seat, int x, int y);
/* Returns whether a living snake has its head at this point. */
bool is_living_head(const Record *record, int x, int y);
/* Shuffles points like Go's Shuffle. */
void shuffle_points(Rand *rand, Point *points, int n);
/* Places the snakes on the first of the `n` points after a shuffle. */
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
/* Adds the initial food of the standard start; returns 0, or -1 if a cell is missing. */
int start_food(Game *game, Rand *rand);

/* The following functions are implemented in rules.c. */

/* Returns whether the number of living snakes ends the game. */
bool is_over(const Rules *rules, const Record *record);
/* Returns the move from neck to head, also across an edge; UP if both are on one cell. */
int straight_move(int x, int y, int neck_x, int neck_y);
/* Writes the `extent` distinct cells of a living snake, head first. */
void body_points(const Layout *layout, const Record *record, int seat, Point *points);

/* The following function is implemented in maps.c. */

/* Food at the start of a map's turn: only the map's update, the standard food, or standard food on
 * cells without hazards. */
enum { MAP_FOOD, STANDARD_FOOD, FOOD_OFF_HAZARDS };

/* A map and its hooks. */
typedef struct Map {
    const char *name;
    uint8_t food;
    bool moves_hazards; /* 1 if the update changes hazards in other ways than the royale rules */
    int (*setup)(Game *game);
    void (*update)(Game *game); /* runs after the food; may be NULL */
    /* Returns HALT_... if the turn cannot be played. May be NULL. */
    int (*check_turn)(const Game *game);
    const void *plan; /* parameters of the hooks */
} Map;

/* Returns the map with this name, or NULL. */
const Map *find_map(const char *name);

/* The following functions are implemented in state_words.c. */

/* Writes a game as int32 words in the order documented in state_words.c, and returns the number of
 * words. If `words` is NULL, the function only counts the words. */
size_t export_game(const Game *game, int32_t *words);
/* Reads a game from words. Returns NULL, or the reason for a rejection: a static string or
 * `message`. After an error, the game is empty and over. */
const char *import_game(Game *game, int64_t seed, const int32_t *words, size_t count,
                        char *message, size_t message_size);

#endif
