/* Inputs of the evaluation network, one per line: name, unit, and formula with the variables of
 * network_inputs.h. Inputs are integers, clamped to +-MAX_ACTIVATION. BOARD inputs exist once.
 * SNAKE inputs exist for snake 0, the strongest opponent, the nearest opponent, and the mean of all
 * opponents. Evaluation files identify inputs by name, and inputs that a file lacks get weight 0.
 * Append new inputs to the inputs of their kind. Both kinds need an even number of inputs. */

BOARD(lead, "64 per segment, up to 8", 64 * clamp_abs(lead, 8))
BOARD(long_lead, "16 per segment", 16 * lead)
BOARD(distance, "16 per step to the nearest head, up to 32", 16 * min_int(head_distance, 32))
BOARD(odd_distance, "256 if that distance is odd", 256 * (head_distance & 1))
BOARD(closeness, "64 per step below 8", threat)
BOARD(threat, "the closeness, negative against a longer opponent", sign(longer) * threat)
BOARD(contested, "512 per board of cells that two snakes reach at once", board_fraction(search, territory->num_contested))
BOARD(out_of_reach, "512 per board of cells that no snake reaches", board_fraction(search, search->cells - territory->num_reached))
BOARD(food, "32 each", 32 * territory->num_food)
BOARD(bodies, "512 per board of cells", board_fraction(search, territory->num_bodies))
BOARD(rivals, "128 per opponent beyond the first", 128 * (count - 2))
BOARD(size, "2 per cell", 2 * search->cells)
BOARD(constrictor, "256 in constrictor rules", request->constrictor ? 256 : 0)
BOARD(wrapped, "256 on a wrapped board", request->wrapped ? 256 : 0)
BOARD(damage, "16 per point of hazard damage, up to 50, if there are hazards", hazards ? 16 * min_int(request->damage, 50) : 0)
BOARD(hazards, "512 per board of cells", hazards ? board_fraction(search, hazards) : 0)

SNAKE(cells, "512 per board of cells reached first", board_fraction(search, cells))
SNAKE(cells_soon, "16 per cell reached first within 4 turns", 16 * territory->soon[i])
SNAKE(cells_later, "8 per cell reached first within 9 turns", 8 * territory->later[i])
SNAKE(last, "16 per turn until the last cell reached first", 16 * territory->last_turn[i])
SNAKE(cramped, "32 per segment without a cell reached first", 32 * max_int(body->length - cells, 0))
SNAKE(length, "8 per segment", 8 * body->length)
SNAKE(health, "5 per point", 5 * body->health)
SNAKE(food_near, "1024 / (1 + turns to food reached first)", turns_to_food == UNREACHED ? 0 : 1024 / (turns_to_food + 1))
SNAKE(hunger, "16 per turn that health lasts beyond that food, below 30", 16 * max_int(30 - slack, 0))
SNAKE(moves, "128 each", 128 * territory->num_exits[i])
SNAKE(food_owned, "64 per food reached first", turns_to_food == UNREACHED ? 0 : 64 * bits_count(bits_and(territory->owned[i], pos->food)))
SNAKE(tail, "256 if the own tail is reached first", bits_has(&territory->owned[i], segment(search, s, body->tail)) ? 256 : 0)
SNAKE(cells_in_hazard, "512 per board of cells reached first, per 32 of damage", board_fraction(search, in_hazard) * hazard_damage / 32)
SNAKE(centre, "0 in a corner, 256 in the center", search->centrality[head])
SNAKE(stacked, "128 per segment stacked on the tail, up to 3", 128 * min_int(body->stacked, 3))
SNAKE(in_hazard, "8 per point of damage on the head", 8 * request->hazards[head] * hazard_damage)
