# The C types of batch_walk.py, which compiles with them and runs without them.
cimport cython

from tidelog._kernels cimport batch_rows
from tidelog._kernels.batch_rows cimport Fields

cdef int _BATCHES_KEPT
cdef long long _INT64_MAX
cdef long long _INT32_MAX
cdef unsigned int _UINT32_MAX
cdef const unsigned int[::1] _TABLES

@cython.locals(state="unsigned int")
cdef unsigned int _crc32c(
    const unsigned char[::1] data,
    Py_ssize_t position,
    Py_ssize_t end,
    const unsigned int[::1] tables,
) noexcept

cpdef unsigned int crc32c(const unsigned char[::1] data)

@cython.locals(
    data="const unsigned char[::1]",
    tables="const unsigned int[::1]",
    length=cython.longlong,
    capacity=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    needed=cython.longlong,
    stop=cython.int,
    place=cython.longlong,
    fields=Fields,
    base_offset=cython.longlong,
    size=cython.longlong,
    epoch=cython.longlong,
    magic=cython.longlong,
    stored_crc=cython.longlong,
    last_delta=cython.longlong,
    _1=cython.longlong,
    _2=cython.longlong,
    _3=cython.longlong,
    _4=cython.longlong,
    _5=cython.longlong,
    _6=cython.longlong,
    _7=cython.longlong,
    checked=cython.longlong,
    crc=cython.longlong,
)
cpdef tuple walk(
    chunk,
    long long chunk_start,
    long long position,
    long long end,
    long long first_offset,
    long long offset_max,
    long long leader_epoch,
    long long leader_epoch_max,
    checksum,
    long long[::1] rows,
)

@cython.locals(
    mark=cython.longlong,
    first=cython.longlong,
    largest=cython.longlong,
    largest_offset=cython.longlong,
    indexed=cython.longlong,
    offset_count=cython.Py_ssize_t,
    time_count=cython.Py_ssize_t,
    row=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    timestamp=cython.longlong,
    relative=cython.longlong,
    position=cython.longlong,
)
cpdef tuple due_entries(
    const long long[::1] rows,
    Py_ssize_t count,
    long long base_offset,
    long long index_interval_bytes,
    long long[::1] notes,
    int[::1] offset_keys,
    int[::1] offset_values,
    long long[::1] time_keys,
    int[::1] time_values,
)

@cython.locals(
    slots=cython.Py_ssize_t,
    slot=cython.Py_ssize_t,
    found=cython.Py_ssize_t,
    row=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    producer=cython.longlong,
    attributes=cython.longlong,
    kept=cython.Py_ssize_t,
)
cpdef Py_ssize_t keep_for_replay(
    long long[::1] rows, Py_ssize_t count, long long[::1] scratch, unsigned char[::1] marks
) except -1
