/* Searches with decoupled MCTS: result, memory, and trees that are kept from turn to turn.
 *
 * A search with a time limit keeps its tree. The next search of the game continues with the part of
 * the tree below the moves that were played. There is no such part if new food appeared, and a tree
 * is not continued after the elimination of a snake. Pondering continues the tree of the current
 * turn. */

/* Writes the line of the most visited moves, starting at the root. */
static void extract_visited_line(Tree *tree, SearchResult *result) {
    uint32_t index = 0;
    uint64_t key;
    Line *line = &result->lines[result->move];
    while (line->length < MAX_DEPTH) {
        const Node *node = get_node(tree, index);
        if (node->terminal || !node->visits) return;
        uint8_t *moves = line->moves[line->length++];
        uint8_t joint_moves[MAX_SNAKES] = {0};
        memset(moves, 4, MAX_SNAKES);
        for (int s = 0; s < tree->snakes; s++)
            if (node->pos.snake[s].alive)
                joint_moves[s] = moves[s] = most_visited(&get_stats(tree, node)[s]);
        const Edge *edge = find_edge(tree, index, joint_moves, &key);
        if (!edge->key) return;
        index = edge->child;
    }
}

/* Frees a tree; NULL is allowed. */
static void free_tree(Tree *tree) {
    if (!tree) return;
    free(tree->cache_win_probs);
    free(tree->cache_keys);
    free(tree->edges);
    free(tree->nodes);
    free(tree);
}

/* Allocates uninitialized memory for nodes, on huge pages if possible: page faults would take up to
 * 20% of a search's time. Returns NULL if out of memory. */
static char *allocate_nodes(size_t bytes) {
    char *nodes = malloc(bytes);
#ifdef MADV_HUGEPAGE
    size_t page = 4096, skipped = -(uintptr_t)nodes & (page - 1);
    if (nodes && bytes >= MIN_HUGE_PAGE_BYTES)
        madvise(nodes + skipped, (bytes - skipped) & -page, MADV_HUGEPAGE);
#endif
    return nodes;
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
    tree->max_nodes = MAX_TREE_BYTES / tree->node_bytes;
    if (request->max_nodes && request->max_nodes + 2 < tree->max_nodes)
        tree->max_nodes = request->max_nodes + 2;
    tree->nodes = allocate_nodes(tree->max_nodes * tree->node_bytes);
    tree->cache_keys = calloc(EVAL_CACHE_SLOTS, sizeof *tree->cache_keys);
    tree->cache_win_probs =
        malloc(EVAL_CACHE_SLOTS * tree->snakes * sizeof *tree->cache_win_probs);
    if (tree->nodes && tree->cache_keys && tree->cache_win_probs && !grow_edge_table(tree, 512))
        return tree;
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
    return tree->peak_count * tree->node_bytes + (tree->mask + 1) * sizeof(Edge);
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
 * or NO_NODE if no such node was searched. The heads tell which moves were played. */
static uint32_t find_position(const Tree *tree, const Search *search, const Position *pos) {
    uint8_t moves[MAX_SNAKES] = {0};
    uint64_t key;
    if (tree->snakes != search->request->snakes) return NO_NODE;
    if (is_same_position(&get_node(tree, 0)->pos, pos, tree->snakes)) return 0;
    for (int s = 0; s < tree->snakes; s++) {
        if (!pos->snake[s].alive) return NO_NODE;
        while (moves[s] < 4 &&
               search->next[tree->root_heads[s]][moves[s]] != head_of(search, pos, s))
            moves[s]++;
        if (moves[s] == 4) return NO_NODE;
    }
    const Edge *edge = find_edge(tree, 0, moves, &key);
    if (!edge->key) return NO_NODE;
    const Node *child = get_node(tree, edge->child);
    return child->visits && is_same_position(&child->pos, pos, tree->snakes) ? edge->child
                                                                             : NO_NODE;
}

/* Makes node `root` the root of the tree: moves its descendants to the front and removes all other
 * nodes. Children always follow their parents, so one pass suffices. Returns 0, or -1 if out of
 * memory. */
static int reroot(Tree *tree, uint32_t root) {
    uint32_t count = tree->count, slots = tree->mask + 1;
    uint64_t *keys = calloc(count, sizeof *keys); /* key of the edge to each node */
    uint32_t *kept = calloc(count, sizeof *kept); /* new index of each node + 1; 0: removed */
    for (uint32_t i = 0; keys && i < slots; i++)
        if (tree->edges[i].key) keys[tree->edges[i].child] = tree->edges[i].key;
    free(tree->edges);
    tree->edges = NULL;
    int failed = !keys || !kept || grow_edge_table(tree, slots);
    if (!failed) {
        memmove(get_node(tree, 0), get_node(tree, root), tree->node_bytes);
        kept[root] = tree->count = 1;
    }
    for (uint32_t i = root + 1; !failed && i < count; i++) {
        uint32_t parent = kept[(keys[i] >> 32) - 1];
        if (!parent) continue;
        memmove(get_node(tree, tree->count), get_node(tree, i), tree->node_bytes);
        kept[i] = ++tree->count;
        uint64_t key = (uint64_t)parent << 32 | (uint32_t)keys[i];
        *find_edge_slot(tree, key) = (Edge){key, tree->count - 1};
    }
    memset(tree->cache_keys, 0, EVAL_CACHE_SLOTS * sizeof *tree->cache_keys);
    free(keys);
    free(kept);
    return failed ? -1 : 0;
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

/* Writes the best move, the scores and the line of the root, and the choices of all snakes. */
static void export_visits(Tree *tree, SearchResult *result) {
    const ActionStats *stats = get_stats(tree, get_node(tree, 0));
    result->move = most_visited(stats);
    for (int move = 0; move < 4; move++) {
        result->has_score[move] = stats->prior[move] > 0;
        result->scores[move] = value_from_probability(mean_move_value(stats, move));
    }
    for (int s = 0; s < tree->snakes; s++) {
        RootChoice *choice = &result->choices[s];
        choice->move = most_visited(&stats[s]);
        choice->value = value_from_probability(mean_move_value(&stats[s], choice->move));
        memcpy(choice->visits, stats[s].visits, sizeof choice->visits);
    }
    extract_visited_line(tree, result);
    result->depth = result->lines[result->move].length;
}

/* Returns whether the request uses decoupled MCTS. */
static int uses_decoupled(const SearchRequest *request, const Position *root) {
    return request->decoupled && request->network && root->living > 2;
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
    /* The exploration constant varies per thread, so that root-parallel trees differ. */
    tree->c_puct = C_PUCT * (1 + 0.03f * (request->first_depth - 1));
    int failed = 0;
    const ActionStats *stats = get_stats(tree, get_node(tree, 0));
    for (int64_t done = 0; !failed && !search->stopped; done++) {
        simulate(tree);
        if (tree->count > tree->mask / 2) failed = grow_edge_table(tree, 2 * (tree->mask + 1));
        if (request->max_nodes && done + 1 >= request->max_nodes) break;
        if (!request->all_snakes && stats->prior[most_visited(stats)] == 1) break; /* forced move */
        /* 1,024 simulations of eight snakes take about 10 ms. */
        if (check_stop(search, !(done & 63), !(done & 0x3ff))) break;
    }
    if (!failed) export_visits(tree, result);
    if (!failed && request->keep_tree)
        keep_tree(tree);
    else
        free_tree(tree);
    return failed;
}
