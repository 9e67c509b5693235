/* The search for boards of up to 640 cells. */
#define WORDS 10
#define SEARCH search_large
#define PLAY play_large
#define PLAY_GAME play_game_large
#define INPUTS_OF inputs_large
#include "search_body.h"
