# What batch_rows.py says, in C.
from libc.string cimport memcpy, memmove

cdef enum:
    HEADER_BYTES = 61
    LOG_OVERHEAD = 12
    CHECKED_POSITION = 21
    MAGIC_VALUE = 2
    TRANSACTIONAL = 0x10
    CONTROL = 0x20

    BASE_OFFSET = 0
    BATCH_LENGTH = 1
    LEADER_EPOCH = 2
    MAGIC = 3
    CRC = 4
    ATTRIBUTES = 5
    LAST_OFFSET_DELTA = 6
    MAX_TIMESTAMP = 8
    PRODUCER_ID = 9
    RECORD_COUNT = 12
    HEADER_FIELDS = 13
    POSITION = 13
    ROW_FIELDS = 14

    TABLE_BYTES_MAX = 448


cdef inline unsigned int _uint32(const unsigned char *data) noexcept:
    return (
        (<unsigned int>data[0] << 24)
        | (<unsigned int>data[1] << 16)
        | (<unsigned int>data[2] << 8)
        | <unsigned int>data[3]
    )


cdef inline long long _int64(const unsigned char *data) noexcept:
    return <long long>(
        (<unsigned long long>_uint32(data) << 32) | <unsigned long long>_uint32(data + 4)
    )


cdef inline long long _int32(const unsigned char *data) noexcept:
    return <int>_uint32(data)


cdef inline long long _int16(const unsigned char *data) noexcept:
    return <short>((<unsigned int>data[0] << 8) | <unsigned int>data[1])


ctypedef (
    long long, long long, long long, long long, long long, long long, long long,
    long long, long long, long long, long long, long long, long long
) Fields


cdef inline Fields read(const unsigned char[::1] data, Py_ssize_t place) noexcept:
    cdef const unsigned char *header = &data[place]
    return (
        _int64(header),
        _int32(header + 8),
        _int32(header + 12),
        <signed char>header[16],
        _uint32(header + 17),
        _int16(header + 21),
        _int32(header + 23),
        _int64(header + 27),
        _int64(header + 35),
        _int64(header + 43),
        _int16(header + 51),
        _int32(header + 53),
        _int32(header + 57),
    )


cdef inline void put(
    long long[::1] rows, Py_ssize_t at, Fields fields, long long position
) noexcept:
    memcpy(&rows[at], &fields, HEADER_FIELDS * sizeof(long long))
    rows[at + HEADER_FIELDS] = position


cdef inline void copy(long long[::1] rows, Py_ssize_t source, Py_ssize_t target) noexcept:
    memmove(&rows[target], &rows[source], ROW_FIELDS * sizeof(long long))
