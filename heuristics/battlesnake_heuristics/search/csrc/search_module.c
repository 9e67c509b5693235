/* Python's door to the search: battlesnake_heuristics.search._search.think(...) and .play(...). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <string.h>

#include "codes.h"
#include "doors.h"

void release(Buffers *buffers) {
    for (int i = 0; i < 8; i++) PyBuffer_Release(&buffers->all[i]);
}

int refuse(const char *field, const char *rule) {
    PyErr_Format(PyExc_ValueError, "%s %s", field, rule);
    return -1;
}

static int has_bytes(const char *field, const Py_buffer *buffer, Py_ssize_t wanted) {
    if (buffer->len == wanted) return 1;
    PyErr_Format(PyExc_ValueError, "%s must hold %zd bytes, got %zd", field, wanted, buffer->len);
    return 0;
}

int holds(const char *field, const Py_buffer *buffer, Py_ssize_t count, int size) {
    if (!has_bytes(field, buffer, count * size)) return 0;
    if (!((uintptr_t)buffer->buf % size)) return 1;
    PyErr_Format(PyExc_ValueError, "%s must begin at a multiple of %d bytes", field, size);
    return 0;
}

/* An empty buffer is no network. */
int check_network(const Py_buffer *buffer, const Network **network) {
    *network = NULL;
    if (!buffer->len) return 0;
    if (!holds("network", buffer, sizeof(Network) / 4, 4)) return -1;
    *network = buffer->buf;
    if (!network_in_bounds(*network)) return refuse("network", "must have weights within bounds");
    return 0;
}

void fill(Question *ask, const Buffers *buffers) {
    Py_ssize_t snakes = buffers->lengths.len / 4;
    ask->snakes = snakes > MAX_SNAKES ? MAX_SNAKES + 1 : (int)snakes;
    ask->lengths = buffers->lengths.buf;
    ask->health = buffers->health.buf;
    ask->bodies = buffers->bodies.buf;
    ask->food = buffers->food.buf;
    ask->hazards = buffers->hazards.buf;
}

static int check_board(int width, int height, int damage) {
    if (width < 1 || width > 25) return refuse("width", "must be between 1 and 25");
    if (height < 1 || height > 25) return refuse("height", "must be between 1 and 25");
    if (damage >= -MOST_DAMAGE && damage <= MOST_DAMAGE) return 0;
    return refuse("damage", "must be between -1000 and 1000");
}

/* Trusts nothing: the search indexes by what is checked here, and adds what is bounded here. `planes`
 * gets the number of those of hazards, where there may be several. */
int check_position(const Question *ask, const Buffers *buffers, int *planes) {
    if (check_board(ask->width, ask->height, ask->damage)) return -1;
    if (ask->snakes < 1 || ask->snakes > MAX_SNAKES)
        return refuse("snakes", "must number between 1 and 16");
    int cells = ask->width * ask->height, segments = 0;
    if (planes) *planes = buffers->hazards.len < cells ? 1 : (int)(buffers->hazards.len / cells);
    if (!holds("lengths", &buffers->lengths, ask->snakes, 4) ||
        !holds("health", &buffers->health, ask->snakes, 4) ||
        !holds("food", &buffers->food, cells, 1) ||
        !holds("hazards", &buffers->hazards, planes ? cells * *planes : cells, 1))
        return -1;
    for (int s = 0; s < ask->snakes; s++) {
        if (ask->lengths[s] < 1 || ask->lengths[s] > MAX_CELLS)
            return refuse("lengths", "must be between 1 and 625");
        if (ask->health[s] < 0 || ask->health[s] > 100)
            return refuse("health", "must be between 0 (out) and 100");
        segments += ask->lengths[s];
    }
    if (!holds("bodies", &buffers->bodies, segments, 2)) return -1;
    for (int i = 0; i < segments; i++)
        if (ask->bodies[i] >= cells) return refuse("bodies", "must lie on the board");
    return 0;
}

int check_weights(const Py_buffer *buffer) {
    if (!holds("weights", buffer, WEIGHTS, 4)) return -1;
    const int32_t *weights = buffer->buf;
    for (int i = 0; i < WEIGHTS; i++) {
        int most = i == W_HUNGRY || i == W_LEAD       ? 1000
                   : i == W_STARVING || i == W_DRAW ? PROVEN - 1
                                                    : 100000;
        if (weights[i] < -most || weights[i] > most)
            return refuse("weights",
                          "must lie within 100,000 (hungry, lead: 1000; starving, draw: 899,999)");
    }
    return 0;
}

static int check_limits(const Question *ask, const Buffers *buffers) {
    if (!ask->health[0]) return refuse("health", "of snake 0, which thinks, must not be 0");
    if (!isfinite(ask->seconds) || ask->seconds < 0)
        return refuse("seconds", "must be 0 (no limit) or a positive number");
    if (ask->nodes < 0) return refuse("nodes", "must be 0 (no limit) or a positive number");
    if (ask->first_depth < 1 || ask->first_depth > MAX_DEPTH)
        return refuse("first_depth", "must be between 1 and 120");
    if (ask->max_depth < 1 || ask->max_depth > MAX_DEPTH)
        return refuse("max_depth", "must be between 1 and 120");
    return check_weights(&buffers->weights);
}

/* Reads what `think` and `inputs` are given; release the buffers in any case. */
static int read_question(PyObject *args, Question *ask, Buffers *buffers, PyObject **stop) {
    long long nodes;
    memset(buffers, 0, sizeof *buffers);
    if (!PyArg_ParseTuple(args, "iipppiy*y*y*y*y*y*dLiy*pppiO", &ask->width, &ask->height,
                          &ask->wrapped, &ask->constrictor, &ask->solo, &ask->damage,
                          &buffers->lengths, &buffers->health, &buffers->bodies, &buffers->food,
                          &buffers->hazards, &buffers->weights, &ask->seconds, &nodes,
                          &ask->max_depth, &buffers->network, &ask->exact,
                          &ask->decoupled, &ask->of_2026, &ask->first_depth, stop))
        return -1;
    fill(ask, buffers);
    ask->nodes = nodes;
    ask->weights = buffers->weights.buf;
    if (check_position(ask, buffers, NULL) || check_limits(ask, buffers)) return -1;
    return check_network(&buffers->network, (const Network **)&ask->network);
}

static PyObject *line_of(const Question *ask, const Answer *answer) {
    PyObject *line = PyList_New(answer->line_length);
    for (int i = 0; line && i < answer->line_length; i++) {
        PyObject *moves = PyBytes_FromStringAndSize((const char *)answer->line[i], ask->snakes);
        if (!moves || PyList_SetItem(line, i, moves)) Py_CLEAR(line);
    }
    return line;
}

static PyObject *scores_of(const Answer *answer) {
    PyObject *scores = PyDict_New();
    for (int move = 0; scores && move < 4; move++) {
        if (!answer->searched[move]) continue;
        PyObject *key = PyLong_FromLong(move), *value = PyLong_FromLong(answer->scores[move]);
        if (!key || !value || PyDict_SetItem(scores, key, value)) Py_CLEAR(scores);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return scores;
}

typedef struct {
    PyThreadState *state;
    PyObject *stop; /* a callable, or None */
} Caller;

/* Whether a signal's handler raised, or `stop` says so: asked by the searching thread, which has let
 * go of the GIL. With an exception if it is to give up. */
static int give_up(void *caller) {
    Caller *whose = caller;
    PyEval_RestoreThread(whose->state);
    int stopped = PyErr_CheckSignals();
    if (!stopped && whose->stop != Py_None) {
        PyObject *answer = PyObject_CallNoArgs(whose->stop);
        stopped = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (stopped > 0) PyErr_SetString(PyExc_InterruptedError, "the search was told to stop");
    }
    whose->state = PyEval_SaveThread();
    return stopped;
}

PyDoc_STRVAR(think_doc,
"think(width, height, wrapped, constrictor, solo, damage, lengths, health, bodies, food, hazards,\n"
"      weights, seconds, nodes, max_depth, network, exact, decoupled, of_2026, first_depth,\n"
"      stop)\n"
"--\n\n"
"Search for the best move of snake 0.\n\n"
"lengths, health and weights are int32 buffers, bodies uint16 cells (y * width + x, head first, one\n"
"snake after the other), food and hazards one byte a cell. Health 0: that snake is out. A limit of\n"
"0 is none. `network` are the bytes of a learned evaluation, empty for none. `exact`: the scores of all\n"
"moves are exact, not only the best one's. `decoupled`: among three and more, valued by a network, every\n"
"snake picks its moves for itself. `of_2026`: search as the rungs of the ladder do.\n"
"`first_depth` is 1, or more beside another search of the same position. `stop` is None, or says when\n"
"it is called now and then whether to give up.\n"
"Returns (move, depth, proven, evaluated, visited, scores by move, line: bytes a turn, visits: how\n"
"often a decoupled search tried each of the four moves, else zeros).\n"
"Raises ValueError for what the search cannot hold, InterruptedError when it gave up, and what the\n"
"handler of a signal raises (the KeyboardInterrupt of Ctrl-C, in the main thread). Releases the GIL.");

static PyObject *think(PyObject *module, PyObject *args) {
    (void)module;
    Question ask = {0};
    Answer answer;
    Buffers buffers;
    Caller caller;
    if (read_question(args, &ask, &buffers, &caller.stop)) {
        release(&buffers);
        return NULL;
    }
    const Code *code = code_for(ask.width * ask.height);
    caller.state = PyEval_SaveThread();
    ask.interrupted = give_up;
    ask.caller = &caller;
    int failed = code->search(&ask, &answer);
    PyEval_RestoreThread(caller.state);
    release(&buffers);
    if (failed) return failed < 0 ? PyErr_NoMemory() : NULL;
    const uint32_t *visits = answer.visits;
    return Py_BuildValue("(iiiLLNN(IIII))", answer.move, answer.depth, answer.proven,
                         (long long)answer.evaluated, (long long)answer.visited,
                         scores_of(&answer), line_of(&ask, &answer), visits[0], visits[1],
                         visits[2], visits[3]);
}

PyDoc_STRVAR(inputs_doc,
"inputs(...)\n"
"--\n\n"
"What a network is given of the position: bytes of int16. The arguments are those of `think`.");

static PyObject *inputs(PyObject *module, PyObject *args) {
    (void)module;
    Question ask = {0};
    Buffers buffers;
    int16_t numbers[INPUTS];
    PyObject *stop;
    int failed = read_question(args, &ask, &buffers, &stop);
    if (!failed && ask.snakes < 2) failed = refuse("snakes", "must number 2 or more");
    if (failed) {
        release(&buffers);
        return NULL;
    }
    failed = code_for(ask.width * ask.height)->inputs(&ask, numbers);
    release(&buffers);
    if (failed) return PyErr_NoMemory();
    return PyBytes_FromStringAndSize((const char *)numbers, sizeof numbers);
}

PyDoc_STRVAR(use_cpu_clock_doc,
"use_cpu_clock(on)\n"
"--\n\n"
"Whether the seconds of all searches in this process are its CPU time from now on; returns what\n"
"held before. For comparisons on a busy machine; play against a clock needs the wall's.");

static PyObject *use_cpu_clock(PyObject *module, PyObject *args) {
    (void)module;
    int on, before = search_cpu_clock;
    if (!PyArg_ParseTuple(args, "p:use_cpu_clock", &on)) return NULL;
    search_cpu_clock = on;
    return PyBool_FromLong(before);
}

PyDoc_STRVAR(use_pace_doc,
"use_pace(share)\n"
"--\n\n"
"Let searches against the wall's clock take no more than this share of a core in the last tenth of\n"
"a second before they end; 0: all they get, as at first. Returns the CPU time of the process and the\n"
"seconds left when one began to rest since the last call; zeros if none did.");

static PyObject *use_pace(PyObject *module, PyObject *args) {
    (void)module;
    if (!PyArg_ParseTuple(args, "d:use_pace", &search_pace)) return NULL;
    PyObject *began = Py_BuildValue("dd", search_calm[0], search_calm[1]);
    search_calm[0] = search_calm[1] = 0;
    return began;
}

static int check_moves(const Question *ask, const Py_buffer *moves) {
    Py_ssize_t turns = moves->len / ask->snakes;
    if (turns > MAX_DEPTH || moves->len % ask->snakes)
        return refuse("moves", "must be a byte for each snake in each of up to 120 turns");
    for (Py_ssize_t i = 0; i < moves->len; i++)
        if (((const uint8_t *)moves->buf)[i] > 3) return refuse("moves", "must be 0, 1, 2 or 3");
    return 0;
}

static PyObject *snakes_of(const Question *ask, const Outcome *outcome) {
    PyObject *snakes = PyList_New(ask->snakes);
    for (int s = 0; snakes && s < ask->snakes; s++) {
        PyObject *snake =
            outcome->alive[s]
                ? Py_BuildValue("(iy#)", (int)outcome->health[s], outcome->body[s],
                                (Py_ssize_t)(outcome->length[s] * sizeof(uint16_t)))
                : Py_BuildValue("");
        if (!snake || PyList_SetItem(snakes, s, snake)) Py_CLEAR(snakes);
    }
    return snakes;
}

PyDoc_STRVAR(play_doc,
"play(width, height, wrapped, constrictor, damage, lengths, health, bodies, food, hazards, moves)\n"
"--\n\n"
"Play turns as the search does, so that they can be held against the rules.\n\n"
"The position is given as to think(); moves are bytes, one for each snake in every turn. Returns\n"
"(snakes, food: a byte a cell, key: equal for equal positions); a snake is None once it is out,\n"
"else (health, body: uint16 cells). Raises ValueError for what the search cannot hold.");

static PyObject *play(PyObject *module, PyObject *args) {
    (void)module;
    Question ask = {0};
    Buffers buffers;
    PyObject *played = NULL;
    memset(&buffers, 0, sizeof buffers);
    if (!PyArg_ParseTuple(args, "iippiy*y*y*y*y*y*:play", &ask.width, &ask.height, &ask.wrapped,
                          &ask.constrictor, &ask.damage, &buffers.lengths, &buffers.health,
                          &buffers.bodies, &buffers.food, &buffers.hazards, &buffers.moves))
        return NULL;
    fill(&ask, &buffers);
    Outcome *outcome = PyMem_Malloc(sizeof *outcome);
    if (!outcome) PyErr_NoMemory();
    if (outcome && !check_position(&ask, &buffers, NULL) && !check_moves(&ask, &buffers.moves)) {
        int cells = ask.width * ask.height, turns = (int)(buffers.moves.len / ask.snakes);
        const uint8_t *moves = buffers.moves.buf;
        int failed = code_for(cells)->play(&ask, moves, turns, outcome);
        played = failed ? PyErr_NoMemory()
                        : Py_BuildValue("(Ny#K)", snakes_of(&ask, outcome), outcome->food,
                                        (Py_ssize_t)cells, (unsigned long long)outcome->key);
    }
    PyMem_Free(outcome);
    release(&buffers);
    return played;
}

PyDoc_STRVAR(think_by_doc,
"think_by(name)\n"
"--\n\n"
"Choose the code of all that follows: 'plain', 'avx2' or 'best', which is chosen at first.\n\n"
"Returns the one that was chosen; ValueError where this processor or this build lacks it.");

static PyObject *think_by(PyObject *module, PyObject *args) {
    (void)module;
    const char *name;
    if (!PyArg_ParseTuple(args, "s:think_by", &name)) return NULL;
    const char *chosen = choose_code(name);
    if (!chosen) return PyErr_Format(PyExc_ValueError, "no code %s here", name);
    return PyUnicode_FromString(chosen);
}

static PyMethodDef methods[] = {{"think", think, METH_VARARGS, think_doc},
                                {"think_by", think_by, METH_VARARGS, think_by_doc},
                                {"play", play, METH_VARARGS, play_doc},
                                {"inputs", inputs, METH_VARARGS, inputs_doc},
                                {"play_game", play_game, METH_VARARGS, play_game_doc},
                                {"values_by", values_by, METH_VARARGS, values_by_doc},
                                {"use_cpu_clock", use_cpu_clock, METH_VARARGS, use_cpu_clock_doc},
                                {"use_pace", use_pace, METH_VARARGS, use_pace_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_search",
                                    "Alpha-beta search for Battlesnake.", 0, methods,
                                    NULL, NULL, NULL, NULL};

#ifndef SOURCES /* setup.py hands it over: the hash of the files here */
#define SOURCES ""
#endif

PyMODINIT_FUNC PyInit__search(void) {
    choose_code("best");
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddStringConstant(made, "SOURCES", SOURCES)) Py_CLEAR(made);
    return made;
}
