/* Python module battlesnake_gym.engine._engine. */
#include "batch.h"
#include "builtin_snakes.h"
#include "observe.h"
#include "map_layouts.h"

/* Selects the instruction set for tests, which compare the bytes of all instruction sets. */
static PyObject *module_set_observation_isa(PyObject *module, PyObject *isa) {
    (void)module;
    PyObject *ascii = PyUnicode_AsASCIIString(isa);
    const char *name = ascii ? PyBytes_AsString(ascii) : NULL;
    if (name && !set_observation_isa(name)) {
        PyErr_Format(PyExc_ValueError,
                     "isa must be plain, best, or avx2 or avx512 where the processor has them, "
                     "got '%s'",
                     name);
        Py_CLEAR(ascii);
    }
    if (!ascii) return NULL;
    Py_DECREF(ascii);
    Py_RETURN_NONE;
}

static PyObject *module_get_observation_isa(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyUnicode_FromString(get_observation_isa());
}

static PyMethodDef METHODS[] = {
    {"set_observation_isa", module_set_observation_isa, METH_O,
     "Choose the instruction set that encodes observations."},
    {"get_observation_isa", module_get_observation_isa, METH_NOARGS,
     "Return the instruction set that encodes observations."},
    {NULL, NULL, 0, NULL},
};

#ifndef SOURCES_HASH /* setup.py defines it as the hash of the sources */
#define SOURCES_HASH ""
#endif

static int execute(PyObject *module) {
    if (map_layouts_init()) return -1;
    builtin_init();
    set_observation_isa("best");
    PyObject *type = PyType_FromSpec(&batch_spec);
    if (!type) return -1;
    int result = PyModule_AddObjectRef(module, "Batch", type);
    if (!result) result = PyModule_AddStringConstant(module, "SOURCES_HASH", SOURCES_HASH);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_engine", "The game engine in C; use it through engine.py.", 0, METHODS,
    SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__engine(void) { return PyModuleDef_Init(&MODULE); }
