/* Python bindings of self-play games and of batched network evaluations. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "bindings.h"
#include "self_play.h"

const char play_game_doc[] =
"play_game(width, height, wrapped, constrictor, damage, lengths, health, bodies, food, hazards,\n"
"          food_chance, shrink_every, players, seed, turn, random_opening_turns, node_doublings,\n"
"          random_move_fraction, max_turns, first_moves, only_seat)\n"
"--\n"
"\n"
"Play a self-play game of two or more snakes from a position in the format of search().\n"
"\n"
"`players` contains one tuple per seat: (weights, network, nodes, seconds of CPU time, decoupled,\n"
"root_noise, shared_tree). `hazards` contains the hazard layers of every cell after 0, 1, ... shrinks.\n"
"`turn`, the turn of the first row, affects only the shrinks.\n"
"`first_moves` contains one byte per seat, or nothing: moves of a turn before the game, after which\n"
"no food appears. The game ends if the snake at `only_seat` is eliminated; -1 plays to the end.\n"
"\n"
"Returns (rows: bytes, points by seat, turns, finished, nodes). Releases the GIL.";

/* Buffers of a game, borrowed from Python objects until release_self_play_buffers(). */
typedef struct {
    RequestBuffers start;
    Py_buffer weights[MAX_SNAKES], network[MAX_SNAKES], first_moves;
    SelfPlayPlayer player[MAX_SNAKES];
} SelfPlayBuffers;

static void release_self_play_buffers(SelfPlayBuffers *buffers) {
    release_buffers(&buffers->start);
    PyBuffer_Release(&buffers->first_moves);
    for (int i = 0; i < MAX_SNAKES; i++) {
        PyBuffer_Release(&buffers->weights[i]);
        PyBuffer_Release(&buffers->network[i]);
    }
}

/* Parses one tuple (weights, network, nodes, seconds, decoupled, root_noise, shared_tree) per seat.
 * Returns 0, or -1 with an exception set. */
static int parse_players(PyObject *players, SelfPlayConfig *config, SelfPlayBuffers *buffers) {
    Py_ssize_t count = PyTuple_Size(players);
    if (count < 2 || count > MAX_SNAKES)
        return raise_value_error("players", "must number 2 to 16");
    if (count != config->start.snakes)
        return raise_value_error("players", "must have one entry per snake");
    for (int i = 0; i < count; i++) {
        SelfPlayPlayer *player = &buffers->player[i];
        long long max_nodes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(players, i), "y*y*Ldifp", &buffers->weights[i],
                              &buffers->network[i], &max_nodes, &player->time_limit_s,
                              &player->min_decoupled_snakes, &player->root_noise,
                              &player->shared_tree))
            return -1;
        if (check_weights(&buffers->weights[i]) ||
            check_network(&buffers->network[i], &player->network))
            return -1;
        if (max_nodes <= 0 && !(player->time_limit_s > 0 && isfinite(player->time_limit_s)))
            return raise_value_error("players", "must have a limit of nodes or seconds");
        if (!(player->root_noise >= 0 && player->root_noise <= 1))
            return raise_value_error("players", "must have a root_noise between 0 and 1");
        player->max_nodes = max_nodes;
        player->weights = buffers->weights[i].buf;
        config->player[i] = player;
    }
    return 0;
}

static int check_config(SelfPlayConfig *config, const SelfPlayBuffers *buffers) {
    fill_request(&config->start, &buffers->start);
    if (check_position(&config->start, &buffers->start, &config->planes)) return -1;
    if (config->max_turns < 1 || config->max_turns > 32000)
        return raise_value_error("max_turns", "must be between 1 and 32000");
    if (config->turn < 0 || config->turn > 32000)
        return raise_value_error("turn", "must be between 0 and 32000");
    if (config->shrink_every < 0) return raise_value_error("shrink_every", "must not be negative");
    if (config->node_doublings < 0 || config->node_doublings > 16)
        return raise_value_error("node_doublings", "must be between 0 and 16");
    if (config->random_opening_turns < 0 || config->random_opening_turns > 32000)
        return raise_value_error("random_opening_turns", "must be between 0 and 32000");
    if (config->only_seat < -1 || config->only_seat >= config->start.snakes)
        return raise_value_error("only_seat", "must be -1 or a seat");
    const Py_buffer *moves = &buffers->first_moves;
    if (!moves->len) return 0;
    config->first_moves = moves->buf;
    if (moves->len != config->start.snakes)
        return raise_value_error("first_moves", "must be empty or have one byte per snake");
    for (Py_ssize_t s = 0; s < moves->len; s++)
        if (config->first_moves[s] > 3)
            return raise_value_error("first_moves", "must be between 0 and 3");
    return 0;
}

static PyObject *build_result(const SelfPlayConfig *config, const SelfPlayGame *record) {
    PyObject *points = PyTuple_New(config->start.snakes);
    for (int s = 0; points && s < config->start.snakes; s++) {
        PyObject *number = PyFloat_FromDouble(record->points[s]);
        if (!number || PyTuple_SetItem(points, s, number)) Py_CLEAR(points);
    }
    if (!points) return NULL;
    return Py_BuildValue("(y#NiiL)", record->rows ? (const char *)record->rows : "",
                         (Py_ssize_t)(record->count * sizeof(SelfPlayRow)), points, record->turns,
                         record->finished, (long long)record->nodes);
}

PyObject *play_game(PyObject *module, PyObject *args) {
    (void)module;
    SelfPlayConfig config = {0};
    SelfPlayGame record = {0};
    PyObject *players, *result = NULL;
    unsigned long long seed;
    SelfPlayBuffers *buffers = calloc(1, sizeof *buffers);
    if (!buffers) return PyErr_NoMemory();
    SearchRequest *start = &config.start;
    RequestBuffers *from = &buffers->start;
    if (PyArg_ParseTuple(args, "iippiy*y*y*y*y*iiO!Kiiiiiy*i:play_game", &start->width, &start->height,
                         &start->wrapped, &start->constrictor, &start->damage, &from->lengths,
                         &from->health, &from->bodies, &from->food, &from->hazards,
                         &config.food_chance, &config.shrink_every, &PyTuple_Type, &players, &seed,
                         &config.turn, &config.random_opening_turns, &config.node_doublings,
                         &config.random_move_fraction, &config.max_turns,
                         &buffers->first_moves, &config.only_seat) &&
        !check_config(&config, buffers) && !parse_players(players, &config, buffers)) {
        int failed;
        config.seed = seed;
        Py_BEGIN_ALLOW_THREADS
        failed = kernel_for(start->width * start->height)->play_game(&config, &record);
        Py_END_ALLOW_THREADS
        result = failed ? PyErr_NoMemory() : build_result(&config, &record);
    }
    free(record.rows);
    release_self_play_buffers(buffers);
    free(buffers);
    return result;
}

const char evaluate_batch_doc[] =
"evaluate_batch(kernel, network, inputs, living)\n"
"--\n"
"\n"
"Evaluate the network inputs (rows of int16) of positions with `living` living snakes.\n"
"\n"
"`kernel` is 0 (plain) or 1 (AVX2). Returns int32 bytes in 1/1000 cell, or None if the processor\n"
"lacks the kernel.";

static PyObject *evaluate_rows(const NetworkKernel *kernel, const Network *network,
                               const Py_buffer *inputs, int living) {
    Py_ssize_t rows = inputs->len / (NUM_INPUTS * 2);
    int32_t *values = malloc(rows * 4 + 1);
    if (!values) return PyErr_NoMemory();
    const int16_t *row = inputs->buf;
    for (Py_ssize_t i = 0; i < rows; i++, row += NUM_INPUTS)
        values[i] = network_value(kernel, &network->stack[stack_index(living)], row, living);
    PyObject *result = PyBytes_FromStringAndSize((const char *)values, rows * 4);
    free(values);
    return result;
}

PyObject *evaluate_batch(PyObject *module, PyObject *args) {
    (void)module;
    int kernel, living;
    Py_buffer weights, inputs;
    const Network *network;
    PyObject *result = NULL;
    memset(&weights, 0, sizeof weights);
    memset(&inputs, 0, sizeof inputs);
    if (PyArg_ParseTuple(args, "iy*y*i:evaluate_batch", &kernel, &weights, &inputs, &living) &&
        !check_network(&weights, &network)) {
        if (!network) {
            raise_value_error("network", "must not be empty");
        } else if (inputs.len % (NUM_INPUTS * 2)) {
            raise_value_error("inputs", "must be rows of NUM_INPUTS int16 values");
        } else if (living < 2 || living > MAX_SNAKES) {
            raise_value_error("living", "must be between 2 and 16");
        } else if (kernel < 0 || kernel >= NUM_KERNELS) {
            raise_value_error("kernel", "must be 0 or 1");
        } else if (!network_kernel(kernel)) {
            result = Py_BuildValue("");
        } else {
            result = evaluate_rows(network_kernel(kernel), network, &inputs, living);
        }
    }
    PyBuffer_Release(&weights);
    PyBuffer_Release(&inputs);
    return result;
}
