/* Python type Batch: many games in one block of memory, and the arrays passed to it. */
#ifndef BATTLESNAKE_BATCH_H
#define BATTLESNAKE_BATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "game.h"
#include "masks.h"
#include "observe.h"

/* An array of the caller, cached between calls. The buffer request to numpy takes most of the time
 * of one turn of one game. Callers pass the same array on every turn. */
typedef struct {
    PyObject *object; /* owned reference; NULL: empty */
    Py_buffer view;
} CachedBuffer;

/* A registered output that every call updates, and its encoder. An entry with an empty buffer is
 * unused. */
typedef struct {
    CachedBuffer out;
    Observation observation;
} RegisteredObservation;

/* Maximum number of registered outputs. Trainers use one output; policies of opponents may need
 * further outputs. */
enum { MAX_OBSERVATIONS = 8 };

typedef struct {
    PyObject_HEAD
    Layout layout;
    Rules rules;
    Py_ssize_t num_games;
    int32_t (*sizes)[3]; /* width, height and number of snakes of each game */
    PyObject *memory;    /* owned capsule of the allocation, which contains the aligned records */
    char *records;       /* num_games * layout.record_size bytes */
    char *side_data;     /* num_games * layout.side_data_size bytes */
    int busy;            /* 1 while a call runs without the GIL */
    CachedBuffer actions;
    RegisteredObservation observations[MAX_OBSERVATIONS]; /* registered outputs */
} Batch;

/* Returns the record of `game`. */
static inline Record *batch_record(const Batch *batch, Py_ssize_t game) {
    return (Record *)(batch->records + (size_t)game * batch->layout.record_size);
}
/* Returns the side data of `game`. */
static inline SideData *batch_side_data(const Batch *batch, Py_ssize_t game) {
    return (SideData *)(batch->side_data + (size_t)game * batch->layout.side_data_size);
}
/* Returns a game of the batch in the form that the rules use. */
static inline Game batch_game(const Batch *batch, Py_ssize_t game) {
    return (Game){&batch->layout, &batch->rules, batch_record(batch, game),
                  batch_side_data(batch, game)};
}

/* The required form of an array argument, with at most 5 dimensions. */
typedef struct {
    const char *name;  /* argument name, for error messages */
    const char *dtype; /* NumPy dtype name, for error messages */
    char format;       /* struct module code: 'B' uint8, '?' bool, 'l' int64, 'i' int32 */
    int writable;
    int ndim;
    Py_ssize_t shape[5];
} ArraySpec;

/* Fills `view` with the C-contiguous memory of `object`. Returns 0, or -1 with a ValueError or
 * TypeError; the message contains the argument, the actual form and the required form. The caller
 * releases `view`. */
int get_array(PyObject *object, const ArraySpec *spec, Py_buffer *view);

/* Returns the memory of `object` through a cached view, which `cached` continues to own. Returns
 * NULL with an exception set on failure. */
void *get_cached_buffer(CachedBuffer *cached, PyObject *object, const ArraySpec *spec);

/* Starts work on all games: marks the batch as busy and, for large batches, releases the GIL.
 * Returns 0, or -1 with a RuntimeError if another thread is using the batch.
 *
 *     PyThreadState *thread;
 *     if (begin_work(batch, &thread) < 0) return NULL;
 *     ...no Python calls...
 *     end_work(batch, thread); */
int begin_work(Batch *batch, PyThreadState **thread);
/* Ends the work; reacquires the GIL if begin_work() released it. */
void end_work(Batch *batch, PyThreadState *thread);

/* Specification of the Python type. */
extern PyType_Spec batch_spec;

#endif
