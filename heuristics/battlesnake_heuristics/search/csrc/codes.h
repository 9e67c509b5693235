/* The search is compiled for three sizes of boards, and for each on any processor and on those with
 * AVX2; the answers are the same. */
#ifndef CODES_H
#define CODES_H

#include "search.h"
#include "selfplay.h"

typedef struct {
    /* Think; returns 0, or -1 without memory, or 1 when interrupted. Calls no Python. */
    int (*search)(const Question *question, Answer *answer);
    /* Plays `turns` turns, up to MAX_DEPTH, of `moves` [turns][snakes]; returns 0, or -1 without
     * memory. No snake moves once all are out. */
    int (*play)(const Question *question, const uint8_t *moves, int turns, Outcome *outcome);
    /* Plays one game; returns 0, or -1 without memory. The caller frees record->rows in any case. */
    int (*play_game)(const GamePlan *plan, GameRecord *record);
    /* The inputs of a network for the position of a question with 2 or more snakes; as `play`. */
    int (*inputs)(const Question *question, int16_t *inputs);
} Code;

extern const Code small_plain, medium_plain, large_plain; /* up to 128, 384 and 640 cells */
extern const Code small_avx2, medium_avx2, large_avx2;

const Code *code_for(int cells);

/* Chooses "plain", "avx2" or "best" for all that follows; returns what was chosen, or NULL where
 * this processor or this build lacks it. */
const char *choose_code(const char *name);

#endif
