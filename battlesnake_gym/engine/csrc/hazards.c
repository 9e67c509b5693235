/* Hazards: the list, the plane, and the shrinking board of the royale rules. */
#include <string.h>

#include "game.h"

void add_hazard(Game *game, int x, int y, int count) {
    SideData *side = game->side;
    HazardRun *runs = side_hazard_runs(side), *last = &runs[side->num_runs - 1];
    if (side->num_runs && last->at.x == x && last->at.y == y && last->count + count <= UINT16_MAX) {
        last->count = (uint16_t)(last->count + count);
    } else if ((uint32_t)side->num_runs < side->max_runs && count <= UINT16_MAX) {
        runs[side->num_runs++] = (HazardRun){{(int8_t)x, (int8_t)y}, (uint16_t)count};
    } else {
        game->record->halt = HALT_HAZARD_LIST;
        return;
    }
    game->record->any_hazards = 1;
    if (on_board(game->record, x, y)) {
        uint8_t *layers = record_hazards(game->layout, game->record) + cell_at(game->record, x, y);
        *layers = (uint8_t)min_int(UINT8_MAX, *layers + count);
        game->record->hazard_changes++;
    } else {
        side->off_board += count;
    }
}

void clear_hazards(Game *game) {
    if (!game->record->any_hazards) return;
    memset(record_hazards(game->layout, game->record), 0,
           (size_t)(game->record->width * game->record->height));
    game->side->num_runs = 0;
    game->side->off_board = 0;
    game->record->any_hazards = 0;
    game->record->hazard_changes++;
}

int count_hazards(const Game *game) {
    const HazardRun *runs = side_hazard_runs(game->side);
    int count = 0;
    for (int i = 0; i < game->side->num_runs; i++) count += runs[i].count;
    return count;
}

int hazards_at(const Game *game, int x, int y) {
    const HazardRun *runs = side_hazard_runs(game->side);
    int count = 0;
    for (int i = 0; i < game->side->num_runs; i++) {
        if (runs[i].at.x == x && runs[i].at.y == y) count += runs[i].count;
    }
    return count;
}

/* The function expands all runs and compresses the list again; the lists of all callers are short.
 */
void swap_out_hazard(Game *game, int index) {
    HazardRun runs[MAX_CELLS];
    Point entries[MAX_CELLS];
    int num_runs = game->side->num_runs, count = 0;
    if (num_runs > MAX_CELLS || count_hazards(game) > MAX_CELLS) {
        game->record->halt = HALT_HAZARD_LIST;
        return;
    }
    memcpy(runs, side_hazard_runs(game->side), sizeof(HazardRun) * (size_t)num_runs);
    for (int i = 0; i < num_runs; i++) {
        for (int k = 0; k < runs[i].count; k++) entries[count++] = runs[i].at;
    }
    entries[index] = entries[--count];
    clear_hazards(game);
    for (int i = 0; i < count; i++) add_hazard(game, entries[i].x, entries[i].y, 1);
}

/* Computes the rectangle after `shrinks` shrinks from the first outputs of the game's random
 * stream. */
static void shrink_rectangle(Game *game, int shrinks, Point *low, Point *high) {
    Rand rand;
    game_rand(game, &rand);
    int left = 0, right = game->record->width - 1, bottom = 0, top = game->record->height - 1;
    for (int i = 0; i < shrinks; i++) {
        int side = rand_intn(&rand, 4);
        left += side == 0;
        right -= side == 1;
        bottom += side == 2;
        top -= side == 3;
        if (left > right || bottom > top) break; /* the rectangle is empty */
    }
    *low = (Point){(int8_t)left, (int8_t)bottom};
    *high = (Point){(int8_t)right, (int8_t)top};
}

void royale_hazards(Game *game) {
    Record *record = game->record;
    int shrinks = (record->turn + 1) / game->rules->shrink_every;
    bool map_interferes = game->rules->map && game->rules->map->moves_hazards;
    if (shrinks == game->side->shrunk && !map_interferes) return;
    game->side->shrunk = shrinks;
    clear_hazards(game);
    if (!shrinks) return;
    Point low, high;
    shrink_rectangle(game, shrinks, &low, &high);
    for (int x = 0; x < record->width; x++) {
        for (int y = 0; y < record->height; y++) {
            if (x < low.x || x > high.x || y < low.y || y > high.y) add_hazard(game, x, y, 1);
        }
    }
}
