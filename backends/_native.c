/* The native tier of dispatch: cache hits of calls, and launches of compiled programs.
 *
 * Python code traces a call, compiles it, and inserts it into a call cache. From then on this file
 * repeats equal calls without running Python code: it builds the key of a call from its arguments
 * and its trace context, looks the key up, reads the addresses of the arguments, allocates memory
 * for the results, runs the compiled program, and makes the result arrays.
 *
 * The types of arrays, storages and memory blocks are defined here, because this file reads and
 * makes their objects: Python classes derive from them. `shardir.backends.native` replaces this
 * module by Python classes where it is not installed. All functions need the GIL.
 *
 * Order: memory blocks, array and storage fields, launches, keys of calls, call cache, callables,
 * flattening, module.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

enum {
    MAX_KEY_WORDS = 1600,        /* words in the key of a call; longer calls run in Python */
    MAX_LEAVES = 500,            /* arrays and numbers in a call */
    MAX_ARGUMENT_DEPTH = 20,     /* nested containers in an argument */
    MAX_CONTAINER_DEPTH = 100,   /* nested containers that `flatten` and `is_ready` traverse */
    MAX_CACHED_CALLS = 4096,     /* entries of a table; a full table is cleared */
    ALWAYS_INSERT_CALLS = 256,   /* entries up to which every call is inserted */
    INSERT_INTERVAL_CALLS = 32,  /* beyond, one call in this many: an insert costs several calls */
    MAX_STACK_WORDS = 512,       /* words of working memory of a launch on the stack */
};

static PyTypeObject *array_class, *storage_class;       /* the final Python classes */
static PyTypeObject *small_block_type, *block_fields_type;
static PyTypeObject *launch_type, *call_table_type, *call_cache_type;
static PyObject *call_slow_name, *empty_text, *group_end;

/* Memory blocks -------------------------------------------------------------------------------- */

typedef struct SmallBlock SmallBlock;

/* A list of idle blocks of one size. Python code allocates it as two words and never frees it. */
typedef struct {
    SmallBlock *first;
    int64_t count;
} FreeList;

/* The common head of all blocks. */
typedef struct {
    PyObject_HEAD
    uint64_t address;
    uint64_t nbytes;
} BlockFields;

/* A block that returns to its free list when its last reference is dropped. */
struct SmallBlock {
    BlockFields fields;
    FreeList *free_list;
    SmallBlock *next;
};

/* Keep the object with its memory, so that the next allocation of this size takes both. */
static void
small_block_dealloc(PyObject *self)
{
    SmallBlock *block = (SmallBlock *)self;
    FreeList *list = block->free_list;
    block->next = list->first;
    list->first = block;
    list->count++;
}

static PyObject *
pop_small_block(FreeList *list, uint64_t nbytes)
{
    SmallBlock *block = list->first;
    if (block == NULL)
        return NULL;
    list->first = block->next;
    list->count--;
    block->fields.nbytes = nbytes;
    Py_SET_REFCNT(block, 1);
    return (PyObject *)block;
}

static PyMemberDef small_block_members[] = {
    {"address", T_ULONGLONG, offsetof(BlockFields, address), 0, NULL},
    {"nbytes", T_ULONGLONG, offsetof(BlockFields, nbytes), READONLY, NULL},
    {"free_list", T_ULONGLONG, offsetof(SmallBlock, free_list), 0, NULL},
    {NULL}};

static PyType_Slot small_block_slots[] = {
    {Py_tp_dealloc, small_block_dealloc},
    {Py_tp_members, small_block_members},
    {0, NULL}};

static PyType_Spec small_block_spec = {
    "shardir.backends._native.SmallBlock", sizeof(SmallBlock), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, small_block_slots};

static PyMemberDef block_fields_members[] = {
    {"address", T_ULONGLONG, offsetof(BlockFields, address), 0, NULL},
    {"nbytes", T_ULONGLONG, offsetof(BlockFields, nbytes), 0, NULL},
    {NULL}};

static void
plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot block_fields_slots[] = {
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_members, block_fields_members},
    {0, NULL}};

static PyType_Spec block_fields_spec = {
    "shardir.backends._native.BlockFields", sizeof(BlockFields), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, block_fields_slots};

PyDoc_STRVAR(make_block_doc,
"make_block(free_list, nbytes, address)\n--\n\n"
"Return a new block for the memory at an address; it returns to the free list at an address.");

static PyObject *
make_block(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long list, nbytes, address;
    if (!PyArg_ParseTuple(args, "KKK:make_block", &list, &nbytes, &address))
        return NULL;
    SmallBlock *block = (SmallBlock *)small_block_type->tp_alloc(small_block_type, 0);
    if (block == NULL)
        return NULL;
    block->fields.address = address;
    block->fields.nbytes = nbytes;
    block->free_list = (FreeList *)(uintptr_t)list;
    return (PyObject *)block;
}

PyDoc_STRVAR(pop_block_doc,
"pop_block(free_list, nbytes)\n--\n\n"
"Return the last block of the free list at an address, or None if the list is empty.");

static PyObject *
pop_block(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long list, nbytes;
    if (!PyArg_ParseTuple(args, "KK:pop_block", &list, &nbytes))
        return NULL;
    PyObject *block = pop_small_block((FreeList *)(uintptr_t)list, nbytes);
    return block != NULL ? block : Py_NewRef(Py_None);
}

/* How to allocate blocks of one size: from a free list, else by a Python function of the size. */
typedef struct {
    FreeList *free_list; /* NULL: there is none */
    uint64_t nbytes;
    PyObject *size;      /* `nbytes` as an object; this and `allocate` are owned */
    PyObject *allocate;
} BlockSource;

static int
parse_block_source(PyObject *row, BlockSource *source)
{
    unsigned long long list;
    PyObject *size, *allocate;
    if (!PyArg_ParseTuple(row, "KOO", &list, &size, &allocate))
        return -1;
    source->nbytes = PyLong_AsUnsignedLongLong(size);
    if (PyErr_Occurred())
        return -1;
    source->free_list = (FreeList *)(uintptr_t)list;
    source->size = Py_NewRef(size);
    source->allocate = Py_NewRef(allocate);
    return 0;
}

static PyObject *
allocate_block(const BlockSource *source)
{
    if (source->free_list != NULL) {
        PyObject *block = pop_small_block(source->free_list, source->nbytes);
        if (block != NULL)
            return block;
    }
    PyObject *block = PyObject_CallOneArg(source->allocate, source->size);
    if (block == NULL || Py_IS_TYPE(block, small_block_type) ||
        PyObject_TypeCheck(block, block_fields_type))
        return block;
    PyErr_Format(PyExc_TypeError, "expected a memory block, not %s", Py_TYPE(block)->tp_name);
    Py_DECREF(block);
    return NULL;
}

static char *
block_start(PyObject *block)
{
    return (char *)(uintptr_t)((BlockFields *)block)->address;
}

/* Array and storage fields --------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *signature, *sharding, *buffers, *parts, *whole, *gone;
    PyObject *weakrefs;
} ArrayFields;

static PyMemberDef array_members[] = {
    {"signature", T_OBJECT_EX, offsetof(ArrayFields, signature), 0,
     "The abstract value with the sharding, by which compiled programs are found."},
    {"sharding", T_OBJECT_EX, offsetof(ArrayFields, sharding), 0,
     "The sharding: the devices of the array, and the shard on each of them."},
    {"buffers", T_OBJECT_EX, offsetof(ArrayFields, buffers), 0,
     "The allocation of all elements, or the buffer of each device; `None` once the array is "
     "deleted or donated."},
    {"_parts", T_OBJECT_EX, offsetof(ArrayFields, parts), 0, NULL},
    {"_whole", T_OBJECT_EX, offsetof(ArrayFields, whole), 0, NULL},
    {"_gone", T_OBJECT_EX, offsetof(ArrayFields, gone), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayFields, weakrefs), READONLY, NULL},
    {NULL}};

static int
array_traverse(PyObject *self, visitproc visit, void *arg)
{
    ArrayFields *array = (ArrayFields *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(array->signature);
    Py_VISIT(array->sharding);
    Py_VISIT(array->buffers);
    Py_VISIT(array->parts);
    Py_VISIT(array->whole);
    Py_VISIT(array->gone);
    return 0;
}

static int
array_clear(PyObject *self)
{
    ArrayFields *array = (ArrayFields *)self;
    Py_CLEAR(array->signature);
    Py_CLEAR(array->sharding);
    Py_CLEAR(array->buffers);
    Py_CLEAR(array->parts);
    Py_CLEAR(array->whole);
    Py_CLEAR(array->gone);
    return 0;
}

static void
array_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((ArrayFields *)self)->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    array_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

#if PY_VERSION_HEX < 0x030C0000
/* Export the buffer that `__buffer__` of the subclass returns; Python 3.12 and later call it. */
static int
array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    view->obj = NULL;
    PyObject *made = PyObject_CallMethod(self, "__buffer__", "i", flags);
    if (made == NULL)
        return -1;
    int failed = PyObject_GetBuffer(made, view, flags);
    Py_DECREF(made);
    return failed;
}
#endif

static PyType_Slot array_slots[] = {
#if PY_VERSION_HEX < 0x030C0000
    {Py_bf_getbuffer, array_getbuffer},
#endif
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_traverse, array_traverse},
    {Py_tp_clear, array_clear},
    {Py_tp_members, array_members},
    {0, NULL}};

static PyType_Spec array_spec = {
    "shardir.backends._native.ArrayFields", sizeof(ArrayFields), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, array_slots};

typedef struct {
    PyObject_HEAD
    uint64_t address;
    PyObject *owner, *shape, *dtype, *array;
} StorageFields;

static PyMemberDef storage_members[] = {
    {"address", T_ULONGLONG, offsetof(StorageFields, address), 0, NULL},
    {"owner", T_OBJECT_EX, offsetof(StorageFields, owner), 0, NULL},
    {"shape", T_OBJECT_EX, offsetof(StorageFields, shape), 0, NULL},
    {"dtype", T_OBJECT_EX, offsetof(StorageFields, dtype), 0, NULL},
    {"_array", T_OBJECT_EX, offsetof(StorageFields, array), 0, NULL},
    {NULL}};

static int
storage_traverse(PyObject *self, visitproc visit, void *arg)
{
    StorageFields *storage = (StorageFields *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(storage->owner);
    Py_VISIT(storage->shape);
    Py_VISIT(storage->dtype);
    Py_VISIT(storage->array);
    return 0;
}

static int
storage_clear(PyObject *self)
{
    StorageFields *storage = (StorageFields *)self;
    Py_CLEAR(storage->owner);
    Py_CLEAR(storage->shape);
    Py_CLEAR(storage->dtype);
    Py_CLEAR(storage->array);
    return 0;
}

static void
storage_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    storage_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot storage_slots[] = {
    {Py_tp_dealloc, storage_dealloc},
    {Py_tp_traverse, storage_traverse},
    {Py_tp_clear, storage_clear},
    {Py_tp_members, storage_members},
    {0, NULL}};

static PyType_Spec storage_spec = {
    "shardir.backends._native.StorageFields", sizeof(StorageFields), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, storage_slots};

static PyObject *
new_storage(const char *address, PyObject *owner, PyObject *shape, PyObject *dtype)
{
    StorageFields *storage = (StorageFields *)storage_class->tp_alloc(storage_class, 0);
    if (storage == NULL)
        return NULL;
    storage->address = (uintptr_t)address;
    storage->owner = Py_NewRef(owner);
    storage->shape = Py_NewRef(shape);
    storage->dtype = Py_NewRef(dtype);
    storage->array = Py_NewRef(Py_None);
    return (PyObject *)storage;
}

/* Return the storage that holds all elements of an array, borrowed; NULL if there is none. */
static StorageFields *
storage_of(PyObject *leaf)
{
    PyObject *buffers = ((ArrayFields *)leaf)->buffers;
    return buffers != NULL && Py_IS_TYPE(buffers, storage_class) ? (StorageFields *)buffers : NULL;
}

static int
check_subclass(PyObject *type, PyTypeObject *base)
{
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, base))
        return 0;
    PyErr_Format(PyExc_TypeError, "expected a subclass of %s", base->tp_name);
    return -1;
}

static PyTypeObject *array_fields_type, *storage_fields_type;

PyDoc_STRVAR(set_array_class_doc,
"set_array_class(type)\n--\n\n"
"Set the class of the arrays that launches take and return, a subclass of ArrayFields.");

static PyObject *
set_array_class(PyObject *Py_UNUSED(module), PyObject *type)
{
    if (check_subclass(type, array_fields_type) < 0)
        return NULL;
    Py_XSETREF(array_class, (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_storage_class_doc,
"set_storage_class(type)\n--\n\n"
"Set the class of storages, a subclass of StorageFields.");

static PyObject *
set_storage_class(PyObject *Py_UNUSED(module), PyObject *type)
{
    if (check_subclass(type, storage_fields_type) < 0)
        return NULL;
    Py_XSETREF(storage_class, (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

/* Launches ------------------------------------------------------------------------------------- */

/* The sources of an argument of a program: an array, constant memory, a NumPy array to import, a
 * NumPy array or bytes read in place, or a Python number to convert to a type. */
enum { ARRAY, CONSTANT, IMPORT, NUMPY, BYTES, BOOL, I32, I64, F32, F64, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = {
    "array", "constant", "import", "numpy", "bytes", "bool", "i32", "i64", "f32", "f64"};

static int
parse_kind(PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL)
        return -1;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (strcmp(text, kind_names[kind]) == 0)
            return kind;
    PyErr_Format(PyExc_ValueError, "no kind of argument is named %R", name);
    return -1;
}

/* The conversion of imported elements: none, nonzero bytes to 1, or to half their width. */
enum { SAME, TRUTH, FLOAT, SIGNED, UNSIGNED, CONVERSION_COUNT };

static const char *const conversion_names[CONVERSION_COUNT] = {
    "same", "truth", "float", "signed", "unsigned"};

/* The import of a NumPy array: the block for its elements, and the storage to make. */
typedef struct {
    BlockSource block;
    PyObject *shape, *dtype; /* owned */
    int conversion;
    int64_t count; /* elements, or bytes if the conversion is SAME */
} ArrayImport;

typedef struct {
    int64_t slot; /* of the address; -1: the program does not read the argument */
    int kind;
    int64_t leaf;
    const void *constant; /* of CONSTANT */
    PyObject *shape;      /* of ARRAY: the shape that the storage must have, or NULL; owned */
    ArrayImport *import;  /* of IMPORT; owned */
} Argument;

typedef struct {
    int64_t slot, block, offset;
} Placement;

typedef struct {
    int64_t block; /* below 0: all or a part of the argument -1 - block */
    int64_t offset;
    PyObject *shape, *dtype, *signature, *sharding; /* owned */
    int is_part;
} Result;

typedef unsigned char (*RunFunction)(void *program, void **bases);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    RunFunction run; /* NULL: the results are views of the arguments */
    void *program;
    Py_ssize_t slot_count, argument_count, placement_count, block_count, result_count;
    void **template;
    Argument *arguments;
    Placement *placements;
    BlockSource *blocks;
    Result *results;
    PyObject *described_arguments, *described_results, *keep;
} Launch;

static void
free_import(ArrayImport *import)
{
    if (import == NULL)
        return;
    Py_XDECREF(import->block.size);
    Py_XDECREF(import->block.allocate);
    Py_XDECREF(import->shape);
    Py_XDECREF(import->dtype);
    PyMem_Free(import);
}

static void
free_arguments(Argument *arguments, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; arguments != NULL && k < count; k++) {
        Py_XDECREF(arguments[k].shape);
        free_import(arguments[k].import);
    }
    PyMem_Free(arguments);
}

/* Return an import from (free_list, size, allocate, shape, dtype, conversion, count). */
static ArrayImport *
parse_import(PyObject *row)
{
    ArrayImport *import = PyMem_Calloc(1, sizeof(ArrayImport));
    const char *conversion;
    PyObject *shape, *dtype, *block;
    long long count;
    if (import == NULL)
        return (ArrayImport *)PyErr_NoMemory();
    if (!PyArg_ParseTuple(row, "OOOsL", &block, &shape, &dtype, &conversion, &count) ||
        parse_block_source(block, &import->block) < 0) {
        free_import(import);
        return NULL;
    }
    import->shape = Py_NewRef(shape);
    import->dtype = Py_NewRef(dtype);
    import->count = count;
    while (import->conversion < CONVERSION_COUNT &&
           strcmp(conversion_names[import->conversion], conversion) != 0)
        import->conversion++;
    if (import->conversion == CONVERSION_COUNT) {
        PyErr_Format(PyExc_ValueError, "no conversion is named %s", conversion);
        free_import(import);
        return NULL;
    }
    return import;
}

/* Set the source of an argument: its kind, leaf, constant address, shape or None, import or
 * None. */
static int
parse_argument(PyObject *row, Argument *argument)
{
    PyObject *kind, *shape, *import;
    long long slot, leaf;
    unsigned long long constant;
    if (!PyArg_ParseTuple(row, "LULKOO", &slot, &kind, &leaf, &constant, &shape, &import))
        return -1;
    argument->slot = slot;
    argument->leaf = leaf;
    argument->constant = (const void *)(uintptr_t)constant;
    argument->kind = parse_kind(kind);
    if (argument->kind < 0)
        return -1;
    if (shape != Py_None)
        argument->shape = Py_NewRef(shape);
    if (argument->kind == IMPORT) {
        argument->import = parse_import(import);
        if (argument->import == NULL)
            return -1;
    }
    return 0;
}

/* Allocate a zeroed table with an element for each item of a tuple. */
#define NEW_TABLE(count, type) PyMem_Calloc((size_t)(count) + 1, sizeof(type))

static PyObject *launch_vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);

PyDoc_STRVAR(launch_doc,
"Launch(run, program, template, arguments, placements, blocks, results, described, keep)\n--\n\n"
"A function of a list of arrays that runs the program at an address by the function at an address.\n"
"\n"
"template: the address in each slot, of constants; 0 elsewhere.\n"
"arguments: (slot, kind, leaf, constant, shape or None, import or None) of each argument.\n"
"placements: (slot, block, offset) of buffers in blocks.\n"
"blocks: (free list, nbytes, function that allocates) of each block of a call.\n"
"results: (block, offset, shape, dtype, signature, sharding, is_part) of each result.\n"
"described: the attributes `arguments` and `results`. keep: lives as long as the launch.\n"
"\n"
"A call returns a list of arrays, or None if an argument is not an array in one storage of the\n"
"expected shape. Blocks that follow the list are used instead of new ones.");

static PyObject *
launch_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    unsigned long long run, program;
    PyObject *template, *arguments, *placements, *blocks, *results, *described_arguments,
        *described_results, *keep;
    if (!PyArg_ParseTuple(args, "KKO!O!O!O!O!(OO)O:Launch", &run, &program, &PyTuple_Type,
                          &template, &PyTuple_Type, &arguments, &PyTuple_Type, &placements,
                          &PyTuple_Type, &blocks, &PyTuple_Type, &results, &described_arguments,
                          &described_results, &keep))
        return NULL;
    if (array_class == NULL || storage_class == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the classes of arrays and storages are not set");
        return NULL;
    }
    Launch *launch = (Launch *)type->tp_alloc(type, 0);
    if (launch == NULL)
        return NULL;
    launch->vectorcall = launch_vectorcall;
    launch->run = (RunFunction)(uintptr_t)run;
    launch->program = (void *)(uintptr_t)program;
    launch->described_arguments = Py_NewRef(described_arguments);
    launch->described_results = Py_NewRef(described_results);
    launch->keep = Py_NewRef(keep);
    launch->template = NEW_TABLE(PyTuple_GET_SIZE(template), void *);
    launch->arguments = NEW_TABLE(PyTuple_GET_SIZE(arguments), Argument);
    launch->placements = NEW_TABLE(PyTuple_GET_SIZE(placements), Placement);
    launch->blocks = NEW_TABLE(PyTuple_GET_SIZE(blocks), BlockSource);
    launch->results = NEW_TABLE(PyTuple_GET_SIZE(results), Result);
    if (!launch->template || !launch->arguments || !launch->placements || !launch->blocks ||
        !launch->results) {
        PyErr_NoMemory();
        goto failed;
    }
    launch->slot_count = PyTuple_GET_SIZE(template);
    for (Py_ssize_t k = 0; k < launch->slot_count; k++) {
        launch->template[k] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(template, k));
        if (PyErr_Occurred())
            goto failed;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(arguments); k++) {
        launch->argument_count++;
        if (parse_argument(PyTuple_GET_ITEM(arguments, k), &launch->arguments[k]) < 0)
            goto failed;
    }
    launch->placement_count = PyTuple_GET_SIZE(placements);
    for (Py_ssize_t k = 0; k < launch->placement_count; k++) {
        long long slot, block, offset;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(placements, k), "LLL", &slot, &block, &offset))
            goto failed;
        launch->placements[k] = (Placement){slot, block, offset};
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(blocks); k++) {
        launch->block_count++;
        if (parse_block_source(PyTuple_GET_ITEM(blocks, k), &launch->blocks[k]) < 0)
            goto failed;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(results); k++) {
        long long block, offset;
        Result *result = &launch->results[k];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(results, k), "LLOOOOp", &block, &offset,
                              &result->shape, &result->dtype, &result->signature,
                              &result->sharding, &result->is_part))
            goto failed;
        result->block = block;
        result->offset = offset;
        Py_INCREF(result->shape);
        Py_INCREF(result->dtype);
        Py_INCREF(result->signature);
        Py_INCREF(result->sharding);
        launch->result_count++;
    }
    return (PyObject *)launch;
failed:
    Py_DECREF(launch);
    return NULL;
}

static int
launch_traverse(PyObject *self, visitproc visit, void *arg)
{
    Launch *launch = (Launch *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(launch->described_arguments);
    Py_VISIT(launch->described_results);
    Py_VISIT(launch->keep);
    for (Py_ssize_t k = 0; k < launch->block_count; k++)
        Py_VISIT(launch->blocks[k].allocate);
    for (Py_ssize_t k = 0; k < launch->result_count; k++) {
        Py_VISIT(launch->results[k].signature);
        Py_VISIT(launch->results[k].sharding);
    }
    return 0;
}

/* A launch in a reference cycle is broken elsewhere: it must stay callable until it is freed. */
static void
launch_dealloc(PyObject *self)
{
    Launch *launch = (Launch *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    free_arguments(launch->arguments, launch->argument_count);
    for (Py_ssize_t k = 0; k < launch->block_count; k++) {
        Py_XDECREF(launch->blocks[k].size);
        Py_XDECREF(launch->blocks[k].allocate);
    }
    for (Py_ssize_t k = 0; k < launch->result_count; k++) {
        Py_DECREF(launch->results[k].shape);
        Py_DECREF(launch->results[k].dtype);
        Py_DECREF(launch->results[k].signature);
        Py_DECREF(launch->results[k].sharding);
    }
    PyMem_Free(launch->template);
    PyMem_Free(launch->placements);
    PyMem_Free(launch->blocks);
    PyMem_Free(launch->results);
    Py_XDECREF(launch->described_arguments);
    Py_XDECREF(launch->described_results);
    Py_XDECREF(launch->keep);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Write a Python number to memory that a program reads. Return 0 if it does not fit: Python code
 * then raises the error. */
static int
write_number(PyObject *number, int kind, uint64_t *cell)
{
    *cell = 0;
    if (kind == BOOL) {
        *(unsigned char *)cell = number == Py_True;
        return 1;
    }
    if (kind == I32 || kind == I64) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow || (value == -1 && PyErr_Occurred()))
            return 0;
        if (kind == I64)
            memcpy(cell, &value, sizeof value);
        else {
            int32_t narrow = (int32_t)value;
            if (narrow != value)
                return 0;
            memcpy(cell, &narrow, sizeof narrow);
        }
        return 1;
    }
    double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred())
        return 0;
    if (kind == F64) {
        memcpy(cell, &value, sizeof value);
        return 1;
    }
    float narrow = (float)value;
    memcpy(cell, &narrow, sizeof narrow);
    /* Python code raises the error for a value that only rounding makes infinite. */
    return !Py_IS_INFINITY(narrow) || Py_IS_INFINITY(value);
}

#define DEFINE_NARROWING(name, wide, narrow)                                                      \
    static int name(char *restrict target, const char *restrict source, int64_t count)            \
    {                                                                                             \
        const wide *from = (const wide *)source;                                                  \
        narrow *to = (narrow *)target;                                                            \
        wide lost = 0;                                                                            \
        for (int64_t k = 0; k < count; k++) {                                                     \
            to[k] = (narrow)from[k];                                                              \
            lost |= (wide)to[k] ^ from[k];                                                        \
        }                                                                                         \
        return lost == 0;                                                                         \
    }

DEFINE_NARROWING(narrow_signed, int64_t, int32_t)
DEFINE_NARROWING(narrow_unsigned, uint64_t, uint32_t)

/* Write the converted elements of a NumPy array; return whether all of them fit. */
static int
convert_elements(const ArrayImport *import, char *restrict target, const char *restrict source)
{
    int64_t count = import->count;
    switch (import->conversion) {
    case SAME:
        memcpy(target, source, (size_t)count);
        return 1;
    case TRUTH:
        for (int64_t k = 0; k < count; k++)
            target[k] = source[k] != 0;
        return 1;
    case FLOAT:
        for (int64_t k = 0; k < count; k++)
            ((float *)target)[k] = (float)((const double *)source)[k];
        return 1;
    case SIGNED:
        return narrow_signed(target, source, count);
    default:
        return narrow_unsigned(target, source, count);
    }
}

/* Return a storage with the elements of a NumPy array; NULL without an exception if an element
 * does not fit. */
static PyObject *
import_elements(const ArrayImport *import, PyObject *array)
{
    PyObject *storage = NULL, *block = allocate_block(&import->block);
    if (block == NULL)
        return NULL;
    char *start = block_start(block);
    if (convert_elements(import, start, PyArray_BYTES((PyArrayObject *)array)))
        storage = new_storage(start, block, import->shape, import->dtype);
    Py_DECREF(block);
    return storage;
}

static int
has_shape(StorageFields *storage, PyObject *shape)
{
    if (storage->shape == shape)
        return 1;
    int equal = PyObject_RichCompareBool(storage->shape, shape, Py_EQ);
    if (equal < 0)
        PyErr_Clear();
    return equal == 1;
}

static PyObject *
make_result(const Result *result, PyObject *const *blocks, PyObject *const *held)
{
    PyObject *owner;
    const char *start;
    if (result->block >= 0) {
        owner = blocks[result->block];
        start = block_start(owner);
    } else {
        owner = held[-1 - result->block];
        if (Py_IS_TYPE(owner, storage_class)) {
            StorageFields *storage = (StorageFields *)owner;
            start = (const char *)(uintptr_t)storage->address;
            /* A program that overwrites donated memory must not take the owner of a part for a
             * block of its own. */
            if (!result->is_part || Py_IS_TYPE(storage->owner, storage_class))
                owner = storage->owner;
        } else
            start = PyBytes_AS_STRING(owner);
    }
    PyObject *storage = new_storage(start + result->offset, owner, result->shape, result->dtype);
    if (storage == NULL)
        return NULL;
    ArrayFields *array = (ArrayFields *)array_class->tp_alloc(array_class, 0);
    if (array == NULL) {
        Py_DECREF(storage);
        return NULL;
    }
    array->buffers = storage;
    array->signature = Py_NewRef(result->signature);
    array->sharding = Py_NewRef(result->sharding);
    array->parts = Py_NewRef(Py_None);
    array->whole = Py_NewRef(Py_None);
    array->gone = Py_NewRef(empty_text);
    return (PyObject *)array;
}

static PyObject *
make_results(Launch *launch, PyObject *const *blocks, PyObject *const *held)
{
    PyObject *list = PyList_New(launch->result_count);
    for (Py_ssize_t k = 0; list != NULL && k < launch->result_count; k++) {
        PyObject *array = make_result(&launch->results[k], blocks, held);
        if (array == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, k, array);
    }
    return list;
}

/* Read the address of an argument, and borrow the object that keeps it valid. Return 0 if the
 * leaf is not what the program expects. */
static int
read_argument(const Argument *argument, PyObject *leaf, void **base, PyObject **held,
              uint64_t *cell)
{
    StorageFields *storage;
    *held = leaf;
    switch (argument->kind) {
    case ARRAY:
        storage = Py_IS_TYPE(leaf, array_class) ? storage_of(leaf) : NULL;
        if (storage == NULL ||
            (argument->shape != NULL && !has_shape(storage, argument->shape)))
            return 0;
        *held = (PyObject *)storage;
        *base = (void *)(uintptr_t)storage->address;
        return 1;
    case CONSTANT:
        *held = Py_None;
        *base = (void *)argument->constant;
        return 1;
    case IMPORT:
        *base = NULL;
        return 1;
    case NUMPY:
        *base = PyArray_DATA((PyArrayObject *)leaf);
        return 1;
    case BYTES:
        *base = PyBytes_AS_STRING(leaf);
        return 1;
    default:
        *base = cell;
        return write_number(leaf, argument->kind, cell);
    }
}

/* Run a program. Return a list of arrays, or with `is_single` the only one; NULL with an
 * exception; or None if Python code must run the call.
 *
 * There are `count` arguments, one for each of the program and possibly more, which must only be
 * present. `given` are the memory blocks to use, or NULL. */
static PyObject *
invoke(Launch *launch, PyObject *const *leaves, const Argument *arguments, Py_ssize_t count,
       PyObject *const *given, int is_single)
{
    PyObject *result = NULL;
    uint64_t stack_words[MAX_STACK_WORDS];
    size_t words = (size_t)(launch->slot_count + 3 * count + launch->block_count + 1);
    uint64_t *memory =
        words <= MAX_STACK_WORDS ? stack_words : PyMem_Malloc(words * sizeof(uint64_t));
    if (memory == NULL)
        return PyErr_NoMemory();
    void **bases = (void **)memory;
    PyObject **held = (PyObject **)(bases + launch->slot_count);
    uint64_t *cells = (uint64_t *)(held + count);
    PyObject **blocks = (PyObject **)(cells + count);
    Py_ssize_t held_count = 0, block_count = 0;
    int has_imports = 0;

    memcpy(bases, launch->template, (size_t)launch->slot_count * sizeof(void *));
    for (Py_ssize_t k = 0; k < count; k++) {
        const Argument *argument = &arguments[k];
        void *base;
        if (!read_argument(argument, leaves[argument->leaf], &base, &held[k], &cells[k]))
            goto not_supported;
        if (argument->slot >= 0)
            bases[argument->slot] = base;
        has_imports |= argument->kind == IMPORT;
    }
    /* Another thread may delete an array while the program runs. */
    for (; held_count < count; held_count++)
        Py_INCREF(held[held_count]);
    for (Py_ssize_t k = 0; has_imports && k < count; k++) {
        if (arguments[k].kind != IMPORT)
            continue;
        PyObject *storage = import_elements(arguments[k].import, held[k]);
        if (storage == NULL)
            goto not_supported; /* Python code repeats the import and raises its error. */
        Py_SETREF(held[k], storage);
        if (arguments[k].slot >= 0)
            bases[arguments[k].slot] = (void *)(uintptr_t)((StorageFields *)storage)->address;
    }
    for (; block_count < launch->block_count; block_count++) {
        PyObject *block = given != NULL ? Py_NewRef(given[block_count])
                                        : allocate_block(&launch->blocks[block_count]);
        if (block == NULL)
            goto done;
        blocks[block_count] = block;
    }
    for (Py_ssize_t k = 0; k < launch->placement_count; k++) {
        const Placement *placement = &launch->placements[k];
        bases[placement->slot] = block_start(blocks[placement->block]) + placement->offset;
    }
    if (launch->run == NULL || (launch->run(launch->program, bases) & 1))
        result = is_single ? make_result(&launch->results[0], blocks, held)
                           : make_results(launch, blocks, held);
    goto done;

not_supported:
    PyErr_Clear();
    result = Py_NewRef(Py_None);
done:
    for (Py_ssize_t k = 0; k < block_count; k++)
        Py_DECREF(blocks[k]);
    for (Py_ssize_t k = 0; k < held_count; k++)
        Py_DECREF(held[k]);
    if (memory != stack_words)
        PyMem_Free(memory);
    return result;
}

static PyObject *
launch_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Launch *launch = (Launch *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if ((names != NULL && PyTuple_GET_SIZE(names) > 0) || count < 1 || !PyList_Check(args[0]) ||
        (count > 1 && count != launch->block_count + 1)) {
        PyErr_SetString(PyExc_TypeError,
                        "a launch takes a list of arguments, and all of its blocks or none");
        return NULL;
    }
    for (Py_ssize_t k = 1; k < count; k++)
        if (!Py_IS_TYPE(args[k], small_block_type) &&
            !PyObject_TypeCheck(args[k], block_fields_type)) {
            PyErr_Format(PyExc_TypeError, "expected a memory block, not %s",
                         Py_TYPE(args[k])->tp_name);
            return NULL;
        }
    if (PyList_GET_SIZE(args[0]) != launch->argument_count)
        Py_RETURN_NONE;
    for (Py_ssize_t k = 0; k < launch->argument_count; k++)
        if (launch->arguments[k].kind == IMPORT && !PyArray_Check(PyList_GET_ITEM(args[0], k)))
            Py_RETURN_NONE;
        else if (launch->arguments[k].kind == BYTES && !PyBytes_Check(PyList_GET_ITEM(args[0], k)))
            Py_RETURN_NONE;
    return invoke(launch, ((PyListObject *)args[0])->ob_item, launch->arguments,
                  launch->argument_count, count > 1 ? args + 1 : NULL, 0);
}

static PyMemberDef launch_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launch, vectorcall), READONLY, NULL},
    {"arguments", T_OBJECT, offsetof(Launch, described_arguments), READONLY, NULL},
    {"results", T_OBJECT, offsetof(Launch, described_results), READONLY, NULL},
    {NULL}};

static PyType_Slot launch_slots[] = {
    {Py_tp_new, launch_new},
    {Py_tp_dealloc, launch_dealloc},
    {Py_tp_traverse, launch_traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, launch_members},
    {Py_tp_doc, (char *)launch_doc},
    {0, NULL}};

static PyType_Spec launch_spec = {
    "shardir.backends._native.Launch", sizeof(Launch), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, launch_slots};

/* Keys of calls -------------------------------------------------------------------------------- */

/* The key of a call, as words. Equal keys mean the same program and the same static arguments.
 * The key of an array is its signature, of a C-contiguous NumPy array its element type and shape,
 * of bytes their size, of a Python number its type. Static arguments are keyed by value: integers
 * and floats by value, strings, bools, dtypes and the like by identity, classes together with
 * their metaclass, containers by their contents. Arrays and numbers that are not keyed by value
 * are the leaves, which the key borrows. */
typedef struct {
    Py_ssize_t word_count, leaf_count;
    uint64_t hash;
    uint64_t words[MAX_KEY_WORDS];
    PyObject *leaves[MAX_LEAVES];
} Key;

static const uint64_t HASH_MULTIPLIER = 0x9E3779B97F4A7C15; /* 2 ** 64 / the golden ratio */

static int
add_word(Key *key, uint64_t word)
{
    if (key->word_count == MAX_KEY_WORDS)
        return 0;
    key->hash = (key->hash ^ word) * HASH_MULTIPLIER;
    key->words[key->word_count++] = word;
    return 1;
}

static int
add_object(Key *key, const void *object)
{
    return add_word(key, (uintptr_t)object);
}

static int
add_leaf(Key *key, PyObject *leaf)
{
    if (key->leaf_count == MAX_LEAVES)
        return 0;
    key->leaves[key->leaf_count++] = leaf;
    return 1;
}

static int
add_array(Key *key, PyObject *x)
{
    PyObject *signature = ((ArrayFields *)x)->signature;
    return signature != NULL && add_object(key, signature) && add_leaf(key, x);
}

static int
add_numpy_array(Key *key, PyObject *x)
{
    PyArrayObject *array = (PyArrayObject *)x;
    if (!PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED))
        return 0;
    int rank = PyArray_NDIM(array);
    if (!add_object(key, Py_TYPE(x)) || !add_object(key, PyArray_DESCR(array)) ||
        !add_word(key, (uint64_t)rank))
        return 0;
    for (int k = 0; k < rank; k++)
        if (!add_word(key, (uint64_t)PyArray_DIM(array, k)))
            return 0;
    return add_leaf(key, x);
}

typedef int (*AddFunction)(Key *, PyObject *, int);

static int
add_items(Key *key, PyObject *x, PyObject *const *items, Py_ssize_t count, int depth,
          AddFunction add)
{
    if (!add_object(key, Py_TYPE(x)) || !add_word(key, (uint64_t)count))
        return 0;
    for (Py_ssize_t k = 0; k < count; k++)
        if (!add(key, items[k], depth - 1))
            return 0;
    return 1;
}

/* Add an argument that is keyed by value; return 0 if this is not supported. */
static int
add_static(Key *key, PyObject *x, int depth)
{
    PyTypeObject *type = Py_TYPE(x);
    if (depth <= 0)
        return 0;
    if (type == &PyBool_Type || type == &PyUnicode_Type || x == Py_None || x == Py_Ellipsis)
        return add_object(key, x);
    if (type == &PyLong_Type) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(x, &overflow);
        return !overflow && add_object(key, type) && add_word(key, (uint64_t)value);
    }
    if (type == &PyFloat_Type) {
        double value = PyFloat_AS_DOUBLE(x);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        return add_object(key, type) && add_word(key, bits);
    }
    if (type == &PyTuple_Type)
        return add_items(key, x, ((PyTupleObject *)x)->ob_item, PyTuple_GET_SIZE(x), depth,
                         add_static);
    if (type == &PyList_Type)
        return add_items(key, x, ((PyListObject *)x)->ob_item, PyList_GET_SIZE(x), depth,
                         add_static);
    if (type == &PyType_Type)
        /* The address of the class alone is the key of a number of that class. */
        return add_object(key, type) && add_object(key, x);
    if (type == &PySlice_Type) {
        PySliceObject *slice = (PySliceObject *)x;
        return add_object(key, type) && add_static(key, slice->start, depth - 1) &&
               add_static(key, slice->stop, depth - 1) && add_static(key, slice->step, depth - 1);
    }
    if (type == array_class)
        return add_array(key, x);
    if (PyArray_CheckExact(x))
        return add_numpy_array(key, x);
    if (type == &PyBytes_Type)
        return add_object(key, type) && add_word(key, (uint64_t)PyBytes_GET_SIZE(x)) &&
               add_leaf(key, x);
    return PyArray_DescrCheck(x) && add_object(key, x);
}

static int
is_number_type(PyTypeObject *type)
{
    return type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type ||
           type == &PyFloat32ArrType_Type || type == &PyFloat64ArrType_Type ||
           type == &PyInt32ArrType_Type || type == &PyInt64ArrType_Type;
}

/* Add an argument whose arrays and numbers are leaves; return 0 if this is not supported. */
static int
add_dynamic(Key *key, PyObject *x, int depth)
{
    PyTypeObject *type = Py_TYPE(x);
    if (depth <= 0)
        return 0;
    if (type == array_class)
        return add_array(key, x);
    if (is_number_type(type))
        return add_object(key, type) && add_leaf(key, x);
    if (type == &PyTuple_Type)
        return add_items(key, x, ((PyTupleObject *)x)->ob_item, PyTuple_GET_SIZE(x), depth,
                         add_dynamic);
    if (type == &PyList_Type)
        return add_items(key, x, ((PyListObject *)x)->ob_item, PyList_GET_SIZE(x), depth,
                         add_dynamic);
    if (type != &PyDict_Type)
        return add_static(key, x, depth - 1);
    Py_ssize_t position = 0;
    PyObject *name, *value;
    if (!add_object(key, type) || !add_word(key, (uint64_t)PyDict_GET_SIZE(x)))
        return 0;
    while (PyDict_Next(x, &position, &name, &value))
        if (!PyUnicode_CheckExact(name) || !add_object(key, name) ||
            !add_dynamic(key, value, depth - 1))
            return 0;
    return 1;
}

/* Call cache ----------------------------------------------------------------------------------- */

/* One cached call: its key, and how to run it. A running call holds a reference. */
typedef struct {
    Py_ssize_t references;
    uint64_t hash;
    Py_ssize_t word_count, argument_count;
    uint64_t *words;
    Argument *arguments;
    Launch *launch;  /* this and the following are owned */
    PyObject *build; /* makes the result from a list of arrays; NULL: the result is one array */
    PyObject *keep;  /* all objects of the key */
} CacheEntry;

static void
release_entry(CacheEntry *entry)
{
    if (entry == NULL || --entry->references > 0)
        return;
    free_arguments(entry->arguments, entry->argument_count);
    PyMem_Free(entry->words);
    Py_XDECREF(entry->launch);
    Py_XDECREF(entry->build);
    Py_XDECREF(entry->keep);
    PyMem_Free(entry);
}

/* The cache entries of functions that share them: a hash table with open addressing, at most half
 * full. */
typedef struct {
    PyObject_HEAD
    CacheEntry **slots;
    size_t mask; /* the number of slots minus 1 */
    Py_ssize_t count;
    long long offered_calls, failed_inserts;
} CallTable;

static CacheEntry **
find_slot(CacheEntry **slots, size_t mask, uint64_t hash, const uint64_t *words,
          Py_ssize_t word_count)
{
    size_t at = (size_t)(hash >> 32) & mask;
    for (CacheEntry *entry; (entry = slots[at]) != NULL; at = (at + 1) & mask)
        if (entry->hash == hash && entry->word_count == word_count &&
            memcmp(entry->words, words, (size_t)word_count * sizeof(uint64_t)) == 0)
            break;
    return &slots[at];
}

static CacheEntry **
new_slots(size_t count)
{
    CacheEntry **slots = PyMem_Calloc(count, sizeof(CacheEntry *));
    if (slots == NULL)
        PyErr_NoMemory();
    return slots;
}

/* Release the entries of a table of slots; this may run any Python code. */
static void
free_slots(CacheEntry **slots, size_t mask)
{
    for (size_t k = 0; slots != NULL && k <= mask; k++)
        release_entry(slots[k]);
    PyMem_Free(slots);
}

static int
clear_table(CallTable *table)
{
    CacheEntry **old = table->slots, **fresh = new_slots(4);
    size_t mask = table->mask;
    if (fresh == NULL)
        return -1;
    table->slots = fresh;
    table->mask = 3;
    table->count = 0;
    free_slots(old, mask);
    return 0;
}

/* Add an entry, which the table owns from now on; it replaces one of the same key. */
static int
add_entry(CallTable *table, CacheEntry *entry)
{
    if (table->count >= MAX_CACHED_CALLS && clear_table(table) < 0) {
        release_entry(entry);
        return -1;
    }
    if (2 * (size_t)(table->count + 1) > table->mask + 1) {
        size_t mask = 2 * table->mask + 1;
        CacheEntry **slots = new_slots(mask + 1);
        if (slots == NULL) {
            release_entry(entry);
            return -1;
        }
        for (size_t k = 0; k <= table->mask; k++) {
            CacheEntry *old = table->slots[k];
            if (old != NULL)
                *find_slot(slots, mask, old->hash, old->words, old->word_count) = old;
        }
        PyMem_Free(table->slots);
        table->slots = slots;
        table->mask = mask;
    }
    CacheEntry **slot =
        find_slot(table->slots, table->mask, entry->hash, entry->words, entry->word_count);
    CacheEntry *replaced = *slot;
    *slot = entry;
    if (replaced == NULL)
        table->count++;
    else
        release_entry(replaced);
    return 0;
}

static PyObject *
call_table_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    if (!PyArg_ParseTuple(args, ":CallTable"))
        return NULL;
    CallTable *table = (CallTable *)type->tp_alloc(type, 0);
    if (table == NULL)
        return NULL;
    table->mask = 3;
    table->slots = new_slots(4);
    if (table->slots == NULL) {
        Py_DECREF(table);
        return NULL;
    }
    return (PyObject *)table;
}

static int
call_table_traverse(PyObject *self, visitproc visit, void *arg)
{
    CallTable *table = (CallTable *)self;
    Py_VISIT(Py_TYPE(self));
    for (size_t k = 0; table->slots != NULL && k <= table->mask; k++)
        /* A running call owns its entry too, which the collector would not know. */
        if (table->slots[k] != NULL && table->slots[k]->references == 1) {
            Py_VISIT(table->slots[k]->launch);
            Py_VISIT(table->slots[k]->build);
            Py_VISIT(table->slots[k]->keep);
        }
    return 0;
}

static int
call_table_clear(PyObject *self)
{
    return clear_table((CallTable *)self);
}

static void
call_table_dealloc(PyObject *self)
{
    CallTable *table = (CallTable *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    free_slots(table->slots, table->mask);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t
call_table_length(PyObject *self)
{
    return ((CallTable *)self)->count;
}

PyDoc_STRVAR(should_insert_doc,
"should_insert($self)\n--\n\n"
"Return whether to insert one more call.\n"
"\n"
"Beyond 256 entries, or more than 32 failed inserts without an entry, only one call in 32 is\n"
"inserted: an insert takes several times the time of a call.");

static PyObject *
call_table_should_insert(PyObject *self, PyObject *Py_UNUSED(unused))
{
    CallTable *table = (CallTable *)self;
    table->offered_calls++;
    int has_few = table->count < ALWAYS_INSERT_CALLS &&
                  table->failed_inserts < INSERT_INTERVAL_CALLS + table->count;
    return PyBool_FromLong(has_few || table->offered_calls % INSERT_INTERVAL_CALLS == 0);
}

PyDoc_STRVAR(table_clear_doc, "clear($self)\n--\n\nRemove all entries.");

static PyObject *
call_table_remove_all(PyObject *self, PyObject *Py_UNUSED(unused))
{
    if (clear_table((CallTable *)self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef call_table_members[] = {
    {"failed_inserts", T_LONGLONG, offsetof(CallTable, failed_inserts), 0, NULL}, {NULL}};

static PyMethodDef call_table_methods[] = {
    {"should_insert", call_table_should_insert, METH_NOARGS, should_insert_doc},
    {"clear", call_table_remove_all, METH_NOARGS, table_clear_doc},
    {NULL}};

PyDoc_STRVAR(call_table_doc,
"CallTable()\n--\n\nThe cached calls of functions that share them, at most 4096.");

static PyType_Slot call_table_slots[] = {
    {Py_tp_new, call_table_new},
    {Py_tp_dealloc, call_table_dealloc},
    {Py_tp_traverse, call_table_traverse},
    {Py_tp_clear, call_table_clear},
    {Py_tp_members, call_table_members},
    {Py_tp_methods, call_table_methods},
    {Py_sq_length, call_table_length},
    {Py_tp_doc, (char *)call_table_doc},
    {0, NULL}};

static PyType_Spec call_table_spec = {
    "shardir.backends._native.CallTable", sizeof(CallTable), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_table_slots};

/* The call cache of one function. */
typedef struct {
    PyObject_HEAD
    CallTable *table;
    /* The trace context: variables that must be None, variables whose values are part of the key,
     * the list that replaces the first of these while it is None, a dictionary that must be
     * empty. */
    PyObject *unset_variables, *variables, *process_scopes, *process_rules;
    uint64_t static_positions; /* a bit for each position; the last bit is for all above */
    PyObject *static_names;
    int all_static; /* all arguments but arrays are static */
    int is_swapped; /* two arguments, in the other order */
} CallCache;

static PyObject *call_cache_key(PyObject *, PyObject *);
static PyObject *call_cache_insert(PyObject *, PyObject *);

PyDoc_STRVAR(call_cache_doc,
"CallCache(table, context, positions, names, is_swapped)\n--\n\n"
"The call cache of one function, whose entries are in `table`.\n"
"\n"
"context: (context variables that must be None, other context variables, list that replaces the\n"
"value of the first of these while it is None, dictionary that must be empty).\n"
"positions, names: the static parameters; None for both makes all arguments but arrays static.\n"
"is_swapped: the function takes the two arguments of the others of the table in reverse order.");

static PyObject *
call_cache_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *table, *unset, *variables, *process, *rules, *positions, *names;
    int is_swapped;
    if (!PyArg_ParseTuple(args, "O!(O!O!O!O!)OOp:CallCache", call_table_type, &table,
                          &PyTuple_Type, &unset, &PyTuple_Type, &variables, &PyList_Type,
                          &process, &PyDict_Type, &rules, &positions, &names, &is_swapped))
        return NULL;
    CallCache *cache = (CallCache *)type->tp_alloc(type, 0);
    if (cache == NULL)
        return NULL;
    cache->table = (CallTable *)Py_NewRef(table);
    cache->unset_variables = Py_NewRef(unset);
    cache->variables = Py_NewRef(variables);
    cache->process_scopes = Py_NewRef(process);
    cache->process_rules = Py_NewRef(rules);
    cache->is_swapped = is_swapped;
    cache->all_static = positions == Py_None;
    if (cache->all_static) {
        cache->static_positions = ~(uint64_t)0;
        cache->static_names = PyTuple_New(0);
    } else {
        cache->static_names = PySequence_Tuple(names);
        PyObject *sequence = PySequence_Fast(positions, "positions are not a sequence");
        for (Py_ssize_t k = 0; sequence != NULL && k < PySequence_Fast_GET_SIZE(sequence); k++) {
            long position = PyLong_AsLong(PySequence_Fast_GET_ITEM(sequence, k));
            if (position >= 0 && position < 63)
                cache->static_positions |= (uint64_t)1 << position;
        }
        Py_XDECREF(sequence);
    }
    if (PyErr_Occurred()) {
        Py_DECREF(cache);
        return NULL;
    }
    return (PyObject *)cache;
}

static int
call_cache_traverse(PyObject *self, visitproc visit, void *arg)
{
    CallCache *cache = (CallCache *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(cache->table);
    Py_VISIT(cache->unset_variables);
    Py_VISIT(cache->variables);
    Py_VISIT(cache->process_scopes);
    Py_VISIT(cache->process_rules);
    Py_VISIT(cache->static_names);
    return 0;
}

/* There is no tp_clear: the table breaks cycles, and a cache must stay usable until it is freed. */
static void
call_cache_dealloc(PyObject *self)
{
    CallCache *cache = (CallCache *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(cache->table);
    Py_XDECREF(cache->unset_variables);
    Py_XDECREF(cache->variables);
    Py_XDECREF(cache->process_scopes);
    Py_XDECREF(cache->process_rules);
    Py_XDECREF(cache->static_names);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef call_cache_members[] = {
    {"table", T_OBJECT, offsetof(CallCache, table), READONLY, NULL}, {NULL}};

PyDoc_STRVAR(call_cache_key_doc,
"key($self, args, options)\n--\n\n"
"Return the key of a call, or None if its arguments are not supported: bytes, and a list of the\n"
"arrays and numbers that are no part of it.");

PyDoc_STRVAR(call_cache_insert_doc,
"insert($self, key, launch, arguments, build, keep)\n--\n\n"
"Insert a call, so that equal calls run by a launch.\n"
"\n"
"arguments: the sources of the arguments of the launch, as for Launch, then leaves of the call\n"
"that the launch does not use, but that must be present. build: makes the result from a list of\n"
"arrays; None: the result is the only array. keep: holds all objects of the key.");

static PyMethodDef call_cache_methods[] = {
    {"key", call_cache_key, METH_VARARGS, call_cache_key_doc},
    {"insert", call_cache_insert, METH_VARARGS, call_cache_insert_doc},
    {NULL}};

static PyType_Slot call_cache_slots[] = {
    {Py_tp_new, call_cache_new},
    {Py_tp_dealloc, call_cache_dealloc},
    {Py_tp_traverse, call_cache_traverse},
    {Py_tp_members, call_cache_members},
    {Py_tp_methods, call_cache_methods},
    {Py_tp_doc, (char *)call_cache_doc},
    {0, NULL}};

static PyType_Spec call_cache_spec = {
    "shardir.backends._native.CallCache", sizeof(CallCache), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_cache_slots};

/* Return the value of a context variable, borrowed from the context; NULL if it has none. */
static PyObject *
context_value(PyObject *variable)
{
    PyObject *value = NULL;
    if (PyContextVar_Get(variable, NULL, &value) < 0) {
        PyErr_Clear();
        return NULL;
    }
    Py_XDECREF(value);
    return value;
}

/* Add the trace context to a key; return 0 if calls in this context are not cached. */
static int
add_context(Key *key, const CallCache *cache)
{
    if (PyDict_GET_SIZE(cache->process_rules) != 0)
        return 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(cache->unset_variables); k++)
        if (context_value(PyTuple_GET_ITEM(cache->unset_variables, k)) != Py_None)
            return 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(cache->variables); k++) {
        PyObject *value = context_value(PyTuple_GET_ITEM(cache->variables, k));
        if (k == 0 && value == Py_None && PyList_GET_SIZE(cache->process_scopes) == 1)
            value = PyList_GET_ITEM(cache->process_scopes, 0);
        if (value == NULL || !add_object(key, value))
            return 0;
    }
    return 1;
}

static int
is_static_name(const CallCache *cache, PyObject *name)
{
    if (cache->all_static)
        return 1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(cache->static_names); k++)
        if (PyTuple_GET_ITEM(cache->static_names, k) == name)
            return 1;
    return 0;
}

/* Build the key of a call. `values` are the positional arguments and the values of `names`, which
 * is a tuple or NULL. Return 0 if an argument or the trace context is not supported. */
static int
build_key(Key *key, const CallCache *cache, PyObject *const *values, Py_ssize_t positional,
          PyObject *names)
{
    key->word_count = key->leaf_count = 0;
    key->hash = 0;
    if (cache->is_swapped && positional != 2)
        return 0;
    if (!add_context(key, cache) || !add_word(key, (uint64_t)positional))
        return 0;
    for (Py_ssize_t k = 0; k < positional; k++) {
        int is_static = cache->static_positions >> Py_MIN(k, 63) & 1;
        PyObject *x = values[cache->is_swapped ? 1 - k : k];
        if (!(is_static ? add_static : add_dynamic)(key, x, MAX_ARGUMENT_DEPTH))
            return 0;
    }
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        AddFunction add = is_static_name(cache, name) ? add_static : add_dynamic;
        if (!add_object(key, name) || !add(key, values[positional + k], MAX_ARGUMENT_DEPTH))
            return 0;
    }
    return 1;
}

static PyObject *
call_cache_key(PyObject *self, PyObject *args)
{
    PyObject *given, *options;
    Key key;
    if (!PyArg_ParseTuple(args, "O!O!:key", &PyTuple_Type, &given, &PyDict_Type, &options))
        return NULL;
    PyObject *names = PySequence_Tuple(options);
    PyObject *named = names == NULL ? NULL : PyDict_Values(options);
    PyObject *all = named == NULL ? NULL : PySequence_List(given);
    PyObject *result = NULL;
    if (all != NULL && PyList_SetSlice(all, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, named) == 0) {
        if (!build_key(&key, (CallCache *)self, ((PyListObject *)all)->ob_item,
                       PyTuple_GET_SIZE(given), names)) {
            PyErr_Clear();
            result = Py_NewRef(Py_None);
        } else {
            PyObject *leaves = PyList_New(key.leaf_count);
            for (Py_ssize_t k = 0; leaves != NULL && k < key.leaf_count; k++)
                PyList_SET_ITEM(leaves, k, Py_NewRef(key.leaves[k]));
            if (leaves != NULL)
                result = Py_BuildValue("y#N", (const char *)key.words,
                                       key.word_count * (Py_ssize_t)sizeof(uint64_t), leaves);
        }
    }
    Py_XDECREF(names);
    Py_XDECREF(named);
    Py_XDECREF(all);
    return result;
}

static uint64_t
hash_words(const uint64_t *words, Py_ssize_t count)
{
    uint64_t hash = 0;
    for (Py_ssize_t k = 0; k < count; k++)
        hash = (hash ^ words[k]) * HASH_MULTIPLIER;
    return hash;
}

static PyObject *
call_cache_insert(PyObject *self, PyObject *args)
{
    const char *words;
    Py_ssize_t nbytes;
    PyObject *launch, *arguments, *build, *keep;
    if (!PyArg_ParseTuple(args, "y#O!O!OO:insert", &words, &nbytes, launch_type, &launch,
                          &PyTuple_Type, &arguments, &build, &keep))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    if (count < ((Launch *)launch)->argument_count ||
        (build == Py_None && ((Launch *)launch)->result_count != 1)) {
        PyErr_SetString(PyExc_ValueError, "the arguments or results do not match the launch");
        return NULL;
    }
    CacheEntry *entry = PyMem_Calloc(1, sizeof(CacheEntry));
    if (entry == NULL)
        return PyErr_NoMemory();
    entry->references = 1;
    entry->word_count = nbytes / (Py_ssize_t)sizeof(uint64_t);
    entry->words = PyMem_Malloc((size_t)nbytes + 1);
    entry->arguments = NEW_TABLE(count, Argument);
    entry->launch = (Launch *)Py_NewRef(launch);
    entry->build = build == Py_None ? NULL : Py_NewRef(build);
    entry->keep = Py_NewRef(keep);
    if (entry->words == NULL || entry->arguments == NULL) {
        release_entry(entry);
        return PyErr_NoMemory();
    }
    memcpy(entry->words, words, (size_t)nbytes);
    entry->hash = hash_words(entry->words, entry->word_count);
    for (Py_ssize_t k = 0; k < count; k++) {
        entry->argument_count++;
        if (parse_argument(PyTuple_GET_ITEM(arguments, k), &entry->arguments[k]) < 0) {
            release_entry(entry);
            return NULL;
        }
    }
    if (add_entry(((CallCache *)self)->table, entry) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Run a call that is in the cache. Return None if it is not, or if its launch does not support the
 * arguments; NULL with an exception. */
static PyObject *
call_cached(CallCache *cache, PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    Key key;
    if (!build_key(&key, cache, args, positional, names)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    CallTable *table = cache->table;
    CacheEntry *entry = *find_slot(table->slots, table->mask, key.hash, key.words, key.word_count);
    if (entry == NULL)
        Py_RETURN_NONE;
    entry->references++;
    PyObject *result = invoke(entry->launch, key.leaves, entry->arguments, entry->argument_count,
                              NULL, entry->build == NULL);
    if (result != NULL && result != Py_None && entry->build != NULL)
        Py_SETREF(result, PyObject_CallOneArg(entry->build, result));
    release_entry(entry);
    return result;
}

/* Callables ------------------------------------------------------------------------------------ */

/* An object that is called through its call cache, and on a cache miss by the Python function
 * `_call_slow` of its type. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    CallCache *cache; /* NULL: every call is a miss */
    PyObject *call_slow;
    PyObject *dict, *weakrefs;
} Callable;

static PyObject *
callable_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Callable *callable = (Callable *)self;
    Py_ssize_t positional = PyVectorcall_NARGS(flags);
    if (callable->cache != NULL) {
        CallCache *cache = (CallCache *)Py_NewRef(callable->cache);
        PyObject *result = call_cached(cache, args, positional, names);
        Py_DECREF(cache);
        if (result != Py_None)
            return result;
        Py_DECREF(result);
    }
    PyObject *small[8];
    Py_ssize_t count = positional + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject **given =
        count < 8 ? small : PyMem_Malloc((size_t)(count + 1) * sizeof(PyObject *));
    if (given == NULL)
        return PyErr_NoMemory();
    given[0] = self;
    if (count > 0)
        memcpy(given + 1, args, (size_t)count * sizeof(PyObject *));
    PyObject *result =
        PyObject_Vectorcall(callable->call_slow, given, (size_t)positional + 1, names);
    if (given != small)
        PyMem_Free(given);
    return result;
}

static PyObject *
callable_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(options))
{
    Callable *callable = (Callable *)type->tp_alloc(type, 0);
    if (callable == NULL)
        return NULL;
    callable->vectorcall = callable_vectorcall;
    callable->call_slow = PyObject_GetAttr((PyObject *)type, call_slow_name);
    if (callable->call_slow == NULL) {
        Py_DECREF(callable);
        return NULL;
    }
    return (PyObject *)callable;
}

static int
callable_traverse(PyObject *self, visitproc visit, void *arg)
{
    Callable *callable = (Callable *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(callable->cache);
    Py_VISIT(callable->call_slow);
    Py_VISIT(callable->dict);
    return 0;
}

static int
callable_clear(PyObject *self)
{
    Py_CLEAR(((Callable *)self)->cache);
    Py_CLEAR(((Callable *)self)->dict);
    return 0;
}

static void
callable_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((Callable *)self)->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    callable_clear(self);
    Py_CLEAR(((Callable *)self)->call_slow);
    type->tp_free(self);
    Py_DECREF(type);
}

/* An object in a class body becomes a method, as a function does. */
static PyObject *
callable_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (instance == NULL || instance == Py_None)
        return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

static PyObject *
callable_get_cache(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *cache = (PyObject *)((Callable *)self)->cache;
    return Py_NewRef(cache == NULL ? Py_None : cache);
}

static int
callable_set_cache(PyObject *self, PyObject *cache, void *Py_UNUSED(closure))
{
    if (cache == NULL || cache == Py_None) {
        Py_CLEAR(((Callable *)self)->cache);
        return 0;
    }
    if (!Py_IS_TYPE(cache, call_cache_type)) {
        PyErr_Format(PyExc_TypeError, "expected a CallCache, not %s", Py_TYPE(cache)->tp_name);
        return -1;
    }
    Py_XSETREF(((Callable *)self)->cache, (CallCache *)Py_NewRef(cache));
    return 0;
}

static PyGetSetDef callable_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"call_cache", callable_get_cache, callable_set_cache,
     "The call cache of the object, or None.", NULL},
    {NULL}};

static PyMemberDef callable_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Callable, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Callable, weakrefs), READONLY, NULL},
    {NULL}};

static PyType_Slot callable_slots[] = {
    {Py_tp_new, callable_new},
    {Py_tp_dealloc, callable_dealloc},
    {Py_tp_traverse, callable_traverse},
    {Py_tp_clear, callable_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, callable_get},
    {Py_tp_members, callable_members},
    {Py_tp_getset, callable_getset},
    {0, NULL}};

PyDoc_STRVAR(make_callable_type_doc,
"make_callable_type(name)\n--\n\n"
"Return a new type of objects that are called through their `call_cache`.\n"
"\n"
"On a cache miss a call runs the attribute `_call_slow` of the type, which must be set before the\n"
"first object is made. Objects in a class body become methods.");

static PyObject *
make_callable_type(PyObject *Py_UNUSED(module), PyObject *name)
{
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);
    if (text == NULL)
        return NULL;
    char *kept = PyMem_RawMalloc((size_t)length + 1); /* A type refers to its name forever. */
    if (kept == NULL)
        return PyErr_NoMemory();
    memcpy(kept, text, (size_t)length + 1);
    PyType_Spec spec = {kept, sizeof(Callable), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                            Py_TPFLAGS_METHOD_DESCRIPTOR,
                        callable_slots};
    return PyType_FromSpec(&spec);
}

/* Flattening ----------------------------------------------------------------------------------- */

static int flatten_into(PyObject *x, PyObject *leaves, PyObject *tokens, int depth);

static int
flatten_items(PyObject *x, PyObject *leaves, PyObject *tokens, int depth)
{
    /* The contents may change while Python code of a comparison runs. */
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); k++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(x, k));
        int is_flat = flatten_into(item, leaves, tokens, depth - 1);
        Py_DECREF(item);
        if (!is_flat)
            return 0;
    }
    return 1;
}

/* Flatten the values of a dictionary in the order of its sorted keys, which are a token. */
static int
flatten_dict(PyObject *x, PyObject *leaves, PyObject *tokens, int depth)
{
    int is_flat = 0;
    PyObject *keys = PyDict_Keys(x), *sorted = NULL;
    if (keys == NULL)
        return 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(keys); k++)
        if (!PyUnicode_CheckExact(PyList_GET_ITEM(keys, k)))
            goto done;
    if (PyList_Sort(keys) < 0)
        goto done;
    sorted = PyList_AsTuple(keys);
    if (sorted == NULL || PyList_Append(tokens, sorted) < 0)
        goto done;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(sorted); k++) {
        PyObject *value = PyDict_GetItemWithError(x, PyTuple_GET_ITEM(sorted, k));
        if (value == NULL)
            goto done;
        Py_INCREF(value);
        int is_value_flat = flatten_into(value, leaves, tokens, depth - 1);
        Py_DECREF(value);
        if (!is_value_flat)
            goto done;
    }
    is_flat = 1;
done:
    Py_DECREF(keys);
    Py_XDECREF(sorted);
    return is_flat;
}

static int
flatten_into(PyObject *x, PyObject *leaves, PyObject *tokens, int depth)
{
    PyTypeObject *type = Py_TYPE(x);
    if (depth <= 0)
        return 0;
    if (type == array_class) {
        PyObject *signature = ((ArrayFields *)x)->signature;
        return signature != NULL && PyList_Append(leaves, x) == 0 &&
               PyList_Append(tokens, signature) == 0;
    }
    if (x == Py_None)
        return PyList_Append(tokens, x) == 0;
    if (type != &PyTuple_Type && type != &PyList_Type && type != &PyDict_Type)
        return 0;
    if (PyList_Append(tokens, (PyObject *)type) < 0)
        return 0;
    if (!(type == &PyDict_Type ? flatten_dict : flatten_items)(x, leaves, tokens, depth))
        return 0;
    return PyList_Append(tokens, group_end) == 0;
}

PyDoc_STRVAR(flatten_doc,
"flatten(*containers)\n--\n\n"
"Return the arrays in nested lists, tuples and dictionaries with string keys, and a hashable key.\n"
"\n"
"The arrays are in the order of `tree.flatten`. Keys are equal if and only if the containers and\n"
"the signatures of their arrays are equal. Return None if there is anything else in them.");

static PyObject *
flatten(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *leaves = PyList_New(0), *tokens = PyList_New(0), *key = NULL, *result = NULL;
    int is_flat = leaves != NULL && tokens != NULL;
    for (Py_ssize_t k = 0; is_flat && k < count; k++)
        is_flat = flatten_into(args[k], leaves, tokens, MAX_CONTAINER_DEPTH);
    if (is_flat && (key = PyList_AsTuple(tokens)) != NULL)
        result = PyTuple_Pack(2, leaves, key);
    Py_XDECREF(leaves);
    Py_XDECREF(tokens);
    Py_XDECREF(key);
    if (result == NULL) {
        PyErr_Clear(); /* Python code raises the error again. */
        Py_RETURN_NONE;
    }
    return result;
}

static int
holds_ready_arrays(PyObject *x, int depth)
{
    PyTypeObject *type = Py_TYPE(x);
    if (depth <= 0)
        return 0;
    if (type == array_class)
        return storage_of(x) != NULL;
    if (type == &PyTuple_Type || type == &PyList_Type) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); k++)
            if (!holds_ready_arrays(PySequence_Fast_GET_ITEM(x, k), depth - 1))
                return 0;
        return 1;
    }
    if (type == &PyDict_Type) {
        Py_ssize_t position = 0;
        PyObject *key, *value;
        while (PyDict_Next(x, &position, &key, &value))
            if (!holds_ready_arrays(value, depth - 1))
                return 0;
        return 1;
    }
    return x == Py_None;
}

PyDoc_STRVAR(is_ready_doc,
"is_ready(x)\n--\n\n"
"Return whether nested lists, tuples and dictionaries hold nothing but arrays in one storage.");

static PyObject *
is_ready(PyObject *Py_UNUSED(module), PyObject *x)
{
    return PyBool_FromLong(holds_ready_arrays(x, MAX_CONTAINER_DEPTH));
}

/* Module --------------------------------------------------------------------------------------- */

static PyMethodDef module_methods[] = {
    {"make_block", make_block, METH_VARARGS, make_block_doc},
    {"pop_block", pop_block, METH_VARARGS, pop_block_doc},
    {"set_array_class", set_array_class, METH_O, set_array_class_doc},
    {"set_storage_class", set_storage_class, METH_O, set_storage_class_doc},
    {"make_callable_type", make_callable_type, METH_O, make_callable_type_doc},
    {"flatten", (PyCFunction)(void (*)(void))flatten, METH_FASTCALL, flatten_doc},
    {"is_ready", is_ready, METH_O, is_ready_doc},
    {NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "shardir.backends._native",
    "The native tier of dispatch: cache hits of calls, and launches of compiled programs.", -1,
    module_methods, NULL, NULL, NULL, NULL};

static int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

PyMODINIT_FUNC
PyInit__native(void)
{
    import_array();
    PyObject *module = PyModule_Create(&module_definition);
    if (module == NULL)
        return NULL;
    call_slow_name = PyUnicode_InternFromString("_call_slow");
    empty_text = PyUnicode_InternFromString("");
    group_end = PyUnicode_InternFromString(")");
    if (call_slow_name == NULL || empty_text == NULL || group_end == NULL ||
        add_type(module, &small_block_spec, &small_block_type) < 0 ||
        add_type(module, &block_fields_spec, &block_fields_type) < 0 ||
        add_type(module, &array_spec, &array_fields_type) < 0 ||
        add_type(module, &storage_spec, &storage_fields_type) < 0 ||
        add_type(module, &launch_spec, &launch_type) < 0 ||
        add_type(module, &call_table_spec, &call_table_type) < 0 ||
        add_type(module, &call_cache_spec, &call_cache_type) < 0 ||
        PyModule_AddIntConstant(module, "MAX_CACHED_CALLS", MAX_CACHED_CALLS) < 0 ||
        PyModule_AddIntConstant(module, "INSERT_INTERVAL_CALLS", INSERT_INTERVAL_CALLS) < 0 ||
        PyModule_AddIntConstant(module, "MAX_CONTAINER_DEPTH", MAX_CONTAINER_DEPTH) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
