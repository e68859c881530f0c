# The C types of records.py, which compiles with them and runs without them.
cimport cython

from tidelog._kernels cimport memory

cdef int _LENGTH
cdef int _ATTRIBUTES
cdef int _TIMESTAMP
cdef int _OFFSET
cdef int _KEY
cdef int _VALUE
cdef int _HEADERS
cdef int _TRAILING
cdef int _KEY_MISSING
cdef int _TIMESTAMP_RANGE
cdef long long _INT64_MAX
cdef long long _INT64_MIN
cdef unsigned long long _UINT32_MAX
cdef unsigned long long _MURMUR2_SEED

cpdef bytearray reserve(Py_ssize_t size)

@cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef (long long, Py_ssize_t) _varint(
    const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t end
) noexcept

@cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef (long long, Py_ssize_t) _varlong(
    const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t end
) noexcept

@cython.locals(count=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _headers_end(
    const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t end
) noexcept

@cython.locals(
    length=cython.longlong,
    end=cython.Py_ssize_t,
    timestamp_delta=cython.longlong,
    offset_delta=cython.longlong,
    key_length=cython.longlong,
    key_position=cython.Py_ssize_t,
    value_length=cython.longlong,
    value_position=cython.Py_ssize_t,
)
cdef (
    Py_ssize_t, long long, long long, Py_ssize_t, long long, Py_ssize_t, long long, Py_ssize_t
) _record(const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t limit) noexcept

@cython.locals(
    position=cython.Py_ssize_t,
    index=cython.longlong,
    limit=cython.Py_ssize_t,
    highest=cython.longlong,
    highest_index=cython.longlong,
    offset_delta=cython.longlong,
    timestamp_delta=cython.longlong,
    _key_position=cython.Py_ssize_t,
    key_length=cython.longlong,
    _value_position=cython.Py_ssize_t,
    _value_length=cython.longlong,
    _headers_position=cython.Py_ssize_t,
    timestamp=cython.longlong,
)
cpdef tuple validate(
    const unsigned char[::1] payload,
    long long record_count,
    long long base_timestamp,
    long long timestamp_min,
    long long timestamp_max,
    bint require_keys,
)

@cython.locals(
    position=cython.Py_ssize_t,
    row=cython.Py_ssize_t,
    record=cython.Py_ssize_t,
    limit=cython.Py_ssize_t,
    start=cython.Py_ssize_t,
    previous_delta=cython.longlong,
    offset_delta=cython.longlong,
    timestamp_delta=cython.longlong,
    key_position=cython.Py_ssize_t,
    key_length=cython.longlong,
    value_position=cython.Py_ssize_t,
    value_length=cython.longlong,
    headers_position=cython.Py_ssize_t,
)
cpdef tuple index(
    const unsigned char[::1] payload,
    long long record_count,
    long long base_timestamp,
    int[::1] rows,
    long long[::1] timestamps,
)

@cython.locals(
    key_bytes=cython.longlong,
    value_bytes=cython.longlong,
    header_count=cython.longlong,
    header_key_bytes=cython.longlong,
    header_value_bytes=cython.longlong,
    limit=cython.Py_ssize_t,
    row=cython.Py_ssize_t,
    record=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    count=cython.longlong,
    length=cython.longlong,
)
cpdef tuple measure(
    const unsigned char[::1] payload, const int[::1] rows, long long record_count
)

@cython.locals(record=cython.Py_ssize_t)
cpdef gather_offsets(
    const int[::1] rows,
    long long record_count,
    long long base_offset,
    long long row_start,
    long long[::1] output,
)

@cython.locals(
    limit=cython.Py_ssize_t,
    capacity=cython.longlong,
    end=cython.longlong,
    nulls=cython.longlong,
    out=cython.longlong,
    row=cython.Py_ssize_t,
    record=cython.Py_ssize_t,
    position=cython.longlong,
    length=cython.longlong,
)
cpdef long long gather_bytes(
    const unsigned char[::1] payload,
    const int[::1] rows,
    long long record_count,
    Py_ssize_t field,
    long long row_start,
    int[::1] offsets,
    unsigned char[::1] data,
    unsigned char[::1] validity,
) except -1

@cython.locals(
    limit=cython.Py_ssize_t,
    header_max=cython.longlong,
    key_capacity=cython.longlong,
    value_capacity=cython.longlong,
    header=cython.longlong,
    key_end=cython.longlong,
    value_end=cython.longlong,
    nulls=cython.longlong,
    record=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    count=cython.longlong,
    length=cython.longlong,
)
cpdef long long gather_headers(
    const unsigned char[::1] payload,
    const int[::1] rows,
    long long record_count,
    long long row_start,
    int[::1] list_offsets,
    int[::1] key_offsets,
    unsigned char[::1] key_data,
    int[::1] value_offsets,
    unsigned char[::1] value_data,
    unsigned char[::1] value_validity,
) except -1

cdef bint _timestamp_fits(long long base_timestamp, long long timestamp_delta) noexcept

@cython.locals(bits=cython.ulonglong)
cdef unsigned long long _zigzag(long long value) noexcept

@cython.locals(size=cython.longlong)
cdef long long _varint_bytes(unsigned long long bits) noexcept

cdef Py_ssize_t _put(
    unsigned char[::1] output, Py_ssize_t position, unsigned long long bits
) noexcept

@cython.locals(start=cython.longlong, end=cython.longlong)
cdef long long _slice_length(
    const int[::1] offsets, const unsigned char[::1] validity, Py_ssize_t index, long long data_bytes
) noexcept

cdef bint _column_fits(
    const int[::1] offsets, const unsigned char[::1] validity, long long row_start, long long row_count
) noexcept

@cython.locals(total=cython.longlong, length=cython.longlong)
cdef long long _headers_bytes(
    long long header,
    long long header_end,
    const int[::1] name_offsets,
    const unsigned char[::1] name_validity,
    long long name_bytes,
    const int[::1] item_offsets,
    const unsigned char[::1] item_validity,
    long long item_bytes,
) noexcept

cdef Py_ssize_t _put_column(
    unsigned char[::1] output,
    Py_ssize_t position,
    const int[::1] offsets,
    const unsigned char[::1] data,
    Py_ssize_t index,
    long long length,
) noexcept

cdef bint _timestamp_delta_fits(long long timestamp, long long base_timestamp) noexcept

@cython.locals(total=cython.longlong)
cdef long long _body_bytes(
    unsigned long long timestamp_bits,
    long long record,
    long long key_length,
    long long value_length,
    long long header_count,
) noexcept

@cython.locals(taken=cython.longlong)
cpdef tuple encode(
    unsigned char[::1] output,
    const long long[::1] timestamps,
    long long base_timestamp,
    key,
    value,
    headers,
    long long row_start,
    long long record_count,
)

@cython.locals(
    has_headers=cython.bint,
    selected=cython.bint,
    key_offsets="const int[::1]",
    key_data="const unsigned char[::1]",
    key_validity="const unsigned char[::1]",
    value_offsets="const int[::1]",
    value_data="const unsigned char[::1]",
    value_validity="const unsigned char[::1]",
    list_offsets="const int[::1]",
    name_offsets="const int[::1]",
    name_data="const unsigned char[::1]",
    name_validity="const unsigned char[::1]",
    item_offsets="const int[::1]",
    item_data="const unsigned char[::1]",
    item_validity="const unsigned char[::1]",
    limit=cython.longlong,
    available=cython.longlong,
    taken=cython.longlong,
    highest=cython.longlong,
    header=cython.longlong,
    header_end=cython.longlong,
    headers_bytes=cython.longlong,
    at=cython.longlong,
    timestamp=cython.longlong,
    timestamp_bits=cython.ulonglong,
    body=cython.longlong,
    key_length=cython.longlong,
    value_length=cython.longlong,
    length=cython.longlong,
)
cpdef tuple fill(
    unsigned char[::1] output,
    Py_ssize_t position,
    long long first_delta,
    const long long[::1] timestamps,
    long long base_timestamp,
    columns,
    const int[::1] rows,
    long long row_start,
    long long row_count,
)

@cython.locals(
    state=cython.ulonglong, word=cython.ulonglong, end=cython.Py_ssize_t
)
cdef unsigned long long _murmur2(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t length
) noexcept

cpdef unsigned long long murmur2(const unsigned char[::1] data)

@cython.locals(
    has_keys=cython.bint,
    has_given=cython.bint,
    offsets="const int[::1]",
    data="const unsigned char[::1]",
    validity="const unsigned char[::1]",
    numbers="const int[::1]",
    given_validity="const unsigned char[::1]",
    row=cython.longlong,
    number=cython.longlong,
    length=cython.longlong,
    hashed=cython.longlong,
)
cpdef long long choose_partitions(
    key, given, long long row_count, long long partition_count, int[::1] output
) except -2

@cython.locals(group=cython.longlong, row=cython.longlong)
cpdef group_rows(
    const int[::1] partitions,
    long long row_count,
    long long partition_count,
    int[::1] ends,
    int[::1] rows,
)
