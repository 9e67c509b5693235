/* Python's door to the search: heuristics._search.think(...). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "doors.h"
#include "search.h"
#include "selfplay.h"

typedef struct {
    Py_buffer lengths, health, bodies, food, hazards, weights, network;
} Buffers;

static void release(Buffers *buffers) {
    PyBuffer_Release(&buffers->lengths);
    PyBuffer_Release(&buffers->health);
    PyBuffer_Release(&buffers->bodies);
    PyBuffer_Release(&buffers->food);
    PyBuffer_Release(&buffers->hazards);
    PyBuffer_Release(&buffers->weights);
    PyBuffer_Release(&buffers->network);
}

int refuse(const char *field, const char *rule) {
    PyErr_Format(PyExc_ValueError, "%s %s", field, rule);
    return -1;
}

int has_bytes(const char *field, const Py_buffer *buffer, Py_ssize_t wanted) {
    if (buffer->len == wanted) return 1;
    PyErr_Format(PyExc_ValueError, "%s must hold %zd bytes, got %zd", field, wanted, buffer->len);
    return 0;
}

/* An empty buffer is no network. */
int check_network(const Py_buffer *buffer, const Network **network) {
    *network = NULL;
    if (!buffer->len) return 0;
    if (!has_bytes("network", buffer, sizeof(Network))) return -1;
    *network = buffer->buf;
    if (!network_in_bounds(*network)) return refuse("network", "must have weights within bounds");
    return 0;
}

/* Trusts nothing: the search indexes by what is checked here. */
static int check(const Question *ask, const Buffers *buffers) {
    if (ask->width < 1 || ask->width > 25) return refuse("width", "must be between 1 and 25");
    if (ask->height < 1 || ask->height > 25) return refuse("height", "must be between 1 and 25");
    if (ask->snakes < 1 || ask->snakes > MAX_SNAKES)
        return refuse("snakes", "must number between 1 and 16");
    if (ask->max_depth < 1 || ask->max_depth > MAX_DEPTH)
        return refuse("max_depth", "must be between 1 and 120");
    int cells = ask->width * ask->height, segments = 0;
    if (!has_bytes("lengths", &buffers->lengths, ask->snakes * 4) ||
        !has_bytes("health", &buffers->health, ask->snakes * 4) ||
        !has_bytes("food", &buffers->food, cells) ||
        !has_bytes("hazards", &buffers->hazards, cells) ||
        !has_bytes("weights", &buffers->weights, WEIGHTS * 4))
        return -1;
    for (int s = 0; s < ask->snakes; s++) {
        if (ask->lengths[s] < 1 || ask->lengths[s] > MAX_CELLS)
            return refuse("lengths", "must be between 1 and 625");
        if (ask->health[s] < 1 || ask->health[s] > 100)
            return refuse("health", "must be between 1 and 100");
        segments += ask->lengths[s];
    }
    if (!has_bytes("bodies", &buffers->bodies, segments * 2)) return -1;
    for (int i = 0; i < segments; i++)
        if (ask->bodies[i] >= cells) return refuse("bodies", "must lie on the board");
    return check_network(&buffers->network, (const Network **)&ask->network);
}

/* Reads what `think` and `inputs` are given; the buffers are to be released in any case. */
static int read_question(PyObject *args, Question *ask, Buffers *buffers) {
    long long nodes;
    memset(buffers, 0, sizeof *buffers);
    if (!PyArg_ParseTuple(args, "iipppiy*y*y*y*y*y*dLiy*", &ask->width, &ask->height,
                          &ask->wrapped, &ask->constrictor, &ask->solo, &ask->damage,
                          &buffers->lengths, &buffers->health, &buffers->bodies, &buffers->food,
                          &buffers->hazards, &buffers->weights, &ask->seconds, &nodes,
                          &ask->max_depth, &buffers->network))
        return -1;
    ask->nodes = nodes;
    ask->snakes = (int)(buffers->lengths.len / 4);
    ask->lengths = buffers->lengths.buf;
    ask->health = buffers->health.buf;
    ask->bodies = buffers->bodies.buf;
    ask->food = buffers->food.buf;
    ask->hazards = buffers->hazards.buf;
    ask->weights = buffers->weights.buf;
    return check(ask, buffers);
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

PyDoc_STRVAR(think_doc,
"think(width, height, wrapped, constrictor, solo, damage, lengths, health, bodies, food, hazards,\n"
"      weights, seconds, nodes, max_depth, network)\n"
"--\n\n"
"Search for the best move of snake 0.\n\n"
"lengths, health and weights are int32 buffers, bodies uint16 cells (y * width + x, head first, one\n"
"snake after the other), food and hazards one byte a cell. A limit of 0 is none. `network` are the\n"
"bytes of a learned evaluation, empty for none.\n"
"Returns (move, depth, proven, evaluated, visited, scores by move, line: bytes a turn).\n"
"Raises ValueError for what the search cannot hold. Releases the GIL.");

static PyObject *think(PyObject *module, PyObject *args) {
    (void)module;
    Question ask = {0};
    Answer answer;
    Buffers buffers;
    if (read_question(args, &ask, &buffers)) {
        release(&buffers);
        return NULL;
    }
    int cells = ask.width * ask.height, failed;
    Py_BEGIN_ALLOW_THREADS
    failed = cells <= 128   ? search_small(&ask, &answer)
             : cells <= 384 ? search_medium(&ask, &answer)
                            : search_large(&ask, &answer);
    Py_END_ALLOW_THREADS
    release(&buffers);
    if (failed) return PyErr_NoMemory();
    return Py_BuildValue("(iiiLLNN)", answer.move, answer.depth, answer.proven,
                         (long long)answer.evaluated, (long long)answer.visited,
                         scores_of(&answer), line_of(&ask, &answer));
}

PyDoc_STRVAR(inputs_doc,
"inputs(...)\n"
"--\n\n"
"What a network is told of the position: bytes of int16. The arguments are those of `think`.");

static PyObject *inputs(PyObject *module, PyObject *args) {
    (void)module;
    Question ask = {0};
    Buffers buffers;
    int16_t numbers[INPUTS];
    int failed = read_question(args, &ask, &buffers);
    if (!failed && ask.snakes < 2) failed = refuse("snakes", "must number 2 or more");
    if (failed) {
        release(&buffers);
        return NULL;
    }
    int cells = ask.width * ask.height;
    failed = cells <= 128   ? inputs_small(&ask, numbers)
             : cells <= 384 ? inputs_medium(&ask, numbers)
                            : inputs_large(&ask, numbers);
    release(&buffers);
    if (failed) return PyErr_NoMemory();
    return PyBytes_FromStringAndSize((const char *)numbers, sizeof numbers);
}

static PyMethodDef methods[] = {{"think", think, METH_VARARGS, think_doc},
                                {"inputs", inputs, METH_VARARGS, inputs_doc},
                                {"play_game", play_game, METH_VARARGS, play_game_doc},
                                {"values_by", values_by, METH_VARARGS, values_by_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_search",
                                    "Alpha-beta search for Battlesnake.", 0, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__search(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && (PyModule_AddIntConstant(made, "INPUTS", INPUTS) ||
                 PyModule_AddIntConstant(made, "DUEL_INPUTS", DUEL_INPUTS) ||
                 PyModule_AddIntConstant(made, "HIDDEN", HIDDEN) ||
                 PyModule_AddIntConstant(made, "SECOND", SECOND) ||
                 PyModule_AddIntConstant(made, "STACKS", STACKS) ||
                 PyModule_AddIntConstant(made, "HEAVIEST", HEAVIEST) ||
                 PyModule_AddIntConstant(made, "LARGEST", LARGEST) ||
                 PyModule_AddIntConstant(made, "LOGIT", LOGIT)))
        Py_CLEAR(made);
    return made;
}
