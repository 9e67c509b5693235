/* The Python module battlesnake_gym._engine. */
#include "batch.h"

static int execute(PyObject *module) {
    rand_init();
    PyObject *type = PyType_FromSpec(&batch_spec);
    if (!type) return -1;
    int result = PyModule_AddObjectRef(module, "Batch", type);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_engine", "The game engine in C; engine.py is its face.", 0, NULL,
    SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__engine(void) { return PyModuleDef_Init(&MODULE); }
