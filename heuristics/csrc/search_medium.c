/* The search for boards of up to 384 cells. */
#define WORDS 6
#define SEARCH search_medium
#define PLAY play_medium
#define PLAY_GAME play_game_medium
#define INPUTS_OF inputs_medium
#include "search_body.h"
