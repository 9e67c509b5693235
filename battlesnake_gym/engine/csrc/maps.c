/* Lookup of maps by name. */
#include "maps.h"

#include <string.h>

const Map *find_map(const char *name) {
    const Map *const files[] = {PLAIN_MAPS, RANDOM_MAPS, CLOCKED_MAPS, FIXED_MAPS, MAZE_MAPS};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        for (const Map *map = files[i]; map->name; map++) {
            if (!strcmp(map->name, name)) return map;
        }
    }
    return NULL;
}
