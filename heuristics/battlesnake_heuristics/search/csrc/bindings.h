/* Python bindings of the search: the functions of `battlesnake_heuristics.search._search` and their
 * common checks. All functions need the GIL. */
#ifndef BINDINGS_H
#define BINDINGS_H

#include <Python.h>

#include "search.h"

/* Buffers of a request, borrowed from Python objects until release_buffers(). */
typedef union {
    struct {
        Py_buffer lengths, health, bodies, food, hazards, weights, network, moves;
    };
    Py_buffer all[8];
} RequestBuffers;

/* Releases all buffers; unused buffers must be zero. */
void release_buffers(RequestBuffers *buffers);
/* Stores pointers to the buffers of a position in the request. `buffers` continues to own the
 * memory. */
void fill_request(SearchRequest *request, const RequestBuffers *buffers);

/* Sets a ValueError with the message "<field> <rule>" and returns -1. */
int raise_value_error(const char *field, const char *rule);
/* Returns 1 if the buffer contains `count` aligned items of `size` bytes, or 0 with ValueError
 * set. */
int check_buffer(const char *field, const Py_buffer *buffer, Py_ssize_t count, int size);
/* Checks all fields of a position that the search uses as indices or in sums. Stores the number of
 * hazard planes in `planes`; if `planes` is NULL, requires one plane. Returns 0, or -1 with
 * ValueError set. */
int check_position(const SearchRequest *request, const RequestBuffers *buffers, int *planes);
/* Checks the bounds of the weights. Returns 0, or -1 with ValueError set. */
int check_weights(const Py_buffer *buffer);
/* Stores the network in the buffer, or NULL if the buffer is empty. The buffer continues to own the
 * network. Returns 0, or -1 with ValueError set. */
int check_network(const Py_buffer *buffer, const Network **network);

/* Plays a self-play game; releases the GIL during the game. */
PyObject *play_game(PyObject *module, PyObject *args);
/* Evaluates a batch of network inputs. */
PyObject *evaluate_batch(PyObject *module, PyObject *args);
/* Docstrings of play_game() and evaluate_batch(). */
extern const char play_game_doc[], evaluate_batch_doc[];

#endif
