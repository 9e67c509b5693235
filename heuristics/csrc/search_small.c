/* The search for boards of up to 128 cells. */
#define WORDS 2
#define SEARCH search_small
#define PLAY play_small
#define PLAY_GAME play_game_small
#define INPUTS_OF inputs_small
#include "search_body.h"
