/* Searches with decoupled MCTS: result, memory, and trees that are kept from turn to turn.
 *
 * A search with a time limit keeps its tree. The next search of the game continues with the part of
 * the tree below the moves that were played. A new tree starts if new food appeared or a snake was
 * eliminated. Pondering continues the tree of the current turn. */

/* Returns the index of the node after a joint move, or 0 if there is none. */
static uint32_t find_child(const Tree *tree, const Node *node, const uint8_t *moves) {
    return find_slot(tree, node->edges, node->slots, join_moves(tree, moves))->child;
}

/* Writes the line of the most visited moves, starting at the root. */
static void extract_visited_line(Tree *tree, SearchResult *result) {
    uint32_t index = 0;
    Line *line = &result->lines[result->move];
    do {
        const Node *node = get_node(tree, index);
        uint8_t *moves = line->moves[line->length++];
        uint8_t joint_moves[MAX_SNAKES] = {0};
        memset(moves, 4, MAX_SNAKES);
        for (int s = 0; s < tree->snakes; s++)
            if (node->pos.snake[s].alive)
                joint_moves[s] = moves[s] = most_visited(&get_stats(tree, node)[s]);
        index = find_child(tree, node, joint_moves);
    } while (index && line->length < MAX_DEPTH);
}

/* Frees a tree; NULL is allowed. */
static void free_tree(Tree *tree) {
    if (!tree) return;
    free(tree->memory);
    free(tree);
}

/* Allocates the uninitialized arrays of nodes and edges, on huge pages if possible: page faults
 * would take up to 20% of a search's time. Returns 0, or -1 if out of memory. */
static int allocate_arrays(Tree *tree) {
    size_t nodes = tree->max_nodes * tree->node_bytes;
    size_t edges = (tree->max_slots + 1) * tree->edge_bytes;
    size_t align = nodes + edges >= MIN_HUGE_PAGE_BYTES ? HUGE_PAGE : CACHE_LINE;
    nodes = (nodes + align - 1) & -align;
    edges = (edges + align - 1) & -align;
    tree->memory = malloc(nodes + edges + align);
    if (!tree->memory) return -1;
    tree->nodes = tree->memory + (-(uintptr_t)tree->memory & (align - 1));
    tree->edges = tree->nodes + nodes;
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE) madvise(tree->nodes, nodes + edges, MADV_HUGEPAGE);
#endif
    return 0;
}

/* Allocates a tree without nodes; returns NULL if out of memory. */
static Tree *allocate_tree(Search *search) {
    const SearchRequest *request = search->request;
    size_t position = offsetof(Position, snake) + request->snakes * sizeof(Body);
    Tree *tree = calloc(1, sizeof *tree);
    if (!tree) return NULL;
    tree->snakes = request->snakes;
    tree->stats_offset = (offsetof(Node, pos) + position + 7) / 8 * 8;
    tree->node_bytes = (tree->stats_offset + request->snakes * sizeof(ActionStats) + 7) / 8 * 8;
    tree->edge_bytes = (offsetof(Edge, win_probs) + request->snakes * sizeof(float) + 7) / 8 * 8;
    tree->max_nodes = MAX_NODE_BYTES / tree->node_bytes;
    tree->max_slots = MAX_EDGE_BYTES / tree->edge_bytes - 1;
    if (request->max_nodes && request->max_nodes < tree->max_nodes)
        tree->max_nodes = request->max_nodes + 1;
    if (16 * tree->max_nodes < tree->max_slots) tree->max_slots = 16 * tree->max_nodes;
    if (!allocate_arrays(tree)) return tree;
    free_tree(tree);
    return NULL;
}

/* Returns a tree with only the root node, or NULL if out of memory. */
static Tree *new_tree(Search *search, const Position *root) {
    float win_probs[MAX_SNAKES];
    Tree *tree = allocate_tree(search);
    if (!tree) return NULL;
    tree->search = search;
    evaluate_snakes(search, root, root, win_probs);
    add_node(tree, root, win_probs);
    return tree;
}

#define NO_NODE UINT32_MAX /* no index of a node */

/* Trees of finished searches, the latest first, and the sum of their bytes. */
static Tree *kept_trees[MAX_KEPT_TREES];
static int64_t kept_bytes;

/* Returns the memory that a tree has used for its nodes and edges, in bytes. */
static int64_t tree_bytes(const Tree *tree) {
    return tree->peak_count * tree->node_bytes + tree->slot_count * tree->edge_bytes;
}

/* Puts a tree, or NULL, into a slot of `kept_trees`. Returns the tree that was there, or NULL.
 * Thread-safe. */
static Tree *exchange_kept_tree(int slot, Tree *tree) {
    if (tree) __atomic_add_fetch(&kept_bytes, tree_bytes(tree), __ATOMIC_RELAXED);
    Tree *before = __atomic_exchange_n(&kept_trees[slot], tree, __ATOMIC_ACQ_REL);
    if (before) __atomic_sub_fetch(&kept_bytes, tree_bytes(before), __ATOMIC_RELAXED);
    return before;
}

/* Frees the oldest kept trees until the others use at most `bytes`. Thread-safe. */
static void limit_kept_trees(int64_t bytes) {
    for (int i = MAX_KEPT_TREES - 1; i >= 0; i--)
        if (__atomic_load_n(&kept_bytes, __ATOMIC_RELAXED) > bytes)
            free_tree(exchange_kept_tree(i, NULL));
}

/* Keeps a tree for the next search of its game, and frees the oldest trees beyond the limits. The
 * rings must still contain the bodies of the root. Thread-safe. */
static void keep_tree(Tree *tree) {
    const Position *root = &get_node(tree, 0)->pos;
    for (int s = 0; s < tree->snakes; s++) tree->root_heads[s] = head_of(tree->search, root, s);
    if (tree->count > tree->peak_count) tree->peak_count = tree->count;
    for (int i = 0; i < MAX_KEPT_TREES && tree; i++) tree = exchange_kept_tree(i, tree);
    free_tree(tree);
    limit_kept_trees(MAX_KEPT_BYTES);
}

/* Returns whether both positions are equal, apart from the ring indices of the bodies. */
static int is_same_position(const Position *a, const Position *b, int snakes) {
    int same = a->hash == b->hash && a->living == b->living;
    for (int s = 0; s < snakes; s++) {
        const Body *one = &a->snake[s], *other = &b->snake[s];
        same &= one->alive == other->alive && one->length == other->length &&
                one->stacked == other->stacked && one->health == other->health;
    }
    return same;
}

/* Returns the index of the node with the position `pos`, which is the root or a child of the root,
 * or NO_NODE if the tree has no such node. The function derives the moves from the heads. */
static uint32_t find_position(const Tree *tree, const Search *search, const Position *pos) {
    uint8_t moves[MAX_SNAKES] = {0};
    if (tree->snakes != search->request->snakes) return NO_NODE;
    if (is_same_position(&get_node(tree, 0)->pos, pos, tree->snakes)) return 0;
    for (int s = 0; s < tree->snakes; s++) {
        if (!pos->snake[s].alive) return NO_NODE;
        while (moves[s] < 4 &&
               search->next[tree->root_heads[s]][moves[s]] != head_of(search, pos, s))
            moves[s]++;
        if (moves[s] == 4) return NO_NODE;
    }
    uint32_t child = find_child(tree, get_node(tree, 0), moves);
    if (!child) return NO_NODE;
    return is_same_position(&get_node(tree, child)->pos, pos, tree->snakes) ? child : NO_NODE;
}

/* Makes node `root` the root of the tree: moves its descendants to the front and removes all other
 * nodes. Children always follow their parents, so one pass suffices. Returns 0, or -1 if out of
 * memory. */
static int reroot(Tree *tree, uint32_t root) {
    uint32_t count = tree->count;
    uint32_t *kept = calloc(count, sizeof *kept); /* 1: kept; then the new index of each node */
    if (!kept) return -1;
    kept[root] = 1;
    tree->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const Node *node = get_node(tree, i);
        if (!kept[i]) {
            free_block(tree, node->edges, node->slots);
            continue;
        }
        for (uint32_t slot = 0; slot < node->slots; slot++)
            kept[get_edge(tree, node->edges + slot)->child] = 1;
        memmove(get_node(tree, tree->count), node, tree->node_bytes);
        kept[i] = tree->count++;
    }
    for (uint32_t i = 0; i < tree->count; i++)
        for (uint32_t slot = 0; slot < get_node(tree, i)->slots; slot++) {
            Edge *edge = get_edge(tree, get_node(tree, i)->edges + slot);
            if (edge->child) edge->child = kept[edge->child];
        }
    free(kept);
    return 0;
}

/* Writes the bodies of the request to the rings, at the indices of the position `pos`. */
static void write_bodies(Search *search, const Position *pos) {
    const uint16_t *cells = search->request->bodies;
    for (int s = 0; s < search->request->snakes; cells += search->request->lengths[s++]) {
        const Body *body = &pos->snake[s];
        for (int i = 0; i < body->length - body->stacked; i++)
            search->ring[s][(body->head - i) & (RING - 1)] = cells[i];
    }
}

/* Makes the root of the tree the position of the search. Returns 0, or -1 if out of memory. */
static int continue_tree(Tree *tree, Search *search, uint32_t root) {
    if (root && reroot(tree, root)) return -1;
    tree->search = search;
    write_bodies(search, &get_node(tree, 0)->pos);
    return 0;
}

/* Returns a kept tree that continues at the position `root`, or NULL. Thread-safe. */
static Tree *take_kept_tree(Search *search, const Position *root) {
    for (int i = 0; i < MAX_KEPT_TREES; i++) {
        Tree *tree = exchange_kept_tree(i, NULL);
        if (!tree) continue;
        uint32_t index = find_position(tree, search, root);
        if (index != NO_NODE && !continue_tree(tree, search, index)) return tree;
        /* Another thread may have kept a tree in the same slot in the meantime. */
        free_tree(index == NO_NODE ? exchange_kept_tree(i, tree) : tree);
    }
    return NULL;
}

/* Returns the mean value of a move, or the value of the node if the move has no visits. */
static float mean_move_value(const ActionStats *stats, int move) {
    return stats->visits[move] ? stats->value_sum[move] / stats->visits[move] : stats->leaf_value;
}

/* Writes the best move, the scores and the line of the root, and the choices of living snakes. */
static void export_visits(Tree *tree, SearchResult *result) {
    const Node *root = get_node(tree, 0);
    const ActionStats *stats = get_stats(tree, root);
    result->move = most_visited(stats);
    for (int move = 0; move < 4; move++) {
        result->has_score[move] = stats->prior[move] > 0;
        result->scores[move] = value_from_probability(mean_move_value(stats, move));
    }
    for (int s = 0; s < tree->snakes; s++) {
        if (!root->pos.snake[s].alive) continue;
        RootChoice *choice = &result->choices[s];
        choice->move = most_visited(&stats[s]);
        choice->value = value_from_probability(mean_move_value(&stats[s], choice->move));
        memcpy(choice->visits, stats[s].visits, sizeof choice->visits);
    }
    extract_visited_line(tree, result);
    result->depth = result->lines[result->move].length;
}

/* Returns whether the request uses decoupled MCTS. In duels, alpha-beta search decides while both
 * heads can reach the same cell and the snakes are equally long: decoupled MCTS expects the
 * opponent to leave the cell to us, and otherwise both snakes are eliminated. */
static int uses_decoupled(const Search *search, const Position *root) {
    const SearchRequest *request = search->request;
    int alive[MAX_SNAKES], count = 0, min_snakes = request->min_decoupled_snakes;
    if (!request->network || !min_snakes || root->living < min_snakes) return 0;
    for (int s = 0; s < request->snakes; s++)
        if (root->snake[s].alive) alive[count++] = s;
    if (count != 2) return count > 2;
    int steps = steps_between(search, head_of(search, root, alive[0]),
                              head_of(search, root, alive[1]));
    return steps != 2 || root->snake[alive[0]].length != root->snake[alive[1]].length;
}

/* Returns the exploration constant of snake `s`. Opponents far from our head explore less: their
 * moves change our values little, and more of them would divide the simulations among more
 * positions. */
static float exploration_constant(const Tree *tree, int s) {
    const Search *search = tree->search;
    const SearchRequest *request = search->request;
    const Position *root = &get_node(tree, 0)->pos;
    /* The constant varies per thread, so that root-parallel trees differ. */
    float c_puct = C_PUCT * (1 + 0.03f * (request->first_depth - 1));
    if (request->all_snakes || !root->snake[s].alive) return c_puct;
    int steps = steps_between(search, head_of(search, root, 0), head_of(search, root, s));
    return c_puct * (steps > FAR_STEPS ? FAR_C_PUCT : steps > MIDDLE_STEPS ? MIDDLE_C_PUCT : 1);
}

/* Runs simulations until a limit of the request is reached. Returns 0, or -1 if out of memory. */
static int run_decoupled(Search *search, const Position *root, SearchResult *result) {
    const SearchRequest *request = search->request;
    Tree *tree = request->keep_tree ? take_kept_tree(search, root) : NULL;
    if (!tree) {
        if (request->keep_tree) limit_kept_trees(MAX_KEPT_BYTES_BESIDE_NEW);
        tree = new_tree(search, root);
    }
    if (!tree) return -1;
    tree->random = request->noise_seed;
    for (int s = 0; s < tree->snakes; s++) tree->c_puct[s] = exploration_constant(tree, s);
    const ActionStats *stats = get_stats(tree, get_node(tree, 0));
    for (int64_t done = 0; !search->stopped; done++) {
        simulate(tree);
        if (request->max_nodes && done + 1 >= request->max_nodes) break;
        if (!request->all_snakes && stats->prior[most_visited(stats)] == 1) break; /* forced move */
        if (check_stop(search, !(done & 63))) break;
    }
    export_visits(tree, result);
    if (request->keep_tree)
        keep_tree(tree);
    else
        free_tree(tree);
    return 0;
}
