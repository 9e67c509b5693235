/* The functions that the engine's files share. */
#ifndef BATTLESNAKE_GAME_H
#define BATTLESNAKE_GAME_H

#include "cold.h"
#include "engine.h"
#include "rand.h"

/* One game as the rules and maps see it. */
typedef struct {
    const Layout *layout;
    const Rules *rules;
    Record *record;
    Cold *cold;
} Game;

/* ---- food.c ---- */

/* A list of cells in the order of the reference: column by column, each from the bottom. */
typedef struct {
    int count;
    int16_t cells[MAX_CELLS];
} CellList;

void add_food(Game *game, int cell);
void remove_food(Game *game, int cell); /* all entries on this cell */
void clear_food(Game *game);
void free_cells(const Game *game, bool spare_hazards, CellList *list);
/* The food of one turn, as most maps have it; rivers and islands spare the hazards. */
void standard_food(Game *game, bool spare_hazards);
/* The stream of this turn's food: seeded or fast. */
static inline void turn_rand(const Game *game, Rand *rand) {
    const Record *record = game->record;
    if (game->rules->seeded_food) {
        rand_seeded(rand, (int64_t)((uint64_t)record->seed + (uint64_t)record->turn));
    } else {
        rand_fast(rand, record->seed, record->turn);
    }
}
/* The stream of set-up and hazards: always the reference's. */
void game_rand(const Game *game, Rand *rand);

/* ---- hazards.c ---- */

void add_hazard(Game *game, int x, int y, int count);
void clear_hazards(Game *game);
/* Removes entry `index` of the list; the last entry takes its place. */
void swap_out_hazard(Game *game, int index);
int count_hazards(const Game *game);
/* Entries of the list at a point, on or off the board. */
int hazards_at(const Game *game, int x, int y);
/* Royale: all cells outside the rectangle left after the shrinks up to this turn. */
void royale_hazards(Game *game);

/* ---- start.c ---- */

/* An empty board of this size with dead, unplaced snakes; then the map sets it up and the rules run
 * once. Returns 0, or -1 where the map finds no place for snakes or food. */
int start_game(Game *game, int width, int height, int num_snakes, int64_t seed);
void clear_game(Game *game, int width, int height, int num_snakes, int64_t seed);
void put_snake(Game *game, int seat, int x, int y);
bool is_living_head(const Record *record, int x, int y);
void shuffle_points(Rand *rand, Point *points, int n);
void put_snakes_shuffled(Game *game, Rand *rand, Point *points, int n);
int place_snakes(Game *game, Rand *rand);
int standard_start(Game *game, Rand *rand);
int place_in_quadrants(Game *game, Rand *rand, const Point (*quadrants)[4], int places);
/* One food beside each snake, away from the centre; `refuse_taken` also refuses hazards, snakes. */
int food_beside_snakes(Game *game, Rand *rand, bool refuse_taken);
int start_food(Game *game, Rand *rand);

/* ---- rules.c ---- */

bool is_over(const Rules *rules, const Record *record);
/* The move straight on from neck to head, also across a border; UP where they coincide. */
int straight_on(int x, int y, int neck_x, int neck_y);
/* Puts the body of a living snake into the list, head first: `extent` points. */
void body_points(const Layout *layout, const Record *record, int seat, Point *points);

/* ---- maps.c ---- */

/* The food that a map's turn begins with: its own or none, standard_food, or that on cells without
 * hazards. */
enum { OWN_FOOD, FOOD, DRY_FOOD };

typedef struct Map {
    const char *name;
    uint8_t food;
    bool moves_hazards; /* whether the update changes hazards other than as royale does */
    int (*setup)(Game *game);
    void (*update)(Game *game);            /* after the food; NULL: nothing */
    int (*check_turn)(const Game *game); /* NULL, or the HALT_... of a turn that cannot be played */
    const void *plan; /* what else its hooks need */
} Map;

const Map *find_map(const char *name); /* NULL if there is none */

/* ---- convert.c ---- */

/* A game as a list of int32 words, to and from Python; see convert.c for the order. Returns how many
 * there are; with NULL that is all. */
size_t export_game(const Game *game, int32_t *words);
/* Returns NULL, or why these words cannot be held (a static text or `message`). On an error the
 * game is left empty and over. */
const char *import_game(Game *game, int64_t seed, const int32_t *words, size_t count,
                        char *message, size_t message_size);

#endif
