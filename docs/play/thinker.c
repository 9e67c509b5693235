#include "thinker.h"

#include "../../heuristics/battlesnake_heuristics/search/csrc/codes.h"

/* The weights of battlesnake_heuristics/search/search.py in their order, and the numbers of the
 * evaluation that comes with the package, for the games that it was trained for: the build hands over
 * both. */
static const int32_t weights[WEIGHTS] = {SEARCH_WEIGHTS};
_Alignas(Network) static const uint8_t numbers[] = {
#embed "numbers"
};
_Static_assert(sizeof numbers == sizeof(Network), "these are not the numbers of a network");
static int32_t report[6];

__attribute__((export_name("report_at"))) int32_t *report_at(void) { return report; }

int find_move(const Seen *seen, double seconds, int positions) {
    Question ask = {.width = seen->width, .height = seen->height, .snakes = seen->snakes,
                    .wrapped = seen->wrapped, .constrictor = seen->constrictor, .solo = seen->solo,
                    .damage = seen->damage, .lengths = seen->lengths, .health = seen->health,
                    .bodies = seen->bodies, .food = seen->food, .hazards = seen->hazards,
                    .weights = weights, .seconds = seconds, .nodes = seconds > 0 ? 0 : positions,
                    .first_depth = 1, .max_depth = MAX_DEPTH};
    if (seen->trained && seen->snakes > 1) ask.network = (const Network *)numbers;
    Answer answer;
    if (code_for(ask.width * ask.height)->search(&ask, &answer)) return 0;
    report[0] = answer.depth;
    report[1] = (int32_t)answer.evaluated;
    for (int move = 0; move < 4; move++)
        report[2 + move] = answer.searched[move] ? answer.scores[move] : INT32_MIN;
    return answer.move;
}
