/* The Python module battlesnake_gym.engine._engine. */
#include "batch.h"
#include "named.h"
#include "observe.h"
#include "tables.h"

/* For tests: all give the same bytes. */
static PyObject *module_observe_by(PyObject *module, PyObject *vectors) {
    (void)module;
    PyObject *ascii = PyUnicode_AsASCIIString(vectors);
    const char *name = ascii ? PyBytes_AsString(ascii) : NULL;
    if (name && !observe_by(name)) {
        PyErr_Format(PyExc_ValueError,
                     "vectors must be plain, best, or avx2 or avx512 where the processor has them, "
                     "got '%s'", name);
        Py_CLEAR(ascii);
    }
    if (!ascii) return NULL;
    Py_DECREF(ascii);
    Py_RETURN_NONE;
}

static PyObject *module_observes_by(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyUnicode_FromString(observes_by());
}

static PyMethodDef METHODS[] = {
    {"observe_by", module_observe_by, METH_O, "Choose the code that makes observations."},
    {"observes_by", module_observes_by, METH_NOARGS, "The code that makes observations."},
    {NULL, NULL, 0, NULL},
};

#ifndef SOURCES /* setup.py hands it over: the hash of the files here */
#define SOURCES ""
#endif

static int execute(PyObject *module) {
    if (tables_init()) return -1;
    named_init();
    observe_by("best");
    PyObject *type = PyType_FromSpec(&batch_spec);
    if (!type) return -1;
    int result = PyModule_AddObjectRef(module, "Batch", type);
    if (!result) result = PyModule_AddStringConstant(module, "SOURCES", SOURCES);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_engine", "The game engine in C; engine.py is its face.", 0, METHODS,
    SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__engine(void) { return PyModuleDef_Init(&MODULE); }
