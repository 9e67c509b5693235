/* Python's doors to whole games and to the network alone. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "codes.h"
#include "doors.h"
#include "selfplay.h"

const char play_game_doc[] =
"play_game(width, height, wrapped, constrictor, damage, lengths, health, bodies, food, hazards,\n"
"          food_chance, shrink_every, players, seed, turn, opening, careful, random_share, max_turns)\n"
"--\n\n"
"Play from a position, given as to think(), a game of two or more snakes that search, one player a\n"
"seat: (weights, network, nodes, seconds of CPU time, decoupled). hazards holds the layers of every cell after\n"
"0, 1, ... shrinks; `turn` of the position counts for them alone.\n"
"Returns (rows: bytes, points by seat, turns, finished, positions visited). Releases the GIL.";

typedef struct {
    Buffers start;
    Py_buffer weights[MAX_SNAKES], network[MAX_SNAKES];
    Player player[MAX_SNAKES];
} Holdings;

static void let_go(Holdings *held) {
    release(&held->start);
    for (int i = 0; i < MAX_SNAKES; i++) {
        PyBuffer_Release(&held->weights[i]);
        PyBuffer_Release(&held->network[i]);
    }
}

static int read_players(PyObject *players, GamePlan *plan, Holdings *held) {
    Py_ssize_t count = PyTuple_Size(players);
    if (count < 2 || count > MAX_SNAKES) return refuse("players", "must number between 2 and 16");
    if (count != plan->start.snakes) return refuse("players", "must be one a snake");
    for (int i = 0; i < count; i++) {
        Player *player = &held->player[i];
        long long nodes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(players, i), "y*y*Ldp", &held->weights[i],
                              &held->network[i], &nodes, &player->seconds, &player->decoupled))
            return -1;
        if (check_weights(&held->weights[i]) ||
            check_network(&held->network[i], &player->network))
            return -1;
        if (nodes <= 0 && player->seconds <= 0)
            return refuse("players", "must have a limit of positions or seconds");
        player->nodes = nodes;
        player->weights = held->weights[i].buf;
        plan->player[i] = player;
    }
    return 0;
}

static int check_plan(GamePlan *plan, const Holdings *held) {
    fill(&plan->start, &held->start);
    if (check_position(&plan->start, &held->start, &plan->planes)) return -1;
    if (plan->max_turns < 1 || plan->max_turns > 32000)
        return refuse("max_turns", "must be between 1 and 32000");
    if (plan->turn < 0 || plan->turn > 32000) return refuse("turn", "must be between 0 and 32000");
    if (plan->shrink_every < 0) return refuse("shrink_every", "must not be negative");
    if (plan->careful < 0 || plan->careful > 16) return refuse("careful", "must be between 0 and 16");
    if (plan->opening < 0 || plan->opening > 32000)
        return refuse("opening", "must be between 0 and 32000");
    return 0;
}

static PyObject *answer(const GamePlan *plan, const GameRecord *record) {
    PyObject *points = PyTuple_New(plan->start.snakes);
    for (int s = 0; points && s < plan->start.snakes; s++) {
        PyObject *number = PyFloat_FromDouble(record->points[s]);
        if (!number || PyTuple_SetItem(points, s, number)) Py_CLEAR(points);
    }
    if (!points) return NULL;
    return Py_BuildValue("(y#NiiL)", (const char *)record->rows,
                         (Py_ssize_t)(record->count * sizeof(Row)), points, record->turns,
                         record->finished, (long long)record->visited);
}

PyObject *play_game(PyObject *module, PyObject *args) {
    (void)module;
    GamePlan plan = {0};
    GameRecord record = {0};
    PyObject *players, *result = NULL;
    unsigned long long seed;
    Holdings *held = calloc(1, sizeof *held);
    if (!held) return PyErr_NoMemory();
    Question *start = &plan.start;
    Buffers *from = &held->start;
    if (PyArg_ParseTuple(args, "iippiy*y*y*y*y*iiO!Kiiiii:play_game", &start->width, &start->height,
                         &start->wrapped, &start->constrictor, &start->damage, &from->lengths,
                         &from->health, &from->bodies, &from->food, &from->hazards,
                         &plan.food_chance, &plan.shrink_every, &PyTuple_Type, &players, &seed,
                         &plan.turn, &plan.opening, &plan.careful, &plan.random_share,
                         &plan.max_turns) &&
        !check_plan(&plan, held) && !read_players(players, &plan, held)) {
        int failed;
        plan.seed = seed;
        Py_BEGIN_ALLOW_THREADS
        failed = code_for(start->width * start->height)->play_game(&plan, &record);
        Py_END_ALLOW_THREADS
        result = failed ? PyErr_NoMemory() : answer(&plan, &record);
    }
    free(record.rows);
    let_go(held);
    free(held);
    return result;
}

const char values_by_doc[] =
"values_by(code, network, inputs, living)\n"
"--\n\n"
"The values of positions of `living` snakes, int32 bytes in thousandths of a cell, of their inputs\n"
"(bytes of int16), by code 0 (plain) or 1 (AVX2); None where this processor lacks it.";

static PyObject *all_values(NetworkCode code, const Network *network, const Py_buffer *inputs,
                            int living) {
    Py_ssize_t rows = inputs->len / (INPUTS * 2);
    int32_t *values = malloc(rows * 4 + 1);
    if (!values) return PyErr_NoMemory();
    const int16_t *row = inputs->buf;
    for (Py_ssize_t i = 0; i < rows; i++, row += INPUTS)
        values[i] = network_value(code, network, row, living);
    PyObject *result = PyBytes_FromStringAndSize((const char *)values, rows * 4);
    free(values);
    return result;
}

PyObject *values_by(PyObject *module, PyObject *args) {
    (void)module;
    int code, living;
    Py_buffer weights, inputs;
    const Network *network;
    PyObject *result = NULL;
    memset(&weights, 0, sizeof weights);
    memset(&inputs, 0, sizeof inputs);
    if (PyArg_ParseTuple(args, "iy*y*i:values_by", &code, &weights, &inputs, &living) &&
        !check_network(&weights, &network)) {
        if (!network) {
            refuse("network", "must not be empty");
        } else if (inputs.len % (INPUTS * 2)) {
            refuse("inputs", "must be rows of int16");
        } else if (living < 2 || living > MAX_SNAKES) {
            refuse("living", "must be between 2 and 16");
        } else if (code < 0 || code >= CODES) {
            refuse("code", "must be 0 or 1");
        } else if (!network_code(code)) {
            result = Py_BuildValue("");
        } else {
            result = all_values(network_code(code), network, &inputs, living);
        }
    }
    PyBuffer_Release(&weights);
    PyBuffer_Release(&inputs);
    return result;
}
