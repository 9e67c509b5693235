/* Kernels: the search compiled for three board sizes, each for any processor and for AVX2. All
 * kernels return equal results. The frozen search is compiled from the same sources with FROZEN
 * defined as 1. */
#ifndef KERNELS_H
#define KERNELS_H

#include "search.h"
#include "self_play.h"

/* Functions of one kernel. */
typedef struct {
    /* Searches the position of the request. Returns 0, -1 if out of memory, or 1 if interrupted.
     * Thread-safe; the function calls Python only through request->should_stop. */
    int (*search)(const SearchRequest *request, SearchResult *result);
    /* Plays `turns` turns, at most MAX_DEPTH, of `moves` [turns][snakes], and writes the final
     * position. Returns 0, or -1 if out of memory. The function stops early if all snakes are
     * eliminated. */
    int (*play_turns)(const SearchRequest *request, const uint8_t *moves, int turns,
                      RulesPosition *position);
    /* Plays one self-play game; returns 0, or -1 if out of memory. The caller frees game->rows in
     * both cases. */
    int (*play_game)(const SelfPlayConfig *config, SelfPlayGame *game);
    /* Writes the NUM_INPUTS network inputs of a position with 2 or more snakes; returns 0, or -1 if
     * out of memory. */
    int (*inputs)(const SearchRequest *request, int16_t *inputs);
} Kernel;

extern const Kernel small_plain, medium_plain, large_plain; /* up to 128, 384, 640 cells */
extern const Kernel small_avx2, medium_avx2, large_avx2;
/* Kernels of the frozen search, which `minimax-2026` of the ladder uses. Only `search` is set, and
 * the network and `decoupled` have no effect. The moves of the frozen search must never change. */
extern const Kernel frozen_small_plain, frozen_medium_plain, frozen_large_plain;
extern const Kernel frozen_small_avx2, frozen_medium_avx2, frozen_large_avx2;

/* Returns the kernel of the selected instruction set for a board of `cells` cells. */
const Kernel *kernel_for(int cells);
/* Returns the kernel of the frozen search for a board of `cells` cells. WebAssembly builds lack
 * this function. */
const Kernel *frozen_kernel_for(int cells);

/* Selects "plain", "avx2" or "best" for later calls of kernel_for(). Returns the selected name, or
 * NULL if the processor or the build does not support it. Not thread-safe. */
const char *select_isa(const char *name);

#endif
